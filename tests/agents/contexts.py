"""Contexts as an engine gives them, without a run: for tests of prompts and answers that need no git."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel import ops
from autokernel.agents import Context
from autokernel.experiment import Experiment, State
from autokernel.history import blob_id
from autokernel.target import Target, Timing


def experiment(number: int, source: str, **fields: Any) -> Experiment:
    """An experiment that was decided."""
    values = {
        "state": State.DECIDED, "hypothesis": f"idea {number}", "agent": "model", "commit": f"{number:040x}",
        "blob": blob_id(source), "decision": "revert" if number else "baseline", "correctness": "PASS",
        "reason": "not certainly faster than the best",
    }  # fmt: skip
    return Experiment(number=number, **{**values, **fields})


def context_of(
    folder: Path,
    kernel: str,
    *,
    operation: str = "rmsnorm",
    backend: str = "cpp",
    device: str = "cpu",
    experiments: list[Experiment] | None = None,
    records: dict[int, dict[str, Any]] | None = None,
    diffs: dict[int, str] | None = None,
    shapes: Sequence[Mapping[str, int]] = (),
    **fields: Any,
) -> Context:
    """The context after some experiments, of which the first is the baseline and the best."""
    spec = ops.get(operation)
    done = experiments or [experiment(0, kernel)]
    target = Target(
        reference=operation, operation=operation, tag="run", backend=backend, device=device,
        dtype=spec.usual_dtype(gpu=device != "cpu"),
        timing=tuple(Timing(shape=shape) for shape in (shapes or spec.timing_shapes)[:4]),
    )  # fmt: skip
    values: dict[str, Any] = {
        "folder": folder, "target": target, "description": spec.description, "signature": spec.signature,
        "kernel": kernel, "best": done[0], "experiments": tuple(done),
        "judged": frozenset(one.blob for one in done), "comments": (), "refused": "",
        "source": lambda number: kernel, "diff": lambda number: (diffs or {}).get(number, ""),
        "record": lambda number: (records or {}).get(number, {}),
    }  # fmt: skip
    return Context(**{**values, **fields})
