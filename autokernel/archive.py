"""A finished run as plain files, to be published: rows, records, and each kernel's text, without the git repository.

An archive is read like a run (`RunFolder`, ``autokernel log``, ``show``, ``diff``, ``plot``, the widgets), and the
replay agent judges its kernels again.  It cannot be driven, because its history is gone: what was a commit is a
file ``kernels/<n>.py``.
"""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from autokernel.errors import RunDamaged, UsageError

if TYPE_CHECKING:
    from autokernel.runfolder import RunFolder

__all__ = ["ArchivedHistory", "write_archive"]

KERNELS = "kernels"


def write_archive(run: RunFolder, target: str | Path) -> Path:
    """Write ``run`` into the new folder ``target`` and return it.

    Args:
        run: One in which nothing is being judged and nothing waits.
        target: Must not exist, or be empty.

    Raises:
        UsageError: ``target`` holds files already, or an experiment is not decided.
        RunDamaged: A kernel is missing from the run's history.
    """
    folder = Path(target)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already and is not empty; name a new folder")
    if run.status.current is not None:
        number = run.status.current.number
        raise UsageError(f"experiment {number} of {run.path.name} is not decided; decide it or let the run go on first")
    sources = {one.number: run.source(one.number) for one in run.experiments}
    (folder / KERNELS).mkdir(parents=True)
    for name in ("target.toml", "results.tsv", "kernel.py"):
        shutil.copyfile(run.path / name, folder / name)
    inner = folder / run.paths.inner.name
    inner.mkdir()
    shutil.copyfile(run.paths.journal, inner / run.paths.journal.name)
    if run.paths.records.exists():
        shutil.copytree(run.paths.records, inner / run.paths.records.name)
    for number, source in sources.items():
        _kernel_file(folder, number).write_text(source, encoding="utf-8")
    return folder


def _kernel_file(folder: Path, number: int) -> Path:
    return folder / KERNELS / f"{number:04d}.py"


class ArchivedHistory:
    """Reads kernels where `autokernel.history.History` reads commits.

    Args:
        folder: An archive.
        numbers: The experiment of each commit.
    """

    def __init__(self, folder: Path, numbers: dict[str, int]) -> None:
        self._folder = folder
        self._numbers = numbers

    @staticmethod
    def is_at(folder: Path) -> bool:
        """Whether ``folder`` is an archive."""
        return (folder / KERNELS).is_dir() and not (folder / ".git").exists()

    def source(self, commit: str) -> str:
        """The kernel that was committed as ``commit``.

        Raises:
            RunDamaged: Its file is gone.
        """
        if commit not in self._numbers:
            raise RunDamaged(f"the archive {self._folder} has no kernel of commit {commit[:12]}")
        file = _kernel_file(self._folder, self._numbers[commit])
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise RunDamaged(f"the archive {self._folder} lacks a kernel: {error}") from None

    def diff(self, old: str, new: str) -> str:
        """The unified diff between the kernels of two commits, as git would write it; "" if they are equal."""
        before, after = self.source(old).splitlines(keepends=True), self.source(new).splitlines(keepends=True)
        lines = list(difflib.unified_diff(before, after, "a/kernel.py", "b/kernel.py"))
        lines = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
        return "".join(["diff --git a/kernel.py b/kernel.py\n", *lines]) if lines else ""
