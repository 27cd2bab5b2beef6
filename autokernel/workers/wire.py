"""What goes between the driver and a worker: JSON text, both ways.

A *subject* is what a worker needs to make the `Evaluator` that judges: the operation, the timing cases,
the settings.  Its text is the same for all candidates of a run, so that the evaluator can stay.

Nothing is unpickled: a worker gets the text of kernels and gives back the data of a verdict.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel import errors
from autokernel.errors import AutokernelError, InvalidSpec, RunnerLost, UsageError
from autokernel.evaluator import Evaluator, EvaluatorSettings, harness_hash
from autokernel.ops.spec import TimingCase
from autokernel.paired import TimingSettings
from autokernel.runner.client import Limits
from autokernel.verifier.stages import Progress

__all__ = ["error_from", "error_to", "make_evaluator", "subject_text"]


def subject_text(
    reference: str,
    *,
    device: str,
    timing_cases: Sequence[TimingCase] | None,
    dtype: str | None,
    settings: EvaluatorSettings,
) -> str:
    """The text of a subject; the arguments are those of `Evaluator`.

    The device's number is left out: which GPU a worker has is the worker's business.

    Raises:
        UsageError: An option of a timing case cannot be written as JSON.
    """
    reference = _absolute(reference)
    subject = {
        "reference": reference,
        "content": _content_hash(reference),
        "device": device.partition(":")[0],
        "timing_cases": None if timing_cases is None else [_case_data(case) for case in timing_cases],
        "dtype": dtype,
        "settings": dataclasses.asdict(settings),
        "harness": harness_hash(),
    }
    try:
        return json.dumps(subject, sort_keys=True)
    except TypeError as error:
        raise UsageError(
            f"the timing cases cannot be sent to a worker: {error}; give options as numbers, texts or booleans"
        ) from None


def make_evaluator(subject: str, progress: Progress) -> Evaluator:
    """Make the evaluator of a subject on this machine.

    Raises:
        UsageError: This machine has another version of AutoKernel, or of the spec file.
        AutokernelError: The evaluator cannot be made here.
    """
    data = json.loads(subject)
    if data["harness"] != harness_hash():
        raise UsageError(
            f"the worker judges with harness {harness_hash()} and the driver with {data['harness']}, so their verdicts "
            "could differ; install the same version of autokernel on both"
        )
    if data["content"] != _content_hash(data["reference"]):
        raise UsageError(
            f"the spec file {data['reference']} is another one on the worker than on the driver; put it on a file "
            "system that both see, or copy it"
        )
    cases = data["timing_cases"]
    return Evaluator(
        data["reference"],
        device=data["device"],
        timing_cases=None if cases is None else [TimingCase(**case) for case in cases],
        dtype=data["dtype"],
        settings=_settings(data["settings"]),
        progress=progress,
    )


def error_to(error: AutokernelError) -> dict[str, str]:
    """An error of the judging as data."""
    return {"kind": type(error).__name__, "message": str(error)}


def error_from(data: Mapping[str, str], worker: str) -> AutokernelError:
    """The error that `error_to` was given, with the worker's name."""
    kind = getattr(errors, data["kind"], None) if data["kind"] in errors.__all__ else None
    return (kind or RunnerLost)(f"on {worker}: {data['message']}")


def _settings(data: Mapping[str, Any]) -> EvaluatorSettings:
    parts = {"limits": Limits(**data["limits"]), "timing": TimingSettings(**data["timing"])}
    return EvaluatorSettings(**{**data, **parts, "allow": tuple(data["allow"])})


def _case_data(case: TimingCase) -> dict[str, Any]:
    values = {field.name: getattr(case, field.name) for field in dataclasses.fields(case)}
    return {**values, "shape": dict(case.shape), "options": dict(case.options)}


def _file_of(reference: str) -> Path | None:
    """The spec file of ``my_op.py`` or ``my_op.py:name``; None for a shipped operation."""
    path, _, _name = reference.rpartition(":")
    file = path if path.endswith(".py") else reference
    return Path(file) if file.endswith(".py") else None


def _absolute(reference: str) -> str:
    file = _file_of(reference)
    return reference if file is None else str(file.resolve()) + reference[len(str(file)) :]


def _content_hash(reference: str) -> str:
    """Of the spec file; "" for a shipped operation."""
    file = _file_of(reference)
    if file is None:
        return ""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InvalidSpec(f"the spec file {file} cannot be read: {error.strerror}") from None
