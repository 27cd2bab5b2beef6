"""A run, or a campaign of runs, on one page: drive it, watch it, look into each experiment, decide."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import traitlets

from autokernel.runfolder import RunFolder
from autokernel_widgets.agent_trace import AgentTrace
from autokernel_widgets.campaign_board import CampaignBoard
from autokernel_widgets.campaign_source import is_campaign
from autokernel_widgets.controls import Controls
from autokernel_widgets.evidence_card import EvidenceCard
from autokernel_widgets.following import RunSource
from autokernel_widgets.history import History
from autokernel_widgets.panel import with_html
from autokernel_widgets.roofline import Roofline
from autokernel_widgets.speedup_chart import SpeedupChart

if TYPE_CHECKING:
    from autokernel.campaign import Campaign
    from autokernel.session import Session

__all__ = ["Workbench"]


class Workbench(ipywidgets.VBox):
    """Everything about one run, linked: an experiment that is chosen anywhere is chosen everywhere.

    It is a window on the run folder and holds nothing of its own: close it, restart the notebook kernel,
    open a second one; all show the same run, and a decision that waits keeps waiting.

    Of a campaign, its board stands on top and the run of the chosen target below.

    Args:
        run: A run folder, its path, or a session, which is then driven in this notebook; or a campaign, or the
            path of its folder.
        experiments: How many a Start makes.
        place: Where a Start runs: ``detached`` (a process that outlives the notebook) or ``notebook``.
        live: Follow the run by itself.

    Attributes:
        controls, chart, history, card, roofline, trace: The parts; those of the chosen run, if it is a campaign.
        board: The board of the campaign, or None.
        selected: The experiment that is shown.
    """

    selected = traitlets.Int(-1)

    def __init__(
        self,
        run: RunFolder | Session | Campaign | str | Path,
        *,
        experiments: int = 20,
        place: str = "detached",
        live: bool = True,
    ) -> None:
        super().__init__()
        self.board: CampaignBoard | None = None
        options: dict[str, Any] = {"experiments": experiments, "place": place, "live": live}
        if is_campaign(run):
            self._open_campaign(run, options)
        else:
            self._open_run(run, experiments=experiments, place=place, live=live)

    def _open_campaign(self, campaign: Any, options: dict[str, Any]) -> None:
        self._link: Any = None
        self.board = CampaignBoard(campaign, page=lambda path: Workbench(path, **options), **options)
        self.children = (self.board,)
        self.board.observe(lambda change: self._take_parts(), "chosen")
        self._take_parts()

    def _take_parts(self) -> None:
        """The parts are those of the run that the board shows."""
        assert self.board is not None
        if self._link is not None:
            self._link.unlink()
            self._link = None
        page = self.board.page
        if page is not None:
            for name in ("controls", "chart", "history", "card", "roofline", "trace"):
                setattr(self, name, getattr(page, name))
            self._link = traitlets.link((page, "selected"), (self, "selected"))

    def _open_run(self, run: Any, *, experiments: int, place: str, live: bool) -> None:
        source: Any = RunSource.of(run)  # one for all parts, so that each file is read once
        self.chart = SpeedupChart(source, live=live)  # in the order in which a new experiment shows
        self.history = History(source, live=live)
        self.controls = Controls(source, experiments=experiments, place=place, live=live)
        self.card = EvidenceCard(source, live=live)
        self.roofline = Roofline(source, live=live)
        self.trace = AgentTrace(source, self.card.selected, live=live)
        for part, share in ((self.roofline, "3 1 380px"), (self.trace, "2 1 320px")):
            part.layout = ipywidgets.Layout(flex=share, min_width="0")
        beside = ipywidgets.Box(
            [self.roofline, self.trace], layout=ipywidgets.Layout(display="flex", flex_flow="row wrap")
        )
        self._page: tuple[Any, ...] = (self.controls, self.chart, self.history, self.card, beside)
        self._lay_out()
        self.controls.observe(lambda change: self._lay_out(), "readable")
        self.selected = self.card.selected
        for part in (self.controls, self.chart, self.history, self.roofline, self.trace):
            traitlets.link((self.card, "selected"), (part, "selected"))
        traitlets.link((self.card, "selected"), (self, "selected"))

    def _lay_out(self) -> None:
        """All parts; or, while the run cannot be read, the one sentence that says why."""
        self.children = self._page if self.controls.readable else self._page[:1]

    @property
    def parts(self) -> tuple[Any, ...]:
        """The widgets that follow the run, or the campaign and its chosen run."""
        if self.board is not None:
            return self.board.overview, *(self.board.page.parts if self.board.page is not None else ())
        return self.controls, self.chart, self.history, self.card, self.roofline, self.trace

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        if self.board is not None:
            return self.board.refresh()
        changed = [part.refresh() for part in self.parts]
        return any(changed)

    def close(self) -> None:
        """Remove the widgets and stop following; the run goes on."""
        if self.board is not None:
            self.board.close()
        for part in self.parts if self.board is None else ():
            part.unfollow()
            part.close()
        super().close()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_html(super()._repr_mimebundle_(**options), self._static)

    def _static(self) -> str:
        if self.board is not None:
            return self.board._static()
        shown = self._page[:4] if self.controls.readable else self._page[:1]
        return "".join(part._repr_mimebundle_()[0]["text/html"] for part in shown)
