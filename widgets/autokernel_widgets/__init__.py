"""What a notebook shows of a run: widgets built on its folder, so that they work while any process drives it.

    from autokernel_widgets import Workbench

    Workbench("runs/rmsnorm-1")              # all of it on one page
    EvidenceCard("runs/rmsnorm-1")           # or a part: the card of the experiment that waits
    Workbench("campaigns/campaign-1")        # a campaign: its board, and the run of the chosen target
    AmdahlRanking("profile.json")            # a profiled model: what is worth working on

In a notebook each widget follows its run by itself.  Nothing in `autokernel` imports this package.
"""

from autokernel_widgets.agent_trace import AgentTrace
from autokernel_widgets.amdahl_ranking import AmdahlRanking
from autokernel_widgets.campaign_board import CampaignBoard
from autokernel_widgets.diff_view import DiffView
from autokernel_widgets.evidence_card import EvidenceCard
from autokernel_widgets.history import History
from autokernel_widgets.roofline import Roofline
from autokernel_widgets.speedup_chart import SpeedupChart
from autokernel_widgets.workbench import Workbench

__all__ = [
    "AgentTrace",
    "AmdahlRanking",
    "CampaignBoard",
    "DiffView",
    "EvidenceCard",
    "History",
    "Roofline",
    "SpeedupChart",
    "Workbench",
]
