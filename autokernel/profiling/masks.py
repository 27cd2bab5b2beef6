"""What an attention mask hides: the later keys, nothing, or something else.  Found by looking at its values."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["mask_kind"]

_HIDDEN = -1e4  # a score lowered by more than this has no weight left: exp(-1e4) is 0 in every dtype


def mask_kind(mask: Tensor, *, inverted: bool) -> str:
    """Say what a mask of ``[..., queries, keys]`` hides.

    Args:
        mask: Boolean (True: may be seen), or floating, added to the scores.
        inverted: A boolean mask is True where a key is hidden, as for ``masked_fill``.

    Returns:
        ``causal`` if each query sees the keys up to its own place and no later one, ``none`` if all
        see all, ``other`` for anything else.
    """
    if mask.ndim < 2 or mask.device.type == "meta":
        return "other"
    if mask.dtype == torch.bool:
        hidden = mask if inverted else ~mask
        exact = True
    elif mask.is_floating_point():
        hidden = mask < _HIDDEN
        exact = bool((hidden | (mask == 0)).all())
    else:
        return "other"
    if not exact:
        return "other"
    if not bool(hidden.any()):
        return "none"
    queries, keys = mask.shape[-2:]
    if queries != keys:
        return "other"
    later = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).triu(1)
    return "causal" if bool((hidden == later).all()) else "other"
