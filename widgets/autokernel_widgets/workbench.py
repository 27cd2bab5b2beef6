"""A run on one page: drive it, watch it, look into each experiment, decide."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import traitlets

from autokernel.runfolder import RunFolder
from autokernel_widgets.agent_trace import AgentTrace
from autokernel_widgets.controls import Controls
from autokernel_widgets.evidence_card import EvidenceCard
from autokernel_widgets.following import RunSource
from autokernel_widgets.history import History
from autokernel_widgets.panel import with_html
from autokernel_widgets.roofline import Roofline
from autokernel_widgets.speedup_chart import SpeedupChart

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["Workbench"]


class Workbench(ipywidgets.VBox):
    """Everything about one run, linked: an experiment that is chosen anywhere is chosen everywhere.

    It is a window on the run folder and holds nothing of its own: close it, restart the notebook kernel,
    open a second one; all show the same run, and a decision that waits keeps waiting.

    Args:
        run: A run folder, its path, or a session, which is then driven in this notebook.
        experiments: How many a Start makes.
        place: Where a Start runs: ``detached`` (a process that outlives the notebook) or ``notebook``.
        live: Follow the run by itself.

    Attributes:
        controls, chart, history, card, roofline, trace: The parts.
        selected: The experiment that is shown.
    """

    selected = traitlets.Int(-1)

    def __init__(
        self,
        run: RunFolder | Session | str | Path,
        *,
        experiments: int = 20,
        place: str = "detached",
        live: bool = True,
    ) -> None:
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
        self._page = (self.controls, self.chart, self.history, self.card, beside)
        super().__init__()
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
        """The widgets that follow the run."""
        return self.controls, self.chart, self.history, self.card, self.roofline, self.trace

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        changed = [part.refresh() for part in self.parts]
        return any(changed)

    def close(self) -> None:
        """Remove the widgets and stop following; the run goes on."""
        for part in self.parts:
            part.unfollow()
            part.close()
        super().close()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_html(super()._repr_mimebundle_(**options), self._static)

    def _static(self) -> str:
        shown = self._page[:4] if self.controls.readable else self._page[:1]
        return "".join(part._repr_mimebundle_()[0]["text/html"] for part in shown)
