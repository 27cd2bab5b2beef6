"""Floors by the roofline, shares, and the order to work in.

A matmul with 40 % of the time that runs at 95 % of the peak offers less than a normalisation with 10 % that
runs at a third of the bandwidth.  So targets are ordered by the time above their floor.

A covered variant has the cost that its operation's spec gives; any other the products that it holds, and
the bytes that enter and leave it.  For data that fits the cache the floor by bandwidth is no bound, only
what memory alone would allow; such a floor is marked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch

from autokernel import ops
from autokernel.hardware import Roofline
from autokernel.profiling.targets import Target, Variant

__all__ = ["rank"]


def rank(targets: Iterable[Target], device_us: float, roofline: Roofline | None) -> tuple[Target, ...]:
    """Add shares and floors, and put most recoverable time first, then most time.

    Args:
        targets: Without shares and floors.
        device_us: All device time in one pass.
        roofline: Of the device, or None: then nothing has a floor, and the order is that of the time.
    """
    ranked = []
    for target in targets:
        variants = tuple(_with_floor(target, variant, roofline) for variant in target.variants)
        share = target.device_us / device_us if device_us else 0.0
        ranked.append(dataclasses.replace(target, variants=variants, share=share))
    return tuple(sorted(ranked, key=lambda target: (-target.recoverable_us, -target.device_us)))


def _with_floor(target: Target, variant: Variant, roofline: Roofline | None) -> Variant:
    flops, bytes_moved = _cost(target, variant)
    floor = None
    bound = True
    if roofline is not None and (flops or bytes_moved):
        floor = variant.calls * roofline.floor_us(flops, bytes_moved, variant.dtype)
        bound = not roofline.in_cache(bytes_moved)
    return dataclasses.replace(variant, flops=flops, bytes_moved=bytes_moved, floor_us=floor, floor_is_bound=bound)


def _cost(target: Target, variant: Variant) -> tuple[float, float]:
    """FLOP and least bytes of one call."""
    spec = ops.get(target.operation) if target.operation and variant.covered else None
    if spec is None or variant.shape is None or spec.flops is None:
        return variant.flops, variant.bytes_moved
    flops = spec.flops(variant.shape)
    if target.operation == "flash_attention" and not variant.options.get("causal", True):
        flops *= 2 * variant.shape["S"] / (variant.shape["S"] + 1)  # the spec counts the causal half
    itemsize = int(getattr(torch, variant.dtype).itemsize)
    bytes_moved = spec.bytes_moved(variant.shape, itemsize) if spec.bytes_moved else variant.bytes_moved
    return flops, bytes_moved
