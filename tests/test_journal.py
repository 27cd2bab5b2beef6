from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from autokernel import files
from autokernel.errors import RunBusy, UsageError
from autokernel.events import Command, Commands, EventLog, EventReader
from autokernel.experiment import Experiment, State
from autokernel.journal import Journal, JournalReader, Records
from autokernel.measurement import Ratio


def test_an_experiment_is_read_back_as_it_was_written():
    experiment = Experiment(number=3, state=State.WAITING, findings=("a",), speedups={"pytorch": Ratio(1.0, 0.9, 1.1)})

    assert Experiment.from_dict(json.loads(json.dumps(experiment.to_dict()))) == experiment
    assert Experiment.from_dict({**experiment.to_dict(), "of_a_later_version": 1}) == experiment


def test_the_journal_adds_up_to_the_same_state_when_read_again(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("proposed", experiment=Experiment(number=0))
    journal.write("judging", number=0)
    journal.write("command", command="c1", name="pause")
    journal.write("command", command="c2", name="comment", text="hello")
    journal.write("command", command="c3", name="keep", experiment=4, refused="no")

    for state in (
        journal.state,
        Journal(tmp_path / "journal.jsonl").state,
        JournalReader(tmp_path / "journal.jsonl").state(),
    ):
        assert state.attempts == {0: 1}
        assert (state.paused, state.comments, state.commands) == (True, ["hello"], {"c1", "c2", "c3"})


def test_a_reader_follows_a_journal_and_notices_when_its_tail_was_cut(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal, reader = Journal(path), JournalReader(path)
    assert reader.state().experiments == {}
    journal.write("proposed", experiment=Experiment(number=0))
    assert list(reader.state().experiments) == [0]
    journal.write("proposed", experiment=Experiment(number=1))
    path.write_bytes(path.read_bytes() + b'{"kind": "pro')
    assert list(reader.state().experiments) == [0, 1]
    Journal(path).write("proposed", experiment=Experiment(number=2))
    assert list(reader.state().experiments) == [0, 1, 2]


def test_a_record_that_cannot_be_read_is_empty(tmp_path):
    records = Records(tmp_path)
    records.write(0, {"a": 1})
    (tmp_path / "1.json").write_text("{")

    assert (records.read(0), records.read(1), records.read(2)) == ({"a": 1}, {}, {})


def test_events_go_on_counting_behind_a_torn_line(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    assert [log.write("a"), log.write("progress", case=1)] == [1, 2]
    with open(path, "ab") as file:
        file.write(b'{"seq": 3, "ki')

    reader = EventReader(path)
    assert [event["seq"] for event in reader.after()] == [1, 2]
    assert EventLog(path).write("b") == 3
    assert [event["kind"] for event in reader.after(2)] == ["b"]
    assert [event["kind"] for event in reader.after(0)] == ["a", "progress", "b"]


def test_events_of_several_threads_are_whole_lines_with_numbers_of_their_own(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    threads = [
        threading.Thread(target=lambda: [log.write("progress", text="x" * 500) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [event["seq"] for event in EventReader(tmp_path / "events.jsonl").after()] == list(range(1, 201))


def test_commands_come_in_the_order_in_which_they_were_sent(tmp_path):
    commands = Commands(tmp_path / "commands")
    for text in "abc":
        commands.send(Command(kind="comment", data={"text": text}))
    (tmp_path / "commands" / "zz.json").write_text("{")

    waiting, problems = commands.waiting()
    assert [command.data["text"] for command in waiting] == ["a", "b", "c"]
    assert len(problems) == 1
    commands.discard(waiting[0])
    commands.discard(waiting[0])
    waiting, problems = commands.waiting()
    assert ([command.data["text"] for command in waiting], problems) == (["b", "c"], [])


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("explode", {}, "unknown command"),
        ("keep", {}, "needs 'experiment'"),
        ("keep", {"experiment": "3"}, "not an integer"),
        ("comment", {"text": 3}, "not text"),
        ("edit", {}, "needs 'source'"),
    ],
)
def test_a_command_that_lacks_something_is_refused_before_it_is_sent(kind, data, message):
    with pytest.raises(UsageError, match=message):
        Command(kind=kind, data=data)


def test_a_lock_says_who_holds_it_and_goes_with_its_process(tmp_path):
    path = tmp_path / "run" / ".autokernel" / "lock"
    path.parent.mkdir(parents=True)
    script = (
        "import sys; from pathlib import Path; from autokernel.files import RunLock;"
        "lock = RunLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=os.getcwd()
    )
    assert holder.stdout is not None
    holder.stdout.readline()

    with pytest.raises(RunBusy, match=f"process {holder.pid} on "):
        files.RunLock(path)
    assert (files.driver_of(path) or {})["pid"] == holder.pid
    holder.kill()
    holder.communicate()
    assert files.driver_of(path) is None
    files.RunLock(path).release()


def test_an_atomic_write_leaves_the_old_text_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_atomic(path, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(files.RunUnwritable, match="free some space"):
        files.write_atomic(path, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
