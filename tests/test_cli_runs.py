"""The command line around a run: what watches one, what decides in one, and one whole loop."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from autokernel.runfolder import RunFolder
from tests.command_line import COMMAND, autokernel, environment
from tests.recorded_run import HOSTILE, record_run


@pytest.fixture
def root(tmp_path):
    """A folder with one recorded run whose last experiment waits for a person."""
    record_run(tmp_path / "runs" / "rmsnorm-1", waiting=True)
    return tmp_path / "runs"


def commands_of(run):
    return [(command.kind, dict(command.data)) for command in RunFolder(run).waiting_commands]


def test_status_shows_counts_and_the_best_kernel_with_its_interval(root):
    done = autokernel("status", "--root", root)

    assert done.returncode == 0, done.stderr
    assert "1 kept, 1 reverted, 1 rejected" in done.stdout
    assert "1.300x (1.290 to 1.310) over PyTorch" in done.stdout


def test_status_as_json_holds_the_tally_and_the_best_experiment(root):
    status = json.loads(autokernel("status", "rmsnorm-1", "--root", root, "--json").stdout)

    assert status["tally"] == {"total": 3, "kept": 1, "reverted": 1, "rejected": 1}
    assert status["best"]["number"] == 1
    assert status["current"]["state"] == "waiting"


def test_watching_a_run_does_not_import_torch(root):
    program = (
        "import sys\nfrom autokernel.cli import main\n"
        f"main(['log', '--root', {str(root)!r}])\nmain(['status', '--root', {str(root)!r}])\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, timeout=120)

    assert done.returncode == 0


def test_log_has_a_row_per_experiment(root):
    experiments = json.loads(autokernel("log", "--root", root, "--json").stdout)

    assert [experiment["number"] for experiment in experiments] == [0, 1, 2, 3, 4]
    assert [experiment["decision"] for experiment in experiments] == ["baseline", "keep", "revert", "revert", ""]


def test_an_agents_markup_and_escapes_are_shown_as_text(root):
    shown = autokernel("show", "2", "--root", root).stdout

    assert "\x1b" in HOSTILE
    assert "<script>alert(1)</script> [bold]LANES[/bold] 1 -> 8" in shown
    assert "\x1b" not in shown


def test_show_explains_a_rejected_experiment(root):
    shown = autokernel("show", "rmsnorm-1", "3", "--root", root).stdout

    assert "experiment 3: rejected" in shown
    assert "got nan, expected 0.25" in shown


def test_show_as_json_holds_the_whole_record(root):
    shown = json.loads(autokernel("show", "1", "--root", root, "--json").stdout)

    assert shown["decision"] == "keep"
    assert shown["record"]["verdict"]["verdict"] == "accept"
    assert shown["record"]["measurement"]["cases"][0]["method"] == "wall"


def test_diff_shows_what_an_experiment_changed_as_git_does(root):
    change = autokernel("diff", "1", "--root", root).stdout

    assert "-LANES = 1  # independent partial sums" in change
    assert "+LANES = 2  # independent partial sums" in change


def test_without_a_number_the_latest_experiment_is_meant_and_named(root):
    named, unnamed = autokernel("show", "rmsnorm-1", "--root", root), autokernel("show", "--root", root)
    change = autokernel("diff", "rmsnorm-1", "--root", root)

    assert named.stdout == unnamed.stdout == autokernel("show", "4", "--root", root).stdout
    assert change.stdout == autokernel("diff", "4", "--root", root).stdout
    for done in (named, unnamed, change):
        assert "experiment: 4 (the latest of rmsnorm-1)" in done.stderr


def test_diff_against_the_starter_spans_several_experiments(root):
    change = autokernel("diff", "4", "--against", "starter", "--root", root).stdout

    assert "-LANES = 1  # independent partial sums" in change
    assert "+LANES = 16  # independent partial sums" in change


def test_a_run_is_found_by_path_and_by_name(root):
    by_name = autokernel("log", "rmsnorm-1", "--root", root, "--json").stdout
    by_path = autokernel("log", root / "rmsnorm-1", "--json").stdout

    assert by_name == by_path != ""


def test_reading_takes_the_newest_of_several_runs_and_says_so(root):
    record_run(root / "rmsnorm-2")
    done = autokernel("log", "--root", root, "--json")

    assert len(json.loads(done.stdout)) == 4
    assert "rmsnorm-2 (the newest of 2)" in done.stderr


def test_acting_on_one_of_several_runs_needs_its_name(root):
    record_run(root / "rmsnorm-2")
    done = autokernel("keep", "4", "--root", root)

    assert done.returncode == 2
    assert "there are: rmsnorm-2, rmsnorm-1" in done.stderr
    assert commands_of(root / "rmsnorm-1") == []


def test_a_decision_waits_in_the_run_folder_for_whoever_drives_the_run(root):
    done = autokernel("keep", "4", "--root", root)

    assert done.returncode == 0, done.stderr
    assert "takes effect with the next: autokernel run" in done.stdout
    assert commands_of(root / "rmsnorm-1") == [("keep", {"experiment": 4, "by": "person"})]


def test_a_comment_reaches_the_run_folder_word_for_word(root):
    autokernel("comment", "rmsnorm-1", "try [wider] loads", "--root", root)

    assert commands_of(root / "rmsnorm-1") == [("comment", {"text": "try [wider] loads", "by": "person"})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["keep", "2"], "experiment 2 is not waiting for a decision (revert); experiment 4 waits"),
        (["revert", "9"], "has no experiment 9"),
        (["keep", "two"], "'two' is no experiment number"),
        (["comment", " "], "the comment is empty"),
        (["stop"], "nobody drives"),
        (["diff", "1", "--against", "yesterday"], "'yesterday' is no experiment number"),
        (["plot", "-o", "figure.jpeg"], "end the name in .html, .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_done_in_a_run_is_refused(root, arguments, message):
    done = autokernel(*arguments, "--root", root)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert commands_of(root / "rmsnorm-1") == []


def test_plot_writes_a_figure_that_needs_no_network(root, tmp_path):
    done = autokernel("plot", "--root", root, "-o", tmp_path / "figure.html")

    assert done.returncode == 0, done.stderr
    assert "Plotly.newPlot" in (tmp_path / "figure.html").read_text()


def small_run(root, *options):
    done = autokernel("new", "rmsnorm", "--backend", "cpp", "--device", "cpu", "--shape", "M=64,N=256",
                      "--root", root, "--name", "small", *options)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return root / "small"


def rows(run):
    return (run / "results.tsv").read_text().splitlines()[1:]


def wait_until(condition, *, seconds=150.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


@pytest.mark.slow
def test_the_whole_loop_from_the_command_line(tmp_path):
    run = small_run(tmp_path)

    baseline = json.loads(autokernel("step", run, "--json").stdout)
    summary = json.loads(autokernel("run", run, "--experiments", "2", "--json").stdout)
    (tmp_path / "worse.py").write_text('KERNEL_TYPE = "rmsnorm"\ndef kernel_fn(x, weight, eps=1e-6): return x * 2\n')
    submitted = autokernel("submit", run, tmp_path / "worse.py", "--hypothesis", "skip the norm", "--json")

    assert baseline["decision"] == "baseline"
    assert summary["tally"]["total"] == 2
    assert submitted.returncode == 1
    assert json.loads(submitted.stdout)["decision"] == "revert"
    assert [row.split("\t")[0] for row in rows(run)] == ["0", "1", "2", "3"]
    assert rows(run)[3].split("\t")[7] in ("FAIL", "CRASH")


@contextlib.contextmanager
def listening_to_ctrl_c() -> Iterator[None]:
    """Processes that are started meanwhile do not ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_continued(tmp_path):
    run = small_run(tmp_path)
    command = [*COMMAND, "run", str(run), "--experiments", "50"]
    # A shell's background job ignores Ctrl-C, and so would what it starts; here it is as at a terminal.
    with listening_to_ctrl_c():
        process = subprocess.Popen(
            command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    head, baseline = process.stdout.readline(), process.stdout.readline()  # each while it goes on, into a pipe too
    wait_until(lambda: len(rows(run)) >= 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    done = autokernel("run", run, "--experiments", "1", "--json")

    assert head.startswith("rmsnorm, cpp, float32 on cpu: 50 experiments in ")
    assert baseline.split()[:2] == ["0", "baseline"]
    assert process.returncode == 130
    assert f"continue with: autokernel run {run}" in errors
    assert "Traceback" not in errors
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tally"]["total"] >= 1


@pytest.mark.slow
def test_a_detached_run_is_watched_and_stopped_from_another_terminal(tmp_path):
    run = small_run(tmp_path)
    started = json.loads(autokernel("run", run, "--experiments", "50", "--detach", "--json").stdout)
    second = autokernel("run", run)
    driver = json.loads(autokernel("status", run, "--json").stdout)["driver"]
    stopped = autokernel("stop", run)
    wait_until(lambda: RunFolder(run).status.driver is None)

    assert driver["pid"] == started["pid"]
    assert second.returncode == 3
    assert "is being driven by process" in second.stderr
    assert stopped.returncode == 0, stopped.stderr


@pytest.mark.slow
def test_a_person_decides_from_another_terminal(tmp_path):
    run = small_run(tmp_path, "--approval", "approve")
    command = [*COMMAND, "run", str(run), "--experiments", "1"]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: RunFolder(run).pending is not None)
    number = RunFolder(run).pending.number
    decided = autokernel("revert", run, number)
    output, errors = process.communicate(timeout=120)

    assert decided.returncode == 0, decided.stderr
    assert process.returncode == 0, errors
    assert f"experiment {number} waits for you" in output
    assert RunFolder(run).experiment(number).decided_by == "person"
