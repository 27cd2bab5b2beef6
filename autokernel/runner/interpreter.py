"""Repair what Triton's interpreter gets wrong: bfloat16, floats as arguments, libdevice.

The interpreter keeps a bfloat16 value as its bits in a uint16 and hands those bits to NumPy, so a
dot, a product or a comparison of two bfloat16 blocks computes garbage (triton-lang/triton#11584;
seen with triton 3.9.0), and a cast from float32 truncates.  Here such operands are widened to
float32, which is exact, and results are rounded to nearest even, as the hardware does.

It also hands a float argument to the kernel as a Python number, where compiled Triton passes a float32
scalar, so ``eps.to(tl.float32)`` raises, and the functions of libdevice return None (both seen with
triton 3.7.1).  And it patches Triton's language anew whenever one function calls another, which is half
of its time.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["pass_floats_as_scalars", "patch_once", "provide_libdevice", "repair_bfloat16"]

_UFUNCS = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")


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


def pass_floats_as_scalars() -> None:
    """Have the interpreter of this process pass float arguments as float32 scalars, as compiled Triton does."""
    try:
        import numpy as np
        import triton.language as tl
        from triton.runtime import interpreter

        convert, handle = interpreter._implicit_cvt, interpreter.TensorHandle
    except (ImportError, AttributeError):
        return

    def implicit_cvt(value: Any) -> Any:
        if type(value) is float:
            return tl.tensor(handle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
        return convert(value)

    interpreter._implicit_cvt = implicit_cvt


def provide_libdevice() -> None:
    """Give the interpreter of this process those functions of libdevice that NumPy has under the same name."""
    try:
        import numpy as np
        import triton.language as tl
        from triton.language.extra import libdevice
        from triton.language.extra.cuda import libdevice as cuda_libdevice
        from triton.runtime import interpreter

        handle = interpreter.TensorHandle
    except (ImportError, AttributeError):
        return
    known: dict[str, Any] = {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "erf": np.vectorize(math.erf, otypes=[np.float64]),
        "pow": np.power,
        **{name: getattr(np, name) for name in _UFUNCS},
    }

    def provided(function: Any) -> Any:
        def call(*arguments: Any, **_semantic: Any) -> Any:
            first = next(value for value in arguments if isinstance(value, tl.tensor))
            arrays = [value.handle.data if isinstance(value, tl.tensor) else value for value in arguments]
            result = np.asarray(function(*arrays)).astype(first.handle.data.dtype)
            return tl.tensor(handle(result, first.type.scalar), first.type)

        return call

    for module in (libdevice, cuda_libdevice):
        for name, function in known.items():
            if hasattr(module, name):
                setattr(module, name, provided(function))


def patch_once() -> None:
    """Have the interpreter of this process patch Triton's language for each function once in a launch."""
    try:
        from triton.runtime import interpreter

        patch, scope = interpreter._patch_lang, interpreter._LangPatchScope
        restore = scope.restore
    except (ImportError, AttributeError):
        return
    patched: set[Any] = set()

    def patch_lang(function: Any) -> Any:
        if function in patched:
            return scope()
        patched.add(function)
        return patch(function)

    def restored(self: Any) -> None:
        patched.clear()
        restore(self)

    interpreter._patch_lang = patch_lang
    scope.restore = restored
