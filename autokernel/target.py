"""target.toml: what a run optimises, on what, and how it is decided; written once, read by all.

The operation, its sizes and the device must not change within a run, or its experiments could not
be compared; who decides (``approval``), who proposes (``agent``) and ``[policy]`` may be edited.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autokernel.errors import RunDamaged, UsageError
from autokernel.policy import PolicySettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FILE", "Target", "Timing", "toml_value"]

FILE = "target.toml"
_APPROVALS = ("auto", "approve")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """One set of sizes that candidates are timed on.

    Attributes:
        shape: Sizes by name.
        options: Keyword arguments of ``kernel_fn``.
        weight: Share of the model's time that it stands for; only ratios matter.
        layout: How the inputs lie in memory, such as ``permuted`` or ``transposed:1``; see
            `autokernel.verifier.layouts`.
        model_us: Microseconds that one such call takes in the model as it is, or None if nobody measured it.
    """

    shape: Mapping[str, int]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    layout: str = "contiguous"
    model_us: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The content of target.toml.

    Attributes:
        reference: The operation as `autokernel.ops.resolve` takes it.
        operation: Its name, which a kernel states as ``KERNEL_TYPE``.
        tag: The run's name; the branch is ``autokernel/<tag>``.
        backend: ``triton``, ``cuda`` or ``cpp``.
        device: ``cpu`` or ``cuda`` or ``cuda:<index>``.
        dtype: Of the timing cases.
        timing: The timing cases.
        agent: Who proposes.
        approval: ``auto`` (the policy decides) or ``approve`` (a person does).
        compiled: Time ``torch.compile`` beside the others.
        policy: The policy's settings.
    """

    reference: str
    operation: str
    tag: str
    backend: str
    device: str
    dtype: str
    timing: tuple[Timing, ...]
    agent: str = "search"
    approval: str = "auto"
    compiled: bool = False
    policy: PolicySettings = dataclasses.field(default_factory=PolicySettings)

    def __post_init__(self) -> None:
        if self.approval not in _APPROVALS:
            raise UsageError(f"approval is {self.approval!r}; use {' or '.join(map(repr, _APPROVALS))}")

    @property
    def branch(self) -> str:
        return f"autokernel/{self.tag}"

    @property
    def subject(self) -> dict[str, Any]:
        """What must not change within a run."""
        names = ("reference", "operation", "tag", "backend", "device", "dtype", "timing")
        return {name: getattr(self, name) for name in names}

    def to_toml(self) -> str:
        """The text of target.toml."""
        names = ("reference", "operation", "tag", "backend", "device", "dtype", "agent", "approval", "compiled")
        lines = ["# What this run optimises.  agent, approval and [policy] may be edited; the rest belongs to the run."]
        lines += [f"{name} = {toml_value(getattr(self, name))}" for name in names]
        for case in self.timing:
            lines += ["", "[[timing]]", f"shape = {toml_value(case.shape)}"]
            lines += [f"options = {toml_value(case.options)}"] if case.options else []
            lines += [f"layout = {toml_value(case.layout)}"] if case.layout != "contiguous" else []
            lines += [f"weight = {toml_value(float(case.weight))}"]
            if case.model_us is not None:
                lines += [f"model_us = {toml_value(float(case.model_us))}  # of one such call in the model as it was"]
        lines += ["", "[policy]  # a limit that is commented out does not apply"]
        for field in dataclasses.fields(self.policy):
            value = getattr(self.policy, field.name)
            lines.append(f"# {field.name} = " if value is None else f"{field.name} = {toml_value(value)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, where: object = FILE) -> Target:
        """Read a target.toml.

        Raises:
            RunDamaged: It is no TOML, or lacks something, or a value is of the wrong kind.
        """
        try:
            data = tomllib.loads(text)
            settings = PolicySettings(**{"plateau": None, "near_peak": None, **data.pop("policy", {})})
            timing = tuple(Timing(**case) for case in data.pop("timing"))
            target = cls(timing=timing, policy=settings, **data)
        except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise RunDamaged(
                f"{where} cannot be read ({error}); correct it: `git diff {FILE}` shows what changed"
            ) from None
        if not timing:
            raise RunDamaged(f"{where} names no [[timing]] case; put it back from git")
        return target

    @classmethod
    def load(cls, folder: Path) -> Target:
        """Read the target.toml of a run folder.

        Raises:
            UsageError: The folder is no run.
            RunDamaged: The file cannot be read.
        """
        path = folder / FILE
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"{folder} is no run: it has no {FILE}; create one with `autokernel new`") from None
        except UnicodeDecodeError as error:
            raise RunDamaged(f"{path} is no UTF-8 text: {error}; put it back from git") from None
        return cls.from_toml(text, path)


def toml_value(value: Any) -> str:
    """A number, a text, a list or a mapping as TOML.

    Raises:
        UsageError: It is none of these.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    raise UsageError(
        f"{value!r} of type {type(value).__name__} cannot be written to {FILE}; use numbers, text or lists"
    )
