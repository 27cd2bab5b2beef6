"""``--workers`` on the command line: a run and a campaign on two workers, and an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

pytest.importorskip("distributed", reason="needs autokernel[dask]")

from autokernel import results
from autokernel.runfolder import RunFolder
from tests.command_line import COMMAND, autokernel, environment
from tests.planting import needs_compiler
from tests.scripted import wait_for


def test_what_names_no_workers_is_one_message(tmp_path):
    autokernel("new", "rmsnorm", "--device", "cpu", "--root", tmp_path, "--name", "run")

    done = autokernel("run", tmp_path / "run", "--workers", "two")

    assert done.returncode == 2
    assert "workers 'two' are none; use local:N" in done.stderr
    assert "Traceback" not in done.stderr


@needs_compiler
@pytest.mark.thorough
def test_a_campaign_on_two_workers_works_on_two_targets_at_once(tmp_path):
    targets = ["--target", "rmsnorm=0.3", "--target", "softmax=0.2"]
    autokernel("campaign", "new", *targets, "--device", "cpu", "--root", tmp_path, "--name", "both")

    autokernel("campaign", "run", tmp_path / "both", "--experiments", 4, "--workers", "local:2", timeout=600)

    for name in ("rmsnorm-1", "softmax-1"):
        rows = results.load(tmp_path / "both" / "runs" / name / "results.tsv")
        assert [row.experiment for row in rows] == [0, 1, 2]
        assert all(row.worker.startswith("worker-") for row in rows)


@needs_compiler
@pytest.mark.thorough
def test_ctrl_c_ends_a_run_on_workers_in_one_line_and_leaves_no_process(tmp_path):
    autokernel("new", "rmsnorm", "--device", "cpu", "--root", tmp_path, "--name", "run")
    call = [*COMMAND, "run", str(tmp_path / "run"), "--workers", "local:2"]
    process = subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environment()
    )
    folder = RunFolder(tmp_path / "run")
    end = time.monotonic() + 240
    while len([one for one in folder.experiments if one.state.value == "proposed" and one.number > 0]) < 2:
        assert time.monotonic() < end, "no two experiments were proposed"
        time.sleep(0.1)

    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Traceback" not in output
    assert "nothing is lost, continue with: autokernel run" in output
    wait_for(
        lambda: (
            subprocess.run(["pgrep", "-g", str(process.pid)], stdout=subprocess.DEVNULL, check=False).returncode == 1
        ),
        seconds=30,
    )
