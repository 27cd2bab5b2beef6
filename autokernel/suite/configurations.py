"""The configurations of the suite: which operation on which sizes, in which dtype and layout.

On a GPU: powers of two, the sizes of language models, vocabularies (50257 is GPT-2's, 128256 that of
Llama 3), narrow rows, tall and wide.  On a CPU, the small sizes that each spec lists for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autokernel import ops
from autokernel.errors import UsageError
from autokernel.ops.spec import Shape, TimingCase

__all__ = ["Configuration", "configuration", "select"]

_ROWS = ("M", "N")
_HEADS = ("B", "H", "S", "D")
_PRODUCT = ("M", "N", "K")
_SIZES: dict[str, tuple[Sequence[str], Sequence[Sequence[int]]]] = {
    "cross_entropy": (("N", "V"), ((4096, 32000), (8192, 50257), (8192, 128256))),
    "flash_attention": (_HEADS, ((2, 32, 2048, 128), (2, 32, 1024, 64), (1, 32, 4096, 128))),
    "fused_mlp": (("M", "K", "F", "N"), ((2048, 4096, 11008, 4096), (512, 4096, 11008, 4096))),
    "layernorm": (_ROWS, ((4096, 4096), (8192, 8192), (32768, 4096), (8192, 768))),
    "matmul": (
        _PRODUCT,
        (
            (4096, 4096, 4096),
            (2048, 2048, 2048),
            (8192, 8192, 8192),
            (4096, 11008, 4096),
            (1024, 50257, 768),
            (8192, 50257, 768),
        ),
    ),
    "reduce": (_ROWS, ((4096, 4096), (8192, 8192), (1024, 32768), (64, 1048576))),
    "rmsnorm": (_ROWS, ((4096, 4096), (2048, 4096), (8192, 8192), (32768, 4096), (65536, 128))),
    "rotary_embedding": (_HEADS, ((1, 32, 4096, 128), (4, 32, 2048, 128), (8, 12, 1024, 64))),
    "softmax": (_ROWS, ((4096, 4096), (8192, 8192), (1024, 32768), (4096, 50257), (32768, 128))),
}  # of an operation that is not listed, its spec's timing shapes
# A Linear's weight is [N, K], so the product has it transposed.
_LAYOUTS: dict[str, dict[tuple[int, ...], tuple[str, ...]]] = {
    "matmul": {
        (1024, 50257, 768): ("contiguous", "transposed:1"),
        (8192, 50257, 768): ("contiguous", "transposed:1"),
    }
}
_MOST_FLOP_PER_BYTE = 10  # of operations that memory bounds; products are far above


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What is timed: an operation, and on what."""

    operation: str
    case: TimingCase

    @property
    def label(self) -> str:
        """Operation, sizes, dtype and layout in one line."""
        return f"{self.operation} {self.case.label}"


def select(
    *,
    gpu: bool,
    operations: Collection[str] = (),
    dtypes: Collection[str] = (),
    shapes: Sequence[Shape] = (),
) -> list[Configuration]:
    """Return the configurations of the suite, or those that are asked for.

    Args:
        gpu: Whether they are for a GPU; sizes for a CPU are small.
        operations: Only these; all that ship when empty.
        dtypes: Every size in each of these.  When empty, all sizes in bfloat16, and the first of each
            operation in float16 and (where rows are the matter) float32; on a CPU, float32 alone.  An operation
            that is not defined in them has all sizes in its own first dtype.
        shapes: Sizes to use instead; each operation takes those that have its names.

    Raises:
        UnknownOperation: An operation is not known.
        UsageError: No operation has the names of a shape.
    """
    names = [name for name in ops.names() if not operations or name in operations]
    for name in operations:
        ops.get(name)
    for shape in shapes:
        if not any(_fits(name, shape) for name in names):
            wanted = "; ".join(f"{name} takes {', '.join(ops.get(name).shapes[0])}" for name in names)
            sizes = ",".join(f"{name}={size}" for name, size in shape.items())
            raise UsageError(f"the sizes {sizes} fit none of the operations: {wanted}")
    return [one for name in names for one in _of_operation(name, gpu, dtypes, shapes)]


def configuration(operation: str, shape: Shape, dtype: str, layout: str = "contiguous") -> Configuration:
    """One configuration, with the operation's default options."""
    options: Mapping[str, Any] = ops.get(operation).options[0]
    return Configuration(operation, TimingCase(shape=dict(shape), dtype=dtype, options=options, layout=layout))


def _fits(operation: str, shape: Shape) -> bool:
    return set(shape) == set(ops.get(operation).shapes[0])


def _of_operation(name: str, gpu: bool, dtypes: Collection[str], shapes: Sequence[Shape]) -> list[Configuration]:
    own = [shape for shape in shapes if _fits(name, shape)] if shapes else _own_shapes(name, gpu)
    defined = ops.get(name).dtypes
    usual = "bfloat16" if gpu else "float32"
    found = []
    for dtype in dtypes or [usual if usual in defined else defined[0]]:
        if dtype in defined:
            found += [configuration(name, shape, dtype, layout) for shape in own for layout in _layouts(name, shape)]
    if gpu and not dtypes and own:
        further = ["float16", *(["float32"] if _memory_bound(name, own[0]) else [])]
        found += [configuration(name, own[0], dtype) for dtype in further if dtype in defined]
    return found


def _memory_bound(name: str, shape: Shape) -> bool:
    """Products are not: in float32 they would be compared in exact float32, which tensor cores do not do."""
    spec = ops.get(name)
    assert spec.flops is not None and spec.bytes_moved is not None
    return spec.flops(shape) < _MOST_FLOP_PER_BYTE * spec.bytes_moved(shape, 4)


def _own_shapes(name: str, gpu: bool) -> list[Shape]:
    spec = ops.get(name)
    if not gpu:
        return list(spec.cpu_timing_shapes or spec.timing_shapes)
    if name not in _SIZES:
        return list(spec.timing_shapes)
    names, sizes = _SIZES[name]
    return [dict(zip(names, one, strict=True)) for one in sizes]


def _layouts(name: str, shape: Shape) -> tuple[str, ...]:
    names = _SIZES[name][0] if name in _SIZES else ()
    sizes = tuple(shape.get(one, 0) for one in names)
    return _LAYOUTS.get(name, {}).get(sizes, ("contiguous",))
