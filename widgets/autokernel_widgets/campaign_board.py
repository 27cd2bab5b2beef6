"""A campaign on a board: each target's progress, what is next and why; and below, the run of the chosen target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import traitlets

from autokernel_widgets.campaign_overview import CampaignOverview
from autokernel_widgets.campaign_source import CampaignSource
from autokernel_widgets.following import RunSource, Unreadable
from autokernel_widgets.history import History
from autokernel_widgets.panel import with_html
from autokernel_widgets.speedup_chart import SpeedupChart

if TYPE_CHECKING:
    from autokernel.campaign import Campaign

__all__ = ["CampaignBoard"]


class CampaignBoard(ipywidgets.VBox):
    """A campaign, driven here, in another process or by nobody; a click on a target shows its run.

    Args:
        campaign: A `Campaign`, which a Start in this notebook drives, or the path of its folder.  If it cannot be
            read, the widget says why.
        experiments: How many a Start makes, over all targets.
        place: Where a Start runs: ``detached`` (a process that outlives the notebook) or ``notebook``.
        page: Makes what is shown of a run, of its path; a chart and a history when None.
        live: Follow the campaign by itself.

    Attributes:
        overview: The board.
        chosen: The name of the target whose run is shown.
        page: What is shown of that run, or None.
    """

    chosen = traitlets.Unicode("")

    def __init__(
        self,
        campaign: Campaign | CampaignSource | str | Path,
        *,
        experiments: int = 20,
        place: str = "detached",
        page: Callable[[Path], Any] | None = None,
        live: bool = True,
    ) -> None:
        self._source = CampaignSource.of(campaign)
        self._make_page = page or (lambda path: RunPage(path, live=live))
        self._pages: dict[str, Any] = {}
        self._live = live
        self.page: Any = None
        self.overview = CampaignOverview(self._source, experiments=experiments, place=place, live=live)
        super().__init__()
        self._lay_out()
        self.overview.observe(lambda change: self._lay_out(), ["chosen", "readable"])

    def choose(self, name: str) -> None:
        """Show a target's run, and stay there.

        Raises:
            UsageError: The campaign has no such target.
            Unreadable: The campaign cannot be read.
        """
        self.overview.choose(name)

    def refresh(self) -> bool:
        """Show what the campaign's folder holds now; True if that differed from what was shown."""
        changed = self.overview.refresh()
        return (self.page is not None and self.page.refresh()) or changed

    def close(self) -> None:
        """Remove the widgets and stop following; the campaign goes on."""
        if hasattr(self, "overview"):  # else the constructor raised
            self.overview.unfollow()
            self.overview.close()
            for page in self._pages.values():
                page.close()
        super().close()

    def _lay_out(self) -> None:
        """The board, and below it the page of the chosen run; pages that are not seen do not follow their run."""
        page = self._page_of(self.overview.chosen) if self.overview.readable else None
        if page is not self.page:
            if self.page is not None:
                _unfollow(self.page)
            if page is not None and any(getattr(part, "_task", None) is None for part in page.parts):
                _follow(page, self._live)
            self.page = page
        self.children = (self.overview,) if page is None else (self.overview, page)
        self.chosen = self.overview.chosen if page is not None else ""

    def _page_of(self, name: str) -> Any:
        if name and name not in self._pages:
            try:
                path = self._source.campaign().runs[name].path
            except (Unreadable, KeyError):
                return None  # then the overview says so
            self._pages[name] = self._make_page(path)
        return self._pages.get(name)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_html(super()._repr_mimebundle_(**options), self._static)

    def _static(self) -> str:
        return "".join(part._repr_mimebundle_()[0]["text/html"] for part in self.children)


class RunPage(ipywidgets.VBox):
    """The chart and the history of one run, linked.

    Args:
        run: The path of the run's folder.
        live: Follow the run by itself.
    """

    selected = traitlets.Int(-1)

    def __init__(self, run: Path, *, live: bool = True) -> None:
        source: Any = RunSource.of(run)
        self.chart = SpeedupChart(source, live=live)
        self.history = History(source, live=live)
        self.parts = (self.chart, self.history)
        super().__init__(self.parts)
        for part in self.parts:
            traitlets.link((self, "selected"), (part, "selected"))

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        changed = [part.refresh() for part in self.parts]
        return any(changed)

    def close(self) -> None:
        """Remove the widgets and stop following."""
        for part in self.parts:
            part.unfollow()
            part.close()
        super().close()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_html(super()._repr_mimebundle_(**options), self._static)

    def _static(self) -> str:
        return "".join(part._repr_mimebundle_()[0]["text/html"] for part in self.parts)


def _unfollow(page: Any) -> None:
    for part in page.parts:
        part.unfollow()


def _follow(page: Any, live: bool) -> None:
    for part in page.parts:
        part.refresh()
        part._begin(live)
