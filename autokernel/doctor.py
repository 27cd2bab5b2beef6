"""What this machine has, what it lacks, and how to get that: ``autokernel doctor``.

    report = diagnose()
    print(render(report))

Each check stands alone: a missing package, a broken driver or a read-only folder is a line of the
report and never an exception.  Runs as ``python -m autokernel.doctor [--json]`` too, where the command
line's own packages are missing.

Takes a few seconds, because it measures the device (unless its figures are cached) and runs one kernel
in Triton's interpreter.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from autokernel import doctor_checks as checks
from autokernel.doctor_checks import Check

__all__ = ["Check", "Report", "diagnose", "render"]


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of all checks.

    Attributes:
        checks: In the order in which a person reads them: device first.
        roofline: `autokernel.hardware.Roofline.to_dict` of the device, or None if it cannot be measured.
    """

    checks: tuple[Check, ...]
    roofline: dict[str, Any] | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """What is missing and needed by every run: PyTorch, a device, git and one of the backends."""
        missing = [check.name for check in self.checks if check.status == "missing"]
        backends = ("triton", "c++ compiler", "cuda compiler")
        without_backend = all(name in missing for name in backends)
        return tuple(
            name for name in missing if name in ("torch", "device", "git") or (without_backend and name in backends)
        )

    @property
    def ready(self) -> bool:
        """True if a run can start: nothing is `needed`."""
        return not self.needed

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data: ``{"ready", "checks": [{"name", "status", "value", "fix"}], "roofline"}``."""
        return {
            "ready": self.ready,
            "checks": [dataclasses.asdict(check) for check in self.checks],
            "roofline": self.roofline,
        }

    def __str__(self) -> str:
        return render(self)


def diagnose(device: str = "auto") -> Report:
    """Look at this machine.

    Args:
        device: The device to describe and measure, as for `autokernel.hardware.detect`.
    """
    found: list[Check] = [*_run("python", checks.python), *_run("torch", checks.torch)]
    roofline: dict[str, Any] | None = None

    def device_checks() -> Iterable[Check]:
        nonlocal roofline
        from autokernel import hardware

        line = hardware.roofline(device)
        roofline = line.to_dict()
        return checks.device(line)

    found += _run("device", device_checks)
    for name, check in (
        ("triton", checks.triton),
        ("c++ compiler", checks.cpp),
        ("cuda compiler", checks.cuda),
        ("git", checks.git),
        ("llm key", checks.llm_key),
        ("notebooks", checks.notebooks),
        ("figures", checks.figures),
        ("isolation", checks.isolation),
        ("cache", checks.cache),
    ):
        found += _run(name, check)
    return Report(tuple(found), roofline)


def _run(name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """Run one group of checks; what it raises becomes its line."""
    try:
        return list(check())
    except Exception as error:  # a report that stops at the first broken thing would be no report
        text = " ".join(str(error).split()) or type(error).__name__
        return [Check(name, "missing", text, getattr(error, "fix", ""))]


def render(report: Report, *, color: bool = False, width: int = 110) -> str:
    """The report as text for a terminal.

    Args:
        report: What `diagnose` returned.
        color: Colour the states, if the package rich is installed.
        width: Columns to wrap at.
    """
    name_width = max(len(check.name) for check in report.checks)
    lines = []
    for check in report.checks:
        head = f"{check.status:<8}{check.name:<{name_width + 2}}"
        indent = " " * len(head)
        # A fix is on lines of its own and not broken where it can be helped: it may be pasted into a shell.
        text = textwrap.wrap(check.value, max(20, width - len(head)), break_on_hyphens=False) or [""]
        fix = textwrap.wrap(f"-> {check.fix}", max(20, width - len(head)), break_on_hyphens=False) if check.fix else []
        lines += [head + text[0], *(indent + line for line in (*text[1:], *fix))]
    lines += ["", "ready" if report.ready else f"not ready: {', '.join(report.needed)} missing"]
    return _colored(lines) if color else "\n".join(lines)


def _colored(lines: list[str]) -> str:
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return "\n".join(lines)
    styles = {"ok": "green", "warn": "yellow", "missing": "red", "ready": "bold green", "not": "bold red"}
    console = Console(force_terminal=True, color_system="standard", width=10_000)
    with console.capture() as capture:
        for line in lines:
            text = Text(line)
            word = line.split(" ", 1)[0]
            text.stylize(styles.get(word, ""), 0, len(word))
            console.print(text, highlight=False)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _main(arguments: list[str]) -> int:
    if arguments not in ([], ["--json"]):
        print("usage: python -m autokernel.doctor [--json]", file=sys.stderr)
        return 2
    report = diagnose()
    if arguments:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        print(render(report, color=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    return 0 if report.ready else 1


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
