"""A profile as widgets read it: a report at hand, or the file of one that was saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autokernel import __version__
from autokernel.errors import AutokernelError
from autokernel.plaintext import clean
from autokernel_widgets.following import RunSource, Unreadable

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport

__all__ = ["ReportSource"]

_Result = TypeVar("_Result")


class ReportSource(RunSource):
    """A profile report; a file is read again when it changes.

    Args:
        report: A `ProfileReport`, or the path of one that `ProfileReport.save` wrote.  Nothing is read yet.
    """

    def __init__(self, report: ProfileReport | str | Path) -> None:
        given: Any = report if hasattr(report, "what_if") and hasattr(report, "targets") else None
        super().__init__("." if given is not None else report)  # type: ignore[arg-type]
        self._given = given
        self._read: tuple[object, Any] = (None, None)

    @property
    def name(self) -> str:
        """The model's name, or the file's."""
        return str(self._given.model) if self._given is not None else self.path.name

    def report(self) -> ProfileReport:
        """The report.

        Raises:
            Unreadable: The file is missing or no report, or the report has no targets.
        """
        report: ProfileReport = self._given if self._given is not None else self.guard(self._loaded)
        if not report.targets:
            raise Unreadable(
                f"the profile of {clean(report.model)} has no targets: no operator of the model took any time on its "
                "inputs; profile it with inputs that reach its layers"
            )
        return report

    def _loaded(self) -> ProfileReport:
        from autokernel.profiling import ProfileReport

        seen = self.fingerprint()
        if self._read[0] != seen or self._read[1] is None:
            self._read = seen, ProfileReport.load(self.path)
        loaded: ProfileReport = self._read[1]
        return loaded

    def guard(self, make: Callable[[], _Result]) -> _Result:
        """Return what ``make`` makes of the report.

        Raises:
            Unreadable: It holds something else than this version expects.
        """
        try:
            return make()
        except AutokernelError as error:
            raise Unreadable(clean(error)) from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise Unreadable(
                f"the profile {self.name} cannot be shown by AutoKernel {__version__} ({type(error).__name__}: "
                f"{clean(error)}); it may be damaged, or be of a newer version; profile the model again"
            ) from None

    def fingerprint(self) -> tuple[object, ...]:
        """Differs when the file may have changed."""
        if self._given is not None:
            return ()
        try:
            stat = self.path.stat()
        except OSError:
            return ("missing",)
        return stat.st_size, stat.st_mtime_ns, stat.st_ino
