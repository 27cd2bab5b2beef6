"""Where a model's time goes, what it would be if some of it were faster, and from there to a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import traitlets

from autokernel_widgets.amdahl_chart import AmdahlChart
from autokernel_widgets.panel import with_html
from autokernel_widgets.ranking_table import RankingTable
from autokernel_widgets.report_source import ReportSource
from autokernel_widgets.sliders import Sliders
from autokernel_widgets.what_if import Choice
from autokernel_widgets.what_if_panel import Plan
from autokernel_widgets.workbench import Workbench

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport

__all__ = ["AmdahlRanking"]


class AmdahlRanking(ipywidgets.VBox):
    """The operations of a profiled model in the order to work in, with what-ifs and a way to a campaign.

    A table with a box for each target, a chart, a slider for each chosen target with the speedup of the model that
    Amdahl's law predicts, and a button that makes a campaign of the chosen targets (a run, if it is one).

    Args:
        report: A `ProfileReport`, or the path of a saved one.  If it cannot be read, the widget says why.
        campaigns, runs: Folders in which the button makes campaigns and runs.
        device, agent: As for `Campaign.create`.
        live: Follow the profile's file by itself.

    Attributes:
        speedups: The chosen targets with the speedups that are tried out, as `ProfileReport.what_if` takes them.
        made: The folder of the campaign or run that was made last, or "".
        table, chart, sliders, plan: The parts.
    """

    speedups: traitlets.Dict[str, float] = traitlets.Dict()
    made = traitlets.Unicode("")

    def __init__(
        self,
        report: ProfileReport | str | Path,
        *,
        campaigns: str | Path = "campaigns",
        runs: str | Path = "runs",
        device: str = "auto",
        agent: str = "auto",
        live: bool = True,
    ) -> None:
        source, self._live = ReportSource(report), live
        self._source, self._choice = source, Choice(source)
        self.table = RankingTable(source, self._choice, live=live)
        self.chart = AmdahlChart(source, self._choice, live=live)
        options = {"campaigns": campaigns, "runs": runs, "device": device, "agent": agent}
        self.plan = Plan(source, self._choice, options, self._show_made, live=live)
        self.sliders = Sliders(source, self._choice, self.table._in_loop)
        self._below = ipywidgets.VBox()
        super().__init__()
        self._lay_out()
        self.table.observe(lambda change: self._lay_out(), "readable")
        traitlets.link((self._choice, "speedups"), (self, "speedups"))

    def choose(self, speedups: Mapping[str, float]) -> None:
        """Choose exactly these targets, each with a speedup to try out.

        Raises:
            UsageError: The profile has no such target, or a speedup is below 1.
            Unreadable: The profile cannot be read.
        """
        self._choice.put(dict(speedups))

    @property
    def predicted(self) -> float:
        """The speedup of the model's device time with the chosen targets as fast as they are set (Amdahl)."""
        return self._choice.predict().speedup

    @property
    def parts(self) -> tuple[Any, ...]:
        """The widgets that follow the profile."""
        return self.table, self.chart, self.plan

    def refresh(self) -> bool:
        """Show what the profile says now; True if that differed from what was shown."""
        changed = [part.refresh() for part in self.parts]
        return any(changed)

    def close(self) -> None:
        """Remove the widgets and stop following."""
        for part in self.parts:
            part.unfollow()
            part.close()
        self.sliders.close()
        for part in self._below.children:
            part.close()
        super().close()

    def _lay_out(self) -> None:
        whole = (self.table, self.chart, self.sliders, self.plan, self._below)
        self.children = whole if self.table.readable else whole[:1]

    def _show_made(self, folder: Path) -> None:
        for part in self._below.children:
            part.close()
        self._below.children = [Workbench(folder, live=self._live)]
        self.made = str(folder)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_html(super()._repr_mimebundle_(**options), self._static)

    def _static(self) -> str:
        shown = (self.table, self.plan) if self.table.readable and self._choice.speedups else (self.table,)
        return "".join(part._repr_mimebundle_()[0]["text/html"] for part in shown)
