"""A run as plain files: read like the run, without its repository."""

from __future__ import annotations

import shutil

import pytest

from autokernel.agents.replay import ReplayAgent
from autokernel.archive import write_archive
from autokernel.cli.app import main
from autokernel.errors import RunDamaged, UsageError
from autokernel.recorder import Recorder
from autokernel.runfolder import RunFolder
from tests.recorded_run import record_run


@pytest.fixture
def run(tmp_path):
    return RunFolder(record_run(tmp_path / "rmsnorm-1"))


def test_it_is_read_like_the_run(run, tmp_path):
    folder = RunFolder(write_archive(run, tmp_path / "published" / "rmsnorm"))

    assert not (folder.path / ".git").exists()
    assert folder.experiments == run.experiments and folder.target == run.target
    assert folder.paths.results.read_text() == run.paths.results.read_text()
    for number in range(4):
        assert folder.source(number) == run.source(number)
        assert folder.judgement(number) == run.judgement(number)
    for against in ("parent", "starter", 3):
        old, new = (one.diff(2, against=against).splitlines() for one in (run, folder))
        assert [line for line in old if line[:6] != "index "] == new
    assert folder.diff(0) == ""


def test_it_survives_being_copied_and_lists_itself_on_the_command_line(run, tmp_path, capsys):
    assert main(["archive", str(run.path), str(tmp_path / "a")]) == 0
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(run.path)

    assert main(["log", str(tmp_path / "b")]) == 0
    assert main(["diff", str(tmp_path / "b"), "1"]) == 0
    assert "4 kernels" in (said := capsys.readouterr().out)
    assert "+LANES" in said.replace(" ", "") or "+#" in said.replace(" ", "")


def test_the_replay_agent_takes_its_kernels(run, tmp_path):
    ReplayAgent(write_archive(run, tmp_path / "a"))


def test_it_cannot_be_driven(run, tmp_path):
    folder = write_archive(run, tmp_path / "a")

    with pytest.raises(UsageError, match="is an archive, which can be read only.*--agent replay:"):
        Recorder(folder)


def test_what_cannot_be_archived_is_said(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(UsageError, match="full exists already and is not empty"):
        write_archive(run, tmp_path / "full")
    waiting = RunFolder(record_run(tmp_path / "waits", waiting=True))
    with pytest.raises(UsageError, match="experiment 4 of waits is not decided"):
        write_archive(waiting, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_kernel_that_is_gone_is_named(run, tmp_path):
    folder = write_archive(run, tmp_path / "a")
    (folder / "kernels" / "0002.py").unlink()

    with pytest.raises(RunDamaged, match=r"0002\.py"):
        RunFolder(folder).source(2)
