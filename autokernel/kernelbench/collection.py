"""A folder of problems that are worked on together: ``plan.json``, a spec file and a run for each problem.

::

    kernelbench/NAME/plan.json            what was asked for, and what was found out about each problem
                    specs/PROBLEM.py      the problem, and its KernelSpec
                    runs/PROBLEM/         a run, as `autokernel new` makes it
                    checks/PROBLEM.json   what the benchmark's own check says of the candidates

Problems are added one at a time, so that making a collection can be stopped and taken up again.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel import creation, files
from autokernel.errors import RunDamaged, UsageError
from autokernel.kernelbench.examine import Facts, Refused, examine, identifier
from autokernel.kernelbench.texts import spec_text, starter
from autokernel.policy import PolicySettings
from autokernel.runfolder import RunFolder

__all__ = ["FILE", "Collection", "Entry", "Settings", "find_problems"]

FILE = "plan.json"
_LEVEL = re.compile(r"level_?(\d+)$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What is asked of a collection.

    Attributes:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        backend: ``triton``, ``cuda`` or ``cpp``.
        dtype: What the problems compute in.
        agent: Who proposes.
        compiled: Time ``torch.compile`` too.
        library: PyTorch's operators may do the work of any candidate.
        most_mb: Largest inputs, weights and output of a call, in MB.
    """

    device: str
    backend: str
    dtype: str = "float32"
    agent: str = "auto"
    compiled: bool = True
    library: bool = False
    most_mb: float = 512.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One problem of a collection.

    Attributes:
        name: Of its spec, its run and its files.
        level: 1 to 4; 0 if its folder does not say.
        file: The problem file as it was found.
        refused: Why it cannot be judged, or "".
        facts: What was found out about it; None if it was refused.
    """

    name: str
    level: int
    file: str
    refused: str = ""
    facts: Facts | None = None


class Collection:
    """Opens a collection.

    Args:
        path: Its folder.

    Raises:
        UsageError: The folder is none.
        RunDamaged: Its plan cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        try:
            data = json.loads((self.path / FILE).read_text(encoding="utf-8"))
            self.settings = Settings(**data["settings"])
            self.entries = {one["name"]: _entry(one) for one in data["problems"]}
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"{path} holds no KernelBench problems; make it with `autokernel kernelbench new FOLDER`"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise RunDamaged(f"{self.path / FILE} cannot be read ({error}); make the collection anew") from None

    @classmethod
    def begin(cls, path: Path, settings: Settings) -> Collection:
        """Open a collection, or make an empty one; one that is there keeps its settings.

        Raises:
            UsageError: One is there, with other settings.
        """
        if (path / FILE).is_file():
            opened = cls(path)
            if opened.settings != settings:
                raise UsageError(f"{path} was made with other settings: {opened.settings}; choose another --name")
            return opened
        with files.writable(path):
            for folder in ("specs", "runs", "checks"):
                (path / folder).mkdir(parents=True, exist_ok=True)
        files.write_atomic(path / FILE, json.dumps({"settings": dataclasses.asdict(settings), "problems": []}))
        return cls(path)

    def add(self, problems: Sequence[Path], tell: Callable[[str], None]) -> Iterator[Entry]:
        """Examine problem files and make a run for each that can be judged; yields what became of each.

        Those that are there already are passed over.

        Args:
            problems: The files.
            tell: Told which problem comes next.
        """
        for file in problems:
            name = _name(file)
            if name in self.entries:
                continue
            tell(f"examining {file}")
            entry = self._examined(name, file)
            self.entries[name] = entry
            self._save()
            yield entry

    def spec(self, name: str) -> Path:
        """The spec file of a problem."""
        return self.path / "specs" / f"{name}.py"

    def run(self, name: str) -> RunFolder:
        """The run of a problem."""
        return RunFolder(self.path / "runs" / name)

    def problem_text(self, name: str) -> str:
        """The problem itself, without what was added to it."""
        return self.spec(name).with_suffix(".txt").read_text(encoding="utf-8")

    def checks(self, name: str) -> dict[int, dict[str, Any]]:
        """What the benchmark's own check says of a problem's experiments, by their numbers."""
        try:
            data = json.loads((self.path / "checks" / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # not made yet; or torn, and then it is made again
            return {}
        return {int(number): one for number, one in data.items()}

    def save_checks(self, name: str, checks: Mapping[int, Mapping[str, Any]]) -> None:
        """Write down what `checks` returns."""
        files.write_atomic(self.path / "checks" / f"{name}.json", json.dumps(checks, indent=1))

    def select(self, levels: Sequence[int] = (), names: Sequence[str] = ()) -> list[Entry]:
        """The problems of some levels whose names begin with, or contain, one of some words; all without either.

        Raises:
            UsageError: No problem is left.
        """
        chosen = [
            one
            for one in self.entries.values()
            if (not levels or one.level in levels) and (not names or any(word in one.name for word in names))
        ]
        if not chosen:
            raise UsageError(f"no problem of {self.path} is chosen; there are: {', '.join(self.entries) or 'none'}")
        return sorted(chosen, key=lambda one: (one.level, _number(one.name), one.name))

    def _examined(self, name: str, file: Path) -> Entry:
        level = _level(file)
        try:
            text = file.read_text(encoding="utf-8")
            facts = examine(
                text, str(file), name=name, device=self.settings.device, dtype=self.settings.dtype,
                most_bytes=int(self.settings.most_mb * 1e6),
            )  # fmt: skip
            self._make_run(name, text, facts)
        except (OSError, UnicodeDecodeError) as error:
            return Entry(name=name, level=level, file=str(file), refused=f"it cannot be read: {error}")
        except (Refused, UsageError) as error:
            return Entry(name=name, level=level, file=str(file), refused=" ".join(str(error).split()))
        return Entry(name=name, level=level, file=str(file), facts=facts)

    def _make_run(self, name: str, text: str, facts: Facts) -> None:
        spec, folder = self.spec(name), self.path / "runs" / name
        files.write_atomic(spec, spec_text(text, facts))
        files.write_atomic(spec.with_suffix(".txt"), text)
        if folder.exists():  # left by a kill between the run and the plan
            files.remove_tree(folder)
        settings = self.settings
        creation.create(
            str(spec), backend=settings.backend, device=settings.device, dtype=settings.dtype, shapes=None,
            root=folder.parent, name=name, agent=settings.agent, approval="auto", policy=PolicySettings(),
            start=starter(text, facts, settings.backend), compiled=settings.compiled,
        )  # fmt: skip

    def _save(self) -> None:
        problems = [dataclasses.asdict(one) for one in self.entries.values()]
        data = {"settings": dataclasses.asdict(self.settings), "problems": problems}
        files.write_atomic(self.path / FILE, json.dumps(data, indent=1))


def find_problems(folder: Path, levels: Sequence[int] = (), names: Sequence[str] = ()) -> list[Path]:
    """The problem files in a folder, by level and number: Python files in folders called ``level1`` and so on.

    In a folder without such folders, its own Python files.

    Args:
        folder: A clone of the benchmark, its folder ``KernelBench``, or one level.
        levels: Only these.
        names: Only files whose names contain one of these.

    Raises:
        UsageError: There is no such folder, or no problem is found.
    """
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is no folder; give the one that holds the problems, such as KernelBench")
    found = [one for one in folder.rglob("*.py") if _level(one)] or list(folder.glob("*.py"))
    chosen = [
        one
        for one in found
        if (not levels or _level(one) in levels)
        and (not names or any(word in one.stem for word in names))
        and not one.name.startswith(("_", "."))
    ]
    if not chosen:
        raise UsageError(f"no problem is found in {str(folder)!r}; expected files such as level1/1_name.py")
    return sorted(chosen, key=lambda one: (_level(one), _number(one.stem), one.stem))


def _level(file: Path) -> int:
    found = _LEVEL.search(file.resolve().parent.name)
    return int(found[1]) if found else 0


def _number(name: str) -> int:
    found = re.search(r"(?:^|level\d_)(\d+)", name)
    return int(found[1]) if found else 0


def _name(file: Path) -> str:
    stem = identifier(file.stem).strip("_").lower()
    level = _level(file)
    return f"level{level}_{stem}" if level else identifier(stem)


def _entry(data: dict[str, Any]) -> Entry:
    facts = data.pop("facts")
    return Entry(**data, facts=None if facts is None else Facts(**facts))
