"""What a candidate can reach, at each level of isolation, and what it cannot.

The probes raise what they saw, so that the reason of the verdict shows it.  What a level does not
stop is asserted too, so that the table in docs/verification.md stays true.
"""

from __future__ import annotations

import ast
import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autokernel.runner import sandbox
from autokernel.verdict import Stage
from tests.evaluating import shared_evaluator
from tests.planting import at_import, right

pytest.importorskip("triton")

SMOKE = [Stage.SMOKE]
STRONGEST = sandbox.level()
LEVELS = sandbox.LEVELS[sandbox.LEVELS.index(STRONGEST) :]
confined = pytest.mark.skipif(STRONGEST != "namespaces", reason="this system allows no namespaces")


def seen(level: str, statements: str) -> tuple[dict[Any, Any], set[str]]:
    """Run statements that fill the dictionary ``seen``; return it, and the kinds of the findings."""
    source = at_import("seen = {}\n" + statements + "\nraise RuntimeError('SEEN' + repr(seen) + 'END')")
    verdict = shared_evaluator("rmsnorm", level).verify(source, stages=SMOKE)
    assert "SEEN" in verdict.reason, verdict.reason
    text = verdict.reason.partition("SEEN")[2].partition("END")[0]
    return ast.literal_eval(text), {finding.kind for finding in verdict.findings}


def attempt(name: str, expression: str) -> str:
    """A statement that notes what an expression gives, or the error number that it raises."""
    return f"try:\n    seen[{name!r}] = {expression}\nexcept OSError as error:\n    seen[{name!r}] = error.strerror\n"


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file in the home folder of whoever runs the tests."""
    with tempfile.TemporaryDirectory(dir=sandbox.home_folders()[-1], prefix="autokernel-test-") as folder:
        file = Path(folder) / "key.txt"
        file.write_text("secret-93af")
        yield file


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A TCP server on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.mark.parametrize("level", LEVELS)
def test_a_good_kernel_is_accepted_at_every_level(level):
    verdict = shared_evaluator("rmsnorm", level).verify(right("rmsnorm", "triton"), stages=SMOKE)

    assert verdict.accepted, verdict.reason
    assert verdict.details["isolation"] == level


@pytest.mark.parametrize("level", LEVELS)
def test_the_environment_holds_no_more_than_it_must_at_every_level(level):
    values, _kinds = seen(level, "import os\nseen['names'] = sorted(os.environ)")

    allowed = {
        *sandbox._KEPT_VARIABLES,
        "HOME",
        "TMPDIR",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONNOUSERSITE",
        "OMP_WAIT_POLICY",
    }
    allowed |= {"AUTOKERNEL_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_INTERPRET"}
    assert {name for name in values["names"] if not name.startswith(sandbox._KEPT_PREFIXES)} <= allowed


def test_a_file_in_the_home_folder_can_be_read_only_without_namespaces(secret):
    for level in LEVELS:
        values, _kinds = seen(level, attempt("key", f"open({str(secret)!r}).read()"))
        if level == "namespaces":
            assert values["key"] == "No such file or directory"
        else:
            assert values["key"] == "secret-93af", "stated in docs/verification.md"


def test_a_file_outside_the_scratch_folder_can_be_written_only_at_the_weakest_level(tmp_path):
    for level in LEVELS:
        file = tmp_path / f"{level}.txt"
        values, kinds = seen(level, attempt("written", f"open({str(file)!r}, 'w').write('here')"))
        assert "file_written" in kinds, level
        assert file.exists() == (level == "process")
        assert values["written"] in ((4,) if level == "process" else ("Read-only file system", "Permission denied"))


def test_a_file_cannot_be_truncated_or_removed_at_the_stronger_levels(tmp_path):
    for level in [level for level in LEVELS if level != "process"]:
        file = tmp_path / "precious.txt"
        file.write_text("precious")
        statements = "import os\n" + attempt("truncate", f"os.truncate({str(file)!r}, 0)")
        seen(
            level,
            statements
            + attempt("remove", f"os.remove({str(file)!r})")
            + attempt("rename", f"os.rename({str(file)!r}, 'x')"),
        )
        assert file.read_text() == "precious", level


def test_a_server_on_this_machine_is_reached_only_where_the_level_lets_tcp_through(listener):
    port = listener.getsockname()[1]
    statements = "import socket\n" + attempt("tcp", f"socket.create_connection(('127.0.0.1', {port}), 2).close()")
    for level in LEVELS:
        values, kinds = seen(level, statements)
        assert "network" in kinds, level
        connected = True
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            connected = False
        if level == "namespaces":
            assert (connected, values["tcp"]) == (False, "Network is unreachable")
        if level == "process":
            assert connected


PROCESSES = """
import os
for entry in os.listdir("/proc"):
    if entry.isdigit():
        try:
            seen[int(entry)] = open(f"/proc/{entry}/cmdline").read()[:60]
        except OSError:
            pass
seen = {"mine": os.getpid(), "all": seen}
"""


@confined
def test_no_other_process_can_be_seen_in_namespaces():
    values, _kinds = seen("namespaces", PROCESSES)

    assert values["mine"] == 1
    assert set(values["all"]) == {1}


def test_the_judges_process_can_be_signalled_only_at_the_weakest_level():
    for level in LEVELS:
        values, kinds = seen(level, "import os\n" + attempt("signal", f"os.kill({os.getpid()}, 0)"))
        assert "process_signalled" in kinds
        if level == "namespaces":
            assert values["signal"] == "No such process"
        if level == "process":
            assert values["signal"] is None


@pytest.mark.parametrize("level", LEVELS)
def test_no_right_of_root_is_left_at_any_level(level):
    values, _kinds = seen(
        level, "seen['caps'] = [l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')]"
    )

    inherited, permitted, effective, bounding, ambient = (int(text, 16) for text in values["caps"])
    assert (permitted, effective, inherited, ambient) == (0, 0, 0, 0)
    if level == "namespaces" or os.geteuid() == 0:
        assert bounding == 0


@confined
def test_disks_cannot_be_read_through_their_devices():
    disks = [entry for entry in Path("/dev").iterdir() if entry.is_block_device() and not entry.is_symlink()]
    if not disks or not os.access(disks[0], os.R_OK):
        pytest.skip("no block device that this user may read")

    values, _kinds = seen("namespaces", attempt("disk", f"open({str(disks[0])!r}, 'rb').read(16)"))

    assert values["disk"] in (b"", "Permission denied", "Operation not permitted")


ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while os.getppid() != 1 or True:
            time.sleep(0.01)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("level", LEVELS)
def test_an_orphan_in_a_session_of_its_own_is_ended_with_the_runner_at_every_level(level):
    evaluator = shared_evaluator("rmsnorm", level)
    source = at_import(ORPHAN)

    verdict = evaluator.verify(source, stages=SMOKE)

    assert {finding.kind for finding in verdict.findings} >= {"process_started", "process_left"}
    left = next(finding.evidence for finding in verdict.findings if finding.kind == "process_left")
    pids = [int(part.split()[0]) for part in left.partition("still run: ")[2].split(", ") if part.split()[0].isdigit()]
    assert pids
    evaluator.verify("", stages=SMOKE)
    for pid in pids:
        with contextlib.suppress(OSError):
            assert "zygote" not in Path(f"/proc/{pid}/cmdline").read_text() or _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ("import os\nos._exit(0)", "exit status 0"),
        ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        ("import sys\nsys.exit()", "SystemExit"),
        ("def kernel_fn(: pass", "SyntaxError"),
    ],
)
def test_a_kernel_that_ends_its_process_gets_the_same_reason_at_every_level(level, statements, reason):
    evaluator = shared_evaluator("rmsnorm", level)

    verdict = evaluator.verify(at_import(statements), stages=SMOKE)

    assert reason in verdict.reason
    assert evaluator.verify(right("rmsnorm", "triton"), stages=SMOKE).accepted
