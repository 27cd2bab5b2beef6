"""Repair what Triton's interpreter gets wrong for bfloat16.

The interpreter keeps a bfloat16 value as its bits in a uint16 and hands those bits to NumPy, so a
dot, a product or a comparison of two bfloat16 blocks computes garbage (triton-lang/triton#11584;
seen with triton 3.9.0), and a cast from float32 truncates.  Here such operands are widened to
float32, which is exact, and results are rounded to nearest even, as the hardware does.
"""

from __future__ import annotations

from typing import Any

__all__ = ["repair_bfloat16"]


def repair_bfloat16() -> bool:
    """Patch the interpreter of this process; return whether bfloat16 can be trusted afterwards."""
    try:
        import numpy as np
        import triton.language as tl
        from triton.runtime import interpreter

        builder = interpreter.InterpreterBuilder
        handle = interpreter.TensorHandle
        originals = {
            name: getattr(builder, name) for name in ("binary_op", "unary_op", "ternary_op", "create_dot", "cast_impl")
        }
    except (ImportError, AttributeError):
        return False

    def is_bfloat16(value: Any) -> bool:
        return bool(value.dtype.scalar == tl.bfloat16) and value.data.dtype == np.uint16

    def widen(value: Any) -> Any:
        if not is_bfloat16(value):
            return value
        bits = value.data.astype(np.uint32) << np.uint32(16)
        return handle(bits.view(np.float32), tl.float32)

    def narrow(value: Any) -> Any:
        if value.data.dtype != np.float32:
            return value  # a comparison's result
        bits = np.ascontiguousarray(value.data).view(np.uint32)
        rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
            np.uint16
        )
        rounded = np.where(np.isnan(value.data), np.uint16(0x7FC0), rounded)
        return handle(rounded, tl.bfloat16)

    def wrapped(name: str, operands: int) -> Any:
        original = originals[name]

        def method(self: Any, *args: Any) -> Any:
            values, rest = args[:operands], args[operands:]
            if not any(is_bfloat16(value) for value in values):
                return original(self, *args)
            return narrow(original(self, *map(widen, values), *rest))

        return method

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return originals["create_dot"](self, widen(a), widen(b), d, *rest)

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if target.scalar == tl.bfloat16 and source.data.dtype == np.float32:
            return narrow(source)  # the original truncates
        return originals["cast_impl"](self, source, target)

    builder.cast_impl = cast_impl
    builder.binary_op = wrapped("binary_op", 2)
    builder.unary_op = wrapped("unary_op", 1)
    builder.ternary_op = wrapped("ternary_op", 3)
    builder.create_dot = create_dot
    return True
