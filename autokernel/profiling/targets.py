"""The groups of work in a model: `Target`, its variants, and the sites that call it; plain data.

Units: microseconds, bytes, FLOP.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autokernel.errors import UsageError

if TYPE_CHECKING:
    from autokernel.ops.spec import TimingCase

__all__ = ["Layout", "Site", "Target", "Variant", "layout_from", "target_data", "target_from"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sizes, strides in elements, and dtype of one tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def contiguous(self) -> bool:
        """True if the elements lie in order without gaps."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """One place that a group is called from.

    Attributes:
        path: Path of the innermost module around all of the group's calls; "" is the model itself.
        module: Its class.
        calls: How often in one pass.
        parameters: For inputs that are parameters (or views of them), their names in the model.
    """

    path: str
    module: str = ""
    calls: int = 1
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """Calls of a group with the same shapes, strides, dtypes and options.

    Attributes:
        shape: Sizes by the names of the shipped operation, or None.
        dtype: Of the first input.
        options: Keyword arguments of the operation's ``kernel_fn``: ``eps``, ``causal``, ``sm_scale``, ``activation``.
        details: What else is known: ``bias``, ``kv_heads``, ``style`` (of a rotation), ``weight_offset`` (1 + weight),
            ``joint_gate_up``.
        unlike: Why the shipped operation does not cover these calls; "" if it does.
        inputs: The tensors by name, as the first call saw them.
        calls: How often in one pass.
        device_us: Device time of all these calls in one pass.
        sites: Where they are called from.
        flops: Of one call; 0 where no matrix product is in it and no operation gives its cost.
        bytes_moved: Least traffic of one call.
        floor_us: Least device time of all these calls by the roofline, or None where it is not known.
        floor_is_bound: False if the data fits the device's cache, so that a time below the floor is possible.
    """

    shape: Mapping[str, int] | None = None
    dtype: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unlike: str = ""
    inputs: Mapping[str, Layout] = dataclasses.field(default_factory=dict)
    calls: int = 0
    device_us: float = 0.0
    sites: tuple[Site, ...] = ()
    flops: float = 0.0
    bytes_moved: float = 0.0
    floor_us: float | None = None
    floor_is_bound: bool = True

    @property
    def covered(self) -> bool:
        """True if the shipped operation computes this."""
        return self.shape is not None and not self.unlike

    @property
    def label(self) -> str:
        """Sizes in one line: ``M=8192 N=2048``, or the shapes of the inputs."""
        if self.shape is not None:
            return " ".join(f"{name}={size}" for name, size in self.shape.items())
        return " ".join("x".join(map(str, one.shape)) or "scalar" for one in self.inputs.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """One group of work in the model.

    Attributes:
        name: Names it in what-ifs, captures and commands.
        operation: The shipped operation that it is, or "".
        title: The operation, or the operator and the class of module that calls it.
        phase: ``forward`` or ``backward``.
        calls: How often in one pass.
        launches: Kernels launched in one pass; on a CPU, operators that compute.
        device_us: Device time in one pass.
        share: Of all device time in one pass, 0 to 1.
        variants: By shape, stride, dtype and options; most time first.
        operators: The PyTorch operators in it.
        kernels: The device's kernels in it; empty on a CPU.
    """

    name: str
    title: str
    operation: str = ""
    phase: str = "forward"
    calls: int = 0
    launches: int = 0
    device_us: float = 0.0
    share: float = 0.0
    variants: tuple[Variant, ...] = ()
    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()

    @property
    def offered(self) -> bool:
        """True if a kernel for the shipped operation would serve: forward, and of a kind that it covers."""
        return bool(self.operation) and self.phase == "forward" and any(variant.covered for variant in self.variants)

    @property
    def unlike(self) -> str:
        """Why the shipped operation does not cover it; "" if it does, or if it is no such operation."""
        return "" if self.offered else next((variant.unlike for variant in self.variants if variant.unlike), "")

    @property
    def floor_us(self) -> float | None:
        """Least device time in one pass by the roofline, or None if it is not known for all variants."""
        floors = [variant.floor_us for variant in self.variants]
        known = [floor for floor in floors if floor is not None]
        return sum(known) if len(known) == len(floors) and known else None

    @property
    def recoverable_us(self) -> float:
        """Device time above the floor, variant by variant; 0 where no floor is known."""
        above = [one.device_us - one.floor_us for one in self.variants if one.floor_us is not None]
        return sum(max(0.0, us) for us in above)

    @property
    def ceiling(self) -> float:
        """Speedup of the model's device time with this group for free (Amdahl)."""
        return math.inf if self.share >= 1 else 1 / (1 - self.share)

    @property
    def gain(self) -> float:
        """Speedup of the model's device time with this group at its floor."""
        if not self.device_us:
            return 1.0
        saved = self.share * self.recoverable_us / self.device_us
        return math.inf if saved >= 1 else 1 / (1 - saved)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the modules that call it, each once."""
        return tuple(dict.fromkeys(site.path for variant in self.variants for site in variant.sites))

    @property
    def dtype(self) -> str:
        return self.variants[0].dtype if self.variants else ""

    def timing_cases(self) -> list[TimingCase]:
        """The covered variants as timing cases, weighted by their device time.

        Raises:
            UsageError: No shipped operation covers this target.
        """
        from autokernel.ops.spec import TimingCase
        from autokernel.profiling.strides import layout_of

        if not self.offered:
            raise UsageError(
                f"{self.name} is not covered by a shipped operation ({self.unlike or 'it is none of them'})"
            )
        return [
            TimingCase(
                shape=dict(one.shape or {}),
                dtype=one.dtype,
                options=dict(one.options),
                weight=one.device_us,
                layout=layout_of(self.operation, one),
            )
            for one in self.variants
            if one.covered
        ]


def target_data(target: Target) -> dict[str, Any]:
    """A target as JSON-ready data, derived figures included."""
    derived = ("offered", "unlike", "floor_us", "recoverable_us", "ceiling", "gain", "paths")
    return {**dataclasses.asdict(target), **{name: getattr(target, name) for name in derived}}


def target_from(data: Mapping[str, Any]) -> Target:
    """Read back what `target_data` made."""
    names = {field.name for field in dataclasses.fields(Target)}
    kept = {name: value for name, value in data.items() if name in names}
    kept["variants"] = tuple(_variant(one) for one in data["variants"])
    return Target(**{**kept, "operators": tuple(data["operators"]), "kernels": tuple(data["kernels"])})


def _variant(data: Mapping[str, Any]) -> Variant:
    inputs = {name: layout_from(one) for name, one in data["inputs"].items()}
    sites = tuple(Site(**one) for one in data["sites"])
    return Variant(**{**data, "inputs": inputs, "sites": sites})


def layout_from(data: Mapping[str, Any]) -> Layout:
    """Read back one layout."""
    return Layout(tuple(data["shape"]), tuple(data["stride"]), data["dtype"])
