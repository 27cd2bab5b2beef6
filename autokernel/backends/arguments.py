"""The argument kinds of compiled kernels, shared by the C++ and the CUDA backend.

| kind | C++ parameter | passed |
|---|---|---|
| ``T*`` | ``const T*``, ``T*`` or ``void*`` | tensor; all ``T*`` of a call have one dtype |
| ``float32*``, ``float16*``, ``bfloat16*``, ``int64*``, ``int32*``, ``uint8*`` | pointer to that type | such a tensor |
| ``dtype`` | ``int`` | the ``torch.dtype`` of the ``T*``, as ``dispatch`` takes it (C++ only) |
| ``int32``, ``int64`` | ``int``, ``int64_t`` | ``int`` or ``bool`` |
| ``float32``, ``float64`` | ``float``, ``double`` | ``float`` or ``int`` |

A pointer from the wrong dtype, device or layout reads garbage or ends the process, so every call is
checked; that costs well under a microsecond per argument.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autokernel.errors import UsageError

__all__ = ["KINDS", "POINTER_DTYPES", "check_kinds", "explain_tensor"]

POINTER_DTYPES: dict[str, torch.dtype | None] = {
    "T*": None,
    "float32*": torch.float32,
    "float16*": torch.float16,
    "bfloat16*": torch.bfloat16,
    "float64*": torch.float64,
    "int64*": torch.int64,
    "int32*": torch.int32,
    "uint8*": torch.uint8,
}
KINDS = (*POINTER_DTYPES, "dtype", "int32", "int64", "float32", "float64")


def check_kinds(function: str, kinds: Sequence[str], known: Sequence[str] = KINDS) -> None:
    """Raise `UsageError` if ``kinds`` holds a kind that is not known."""
    for kind in kinds:
        if kind not in known:
            raise UsageError(f"{function}: unknown argument kind {kind!r}; known: {', '.join(known)}")


def explain_tensor(
    function: str, position: int, kind: str, value: object, dtype: torch.dtype | None, device: str
) -> TypeError | ValueError:
    """Return the error for a value that cannot be passed as a pointer.

    Args:
        function: Name of the C++ function or kernel.
        position: Index of the argument, from 0.
        kind: The declared kind.
        value: What was passed.
        dtype: The dtype that was expected, or None if any of the three floating ones would do.
        device: ``cpu`` or ``cuda``.
    """
    where = f"{function}: argument {position} ({kind})"
    if not isinstance(value, torch.Tensor):
        return TypeError(f"{where} takes a torch.Tensor, got {type(value).__name__}")
    if value.device.type != device:
        return ValueError(f"{where} takes a tensor on {device}, got one on {value.device}")
    if not value.is_contiguous():
        return ValueError(
            f"{where} takes a contiguous tensor, got shape {tuple(value.shape)} with strides {value.stride()}; "
            "call .contiguous() first"
        )
    expected = str(dtype).removeprefix("torch.") if dtype is not None else "float32, float16 or bfloat16"
    got = str(value.dtype).removeprefix("torch.")
    return TypeError(f"{where} takes a tensor of {expected}, got {got}")
