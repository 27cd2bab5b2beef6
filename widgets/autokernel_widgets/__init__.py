"""What a notebook shows of a run: widgets built on the run folder, so that they work while any process drives it.

    from autokernel_widgets import History, SpeedupChart

    chart = SpeedupChart("runs/rmsnorm-1")
    chart                                    # the last expression of a cell shows it
    task = asyncio.create_task(chart.follow())  # and this keeps it up to date

Nothing in `autokernel` imports this package.
"""

from autokernel_widgets.history import History
from autokernel_widgets.speedup_chart import SpeedupChart

__all__ = ["History", "SpeedupChart"]
