"""A profile with round numbers, made of the real classes: 1,000 us of device time, four targets."""

from __future__ import annotations

import dataclasses

from autokernel.profiling import Layout, ProfileReport, Site, Target, Totals, Variant

HOSTILE = "<img src=x onerror=alert(4)>"


def small_report(**changes: object) -> ProfileReport:
    """fused_mlp 40 %, rmsnorm 20 %, softmax 10 %; and 10 % of something that no shipped operation covers."""
    norm = Variant(
        shape={"M": 64, "N": 256}, dtype="float32", options={"eps": 1e-6}, calls=5, device_us=200.0, floor_us=50.0,
        sites=(Site(path="layers.0.norm", module="RMSNorm"), Site(path="norm", module="RMSNorm")),
    )  # fmt: skip
    soft = Variant(
        shape={"M": 64, "N": 128}, dtype="float32", calls=2, device_us=100.0, floor_us=80.0, floor_is_bound=False
    )
    mlp = Variant(
        shape={"M": 64, "K": 256, "F": 704, "N": 256}, dtype="float32", options={"activation": "silu"}, calls=2,
        device_us=400.0, floor_us=200.0, sites=(Site(path="layers.0.mlp", module="SwiGLU"),),
    )  # fmt: skip
    other = Variant(
        dtype="float32", calls=1, device_us=100.0, inputs={"x": Layout((64, 2), (2, 1), "float32")},
        sites=(Site(path=HOSTILE, module="Strange"),),
    )  # fmt: skip
    targets = (
        _target("fused_mlp", mlp, 0.4, "fused_mlp"),
        _target("rmsnorm", norm, 0.2, "rmsnorm"),
        _target("softmax", soft, 0.1, "softmax"),
        _target("strange-op", other, 0.1, ""),
    )
    totals = Totals(
        wall_us=1500.0, device_us=1000.0, busy_us=1000.0, host_us=500.0, recognised_us=700.0, listed_us=100.0,
        unclaimed_us=200.0,
    )  # fmt: skip
    report = ProfileReport(
        model="TwoLayers", device={"kind": "cpu", "name": "Some CPU"}, inputs=(Layout((1, 64), (64, 1), "int64"),),
        training=False, backward=False, targets=targets, totals=totals, passes=4, seconds=1.0,
        notes=(f"the device was busy {HOSTILE}",),
    )  # fmt: skip
    return dataclasses.replace(report, **changes)  # type: ignore[arg-type]


def _target(name: str, variant: Variant, share: float, operation: str) -> Target:
    return Target(
        name=name, title=name, operation=operation, calls=variant.calls, device_us=variant.device_us, share=share,
        variants=(variant,),
    )  # fmt: skip
