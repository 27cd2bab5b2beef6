"""What matters in a language model besides its logits: the tokens it would choose, and its loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autokernel.integration.trees import Call, leaves

__all__ = ["LanguageAgreement", "agreement"]

_TOKENS = 0.01
_LOSS_ROUNDINGS = 64.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageAgreement:
    """Greedy tokens and loss, the right ones being those in higher precision.

    Attributes:
        tokens: How many positions were compared.
        same: Share of them at which both models choose the same token.
        original_right, integrated_right: Share at which each chooses the right token.
        loss, original_loss, integrated_loss: Mean loss of the next token, in nats.
        ok: The model with kernels is right as often as the plain one, within one position in a
            hundred, and its loss no further off than twice the plain one's.
    """

    tokens: int
    same: float
    original_right: float
    integrated_right: float
    loss: float
    original_loss: float
    integrated_loss: float
    ok: bool


def agreement(
    call: Call,
    plain: Mapping[str, Any],
    integrated: Mapping[str, Any],
    reference: Mapping[str, Any] | None,
    roundoff: float,
) -> LanguageAgreement | None:
    """Compare a language model's outputs; None if the model is none.

    A model is taken for one if an input holds classes ``int64[B, S]`` and an output ``float[B, S, V]``
    with V above all of them.
    """
    ids = next((v for _p, v in leaves((call.args, dict(call.kwargs))) if _are_ids(v)), None)
    path = None if ids is None else next((p for p, v in plain.items() if _are_logits(v, ids)), None)
    if ids is None or path is None:
        return None
    right = (reference or plain)[path]
    if not isinstance(right, Tensor) or not isinstance(integrated.get(path), Tensor):
        return None
    chosen = [logits.argmax(-1) for logits in (right, plain[path], integrated[path])]
    loss, original, ours = (_loss(logits, ids) for logits in (right, plain[path], integrated[path]))
    shares = [float((one == chosen[0]).double().mean()) for one in chosen]
    allowed = 2 * abs(original - loss) + _LOSS_ROUNDINGS * roundoff * abs(loss)
    return LanguageAgreement(
        tokens=chosen[0].numel(),
        same=float((chosen[1] == chosen[2]).double().mean()),
        original_right=shares[1],
        integrated_right=shares[2],
        loss=loss,
        original_loss=original,
        integrated_loss=ours,
        ok=shares[2] >= shares[1] - max(_TOKENS, 1 / chosen[0].numel())
        and (abs(ours - loss) <= allowed or loss != loss),
    )


def _are_ids(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() == 2 and value.numel() > 0


def _are_logits(value: Any, ids: Tensor) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.dim() == 3
        and value.shape[:2] == ids.shape
        and value.shape[2] > max(1, int(ids.max()))
    )


def _loss(logits: Tensor, ids: Tensor) -> float:
    if ids.shape[1] < 2:
        return float("nan")
    targets = ids[:, 1:].reshape(-1).to(logits.device)
    return float(F.cross_entropy(logits[:, :-1].reshape(len(targets), -1).double(), targets))
