"""Cross entropy of logits against class targets, averaged.

    loss = mean over the rows n with targets[n] != -100 of
           log(sum(exp(logits[n, :]))) - logits[n, targets[n]]

As ``torch.nn.functional.cross_entropy``: the mean is over the rows that count, and NaN when none
does.  The result is a scalar in float32; the logits' dtype is accepted too.  Memory-bound: the
logits are read once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import Fill, KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]

IGNORED = -100


def reference(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean loss of ``logits[N, V]`` against ``targets[N]`` (int64: a class, or -100 for a row that does not count)."""
    kept = targets != IGNORED
    chosen = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    losses = torch.logsumexp(logits, dim=1) - chosen
    return torch.where(kept, losses, 0.0).sum() / kept.sum()


def baseline(logits: Tensor, targets: Tensor) -> Tensor:
    """In float32, as language models are trained; in bfloat16 the loss would have two or three digits."""
    return torch.nn.functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED)


def composed(logits: Tensor, targets: Tensor) -> Tensor:
    return reference(logits.float(), targets)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    logits = normal((shape["N"], shape["V"]), dtype, generator)
    targets = torch.randint(shape["V"], (shape["N"],), generator=generator, device=generator.device)
    return logits, targets


def magnitude(logits: Tensor, targets: Tensor) -> Magnitude:
    # Sums, over the classes (in the logarithm) and over the rows, err like the root of their length.
    # Not so the roundings of the maximum, the logarithm and the chosen logit, and those of exp's
    # arguments, which become relative errors of its results (see softmax).
    kept = targets != IGNORED
    largest = logits.amax(dim=1)
    chosen = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    log_sum = torch.logsumexp(logits, dim=1)
    shares = torch.softmax(logits, dim=1)
    argument = torch.where(shares > 0, logits.abs() + largest.abs()[:, None], 0.0)
    of_sums = 1 + (log_sum - chosen).abs()
    of_terms = largest.abs() + log_sum.abs() + chosen.abs() + (shares * argument).sum(dim=1)
    of_a_row = of_sums + 2 * of_terms / max(logits.shape) ** 0.5
    return Magnitude(accumulated=torch.where(kept, of_a_row, 0.0).sum() / kept.sum().clamp(min=1))


def ignored(fraction: float) -> Fill:
    """A random ``fraction`` of the targets is -100; never all, unless ``fraction`` is 1."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        logits, targets = inputs
        chance = torch.rand(targets.shape, generator=generator, device=targets.device)
        if fraction < 1:
            chance[-1] = 1.0
        return logits, torch.where(chance < fraction, IGNORED, targets)

    return fill


def outermost_targets(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Targets that are the first and the last class in turn."""
    logits, targets = inputs
    first = torch.arange(targets.shape[0], device=targets.device) % 2 == 0
    return logits, torch.where(first, 0, logits.shape[1] - 1)


def confident(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The target's logit stands 40 above the others: a loss near zero."""
    logits, targets = inputs
    return logits.scatter(1, targets[:, None], 40.0), targets


def masked_classes(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The first three quarters of the classes are -inf, and targets lie in the last one."""
    logits, _ = fills.leading_minus_inf(0)(inputs, shape, generator)
    return logits, torch.full_like(inputs[1], logits.shape[1] - 1)


SPEC = KernelSpec(
    name="cross_entropy",
    description=(
        "mean of logsumexp(logits[n, :]) - logits[n, targets[n]] over the rows n of logits[N, V] with "
        "targets[n] != -100; a float32 scalar, NaN when no row counts"
    ),
    signature="(logits, targets)",
    reference=reference,
    baseline=baseline,
    composed=composed,
    make_inputs=make_inputs,
    shapes=({"N": 7, "V": 10}, {"N": 64, "V": 300}, {"N": 140, "V": 129}, {"N": 6, "V": 2047}),
    large_shapes=({"N": 512, "V": 32000}, {"N": 64, "V": 50257}, {"N": 33, "V": 128256}, {"N": 5000, "V": 100}),
    edge_shapes=(
        {"N": 1, "V": 1},
        {"N": 1, "V": 127},
        {"N": 5, "V": 1023},
        {"N": 2, "V": 4097},
        {"N": 300, "V": 3},
        {"N": 2, "V": 20011},  # several tiles for a kernel that takes 8192 classes at once
    ),
    timing_shapes=({"N": 4096, "V": 32000}, {"N": 8192, "V": 50257}, {"N": 8192, "V": 128256}),
    cpu_timing_shapes=({"N": 256, "V": 4096}, {"N": 16, "V": 50257}),
    fills={
        "zeros": fills.zeros(0),
        "tiny": fills.scaled(0, 1e-3),
        "hundredfold": fills.scaled(0, 100.0),
        "very_negative": fills.offset(0, -300.0),
        "outlier": fills.outlier(0, 100.0),
        "lone_peaks": fills.lone_peaks(0),
        "ascending": fills.ascending(0, 10.0),
        "descending": fills.descending(0),
        "masked_classes": masked_classes,
        "some_ignored": ignored(0.4),
        "all_ignored": ignored(1.0),
        "outermost_targets": outermost_targets,
        "confident": confident,
    },
    result_dtypes=("float32", "input"),
    flops=lambda shape: 4.0 * shape["N"] * shape["V"],
    bytes_moved=lambda shape, itemsize: float(itemsize * shape["N"] * shape["V"] + 8 * shape["N"] + 4),
    reduction_length=lambda shape: max(shape["N"], shape["V"]),
    magnitude=magnitude,
)
