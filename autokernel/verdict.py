"""What the verifier found out about one candidate: stages, cases, findings, verdict.

Plain data, written as JSON and read back.  Pass, fail and *not tested* (``skip``) are three states.
How the judgement is made is the verifier's business.

Units: seconds; errors in the unit of the output, and in ulp of its dtype.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

__all__ = ["CaseResult", "Finding", "Stage", "StageResult", "Status", "Verdict"]


class Stage(str, enum.Enum):
    """The five verification stages, in the order in which they run."""

    SMOKE = "smoke"
    SWEEP = "sweep"
    STABILITY = "stability"
    DETERMINISM = "determinism"
    EDGE = "edge"


class Status(str, enum.Enum):
    """The state of a case or of a stage."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case of one stage.

    Attributes:
        label: The case in one line (`Case.label`).
        status: pass, fail, skip (not tested), timeout or crash.
        reason: What a person needs to know about a state other than pass: which element, what was
            got, what was expected, the bound; or why it was not tested.
        max_error: Largest absolute difference from the golden value, wherever it is.
        bound: The bound at the element where the error is the largest part of its bound.
        error_over_bound: The largest ratio of error to bound; above 1 is a failure.
        max_ulp: Largest difference in ulp of the output's dtype.
        mismatched: How many elements are outside their bound.
        elements: How many elements were compared.
        seconds: What the case took, golden values included.
    """

    label: str
    status: Status
    reason: str = ""
    max_error: float | None = None
    bound: float | None = None
    error_over_bound: float | None = None
    max_ulp: float | None = None
    mismatched: int | None = None
    elements: int | None = None
    seconds: float = 0.0

    @property
    def error(self) -> float | None:
        """The absolute difference at the element that ``bound`` and ``error_over_bound`` are of."""
        if self.bound is None or self.error_over_bound is None:
            return None
        return self.error_over_bound * self.bound


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageResult:
    """One stage with its cases.  ``skip`` means that none of its cases could be tested."""

    name: Stage
    status: Status
    seconds: float = 0.0
    cases: tuple[CaseResult, ...] = ()

    @property
    def first_failure(self) -> CaseResult | None:
        """The first case that did not pass and was not skipped, or None."""
        return next((case for case in self.cases if case.status not in (Status.PASS, Status.SKIP)), None)


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is wrong with a candidate whatever its values: a cheat, a leak, a trespass.

    Attributes:
        kind: A short name such as ``input_mutated`` or ``library_call``.
        evidence: What was seen, in a sentence.
    """

    kind: str
    evidence: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement of one candidate.

    Attributes:
        accepted: True only if every stage passed (or was skipped after the smoke stage passed)
            and there is no finding.
        stages: The stages that were reached, in order.
        findings: Results of the integrity checks; any one of them rejects.
        device: The device in words.
        seconds: The whole verification.
        error: Why the candidate could not be run at all (syntax error, import error, crash), or "".
        details: Facts for the record: seed, versions, harness hash, isolation level.
    """

    accepted: bool
    stages: tuple[StageResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    device: str = ""
    seconds: float = 0.0
    error: str = ""
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def failed_stage(self) -> Stage | None:
        """The first stage that did not pass and was not skipped, or None."""
        bad = (stage.name for stage in self.stages if stage.status not in (Status.PASS, Status.SKIP))
        return next(bad, None)

    @property
    def correctness(self) -> str:
        """PASS, FAIL, TIMEOUT or CRASH, as results.tsv writes it."""
        if self.accepted:
            return "PASS"
        statuses = {stage.status for stage in self.stages}
        for status in (Status.TIMEOUT, Status.CRASH):
            if status in statuses:
                return status.name
        return "FAIL"

    @property
    def skipped(self) -> tuple[CaseResult, ...]:
        """The cases that were not tested."""
        return tuple(case for stage in self.stages for case in stage.cases if case.status is Status.SKIP)

    @property
    def reason(self) -> str:
        """Why the candidate was rejected: the failed case, if any, then the findings; "" for an accepted one."""
        if self.accepted:
            return ""
        failures = [(stage.name.value, stage.first_failure) for stage in self.stages]
        parts = [f"{name}: {failure.label}: {failure.reason}" for name, failure in failures if failure is not None][:1]
        if self.error:
            parts = [self.error]
        parts += [f"{finding.kind}: {finding.evidence}" for finding in self.findings]
        return "; ".join(parts) or "no stage was reached"

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON-ready data; the form that ``autokernel verify --json`` prints."""
        stages = []
        for stage in self.stages:
            cases = [{**dataclasses.asdict(case), "status": case.status.value} for case in stage.cases]
            stages.append(
                {"name": stage.name.value, "status": stage.status.value, "seconds": stage.seconds, "cases": cases}
            )
        return {
            "verdict": "accept" if self.accepted else "reject",
            "reason": self.reason,
            "stages": stages,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "device": self.device,
            "seconds": self.seconds,
            "error": self.error,
            "details": dict(self.details),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """Read back what `to_dict` made."""
        stages = tuple(
            StageResult(
                name=Stage(stage["name"]),
                status=Status(stage["status"]),
                seconds=stage["seconds"],
                cases=tuple(CaseResult(**{**case, "status": Status(case["status"])}) for case in stage["cases"]),
            )
            for stage in data["stages"]
        )
        return cls(
            accepted=data["verdict"] == "accept",
            stages=stages,
            findings=tuple(Finding(**finding) for finding in data["findings"]),
            device=data["device"],
            seconds=data["seconds"],
            error=data.get("error", ""),
            details=data.get("details", {}),
        )
