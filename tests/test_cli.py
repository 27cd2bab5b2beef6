"""The command line that judges files and answers wrong use; the real program, in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from autokernel import starters
from tests.command_line import ROOT, autokernel, environment

WRONG = """
import torch
KERNEL_TYPE = "rmsnorm"
def kernel_fn(x, weight, eps=1e-6):
    return torch.zeros_like(x) + 0.5
"""
COMMANDS = (
    *("doctor", "new", "run", "step", "submit", "verify", "bench", "status", "log", "diff", "show"),
    *("keep", "revert", "comment", "pause", "resume", "stop", "plot", "lab", "demo"),
    *("profile", "campaign", "integrate", "check-model", "context", "mcp"),
)
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden!r}:
            raise ImportError("blocked by the test: " + name)
sys.meta_path.insert(0, Blocker())
from autokernel.cli import main
status = main({arguments!r})
print("torch" in sys.modules, file=sys.stderr)
sys.exit(status)
"""


def run_blocked(forbidden, *arguments, cwd=ROOT):
    program = BLOCKER.format(forbidden=forbidden, arguments=list(arguments))
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=240)


@pytest.fixture
def starter(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(starters.source("rmsnorm", "cpp"))
    return path


def test_help_lists_every_command_and_answers_at_once():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = autokernel("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.strip()]
    assert set(COMMANDS) <= set(listed)
    assert after.ru_utime - before.ru_utime < 1.0  # it takes 0.2 s; importing torch alone takes more than 1


def test_the_version_is_the_packages_own():
    import autokernel as package

    assert autokernel("--version").stdout == f"autokernel {package.__version__}\n"


def test_help_imports_neither_torch_nor_rich_tables_nor_git():
    done = run_blocked({"torch", "git", "plotly", "pandas", "numpy", "rich"}, "--help")

    assert done.returncode == 0, done.stderr


def test_verify_needs_torch_typer_and_rich_only(starter):
    forbidden = {"git", "plotly", "pandas", "openai", "ipywidgets", "anywidget", "kaleido", "IPython", "traitlets"}
    done = run_blocked(forbidden, "verify", str(starter), "--stage", "smoke")

    assert done.returncode == 0, done.stderr
    assert "ACCEPTED" in done.stdout


def test_verify_accepts_a_starter_with_a_table_of_its_cases(starter):
    done = autokernel("verify", starter, "--stage", "smoke", "--stage", "edge")

    assert done.returncode == 0, done.stderr
    assert "error/bound" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if " float" in line and "  pass  " in line]
    assert len(rows) > 5
    for *_case, error, bound, ratio, _ulp, _seconds in rows:  # of one element, with three digits each
        assert float(error) / float(bound) == pytest.approx(float(ratio), rel=0.02)
    assert "stages not run: sweep, stability, determinism" in done.stdout.splitlines()[-1]


def test_verify_prints_nothing_but_the_verdict_as_json(starter):
    done = autokernel("verify", starter, "--stage", "smoke", "--json", "--seed", "7")
    verdict = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert verdict["verdict"] == "accept"
    assert verdict["details"]["seed"] == 7
    assert [stage["name"] for stage in verdict["stages"]] == ["smoke"]
    assert {"status", "seconds", "cases"} <= set(verdict["stages"][0])


def test_a_wrong_kernel_is_rejected_with_its_first_failing_case_explained(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    done = autokernel("verify", tmp_path / "wrong.py")

    assert done.returncode == 1
    assert "First failing case: smoke" in done.stdout
    assert "expected" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("REJECTED")


def test_a_syntax_error_is_a_verdict(tmp_path):
    (tmp_path / "kernel.py").write_text('KERNEL_TYPE = "rmsnorm"\ndef kernel_fn(:\n')
    done = autokernel("verify", tmp_path / "kernel.py", "--json")

    assert done.returncode == 1
    assert "SyntaxError" in json.loads(done.stdout)["reason"]


def test_escapes_and_markup_in_a_candidates_error_are_shown_as_text(tmp_path):
    source = 'KERNEL_TYPE = "rmsnorm"\nraise ValueError("\\x1b[2J\\x1b]0;title\\x07 [bold]not bold[/bold] \\u202e")\n'
    (tmp_path / "kernel.py").write_text(source)
    done = autokernel("verify", tmp_path / "kernel.py")

    assert done.returncode == 1
    assert "[bold]not bold[/bold]" in done.stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "missing.py"], "'missing.py' does not exist"),
        (["verify", "."], "is no regular file"),
        (["verify", "bytes.py"], "not UTF-8"),
        (["verify", "untyped.py"], "states no KERNEL_TYPE"),
        (["verify", "untyped.py", "--operation", "frobnicate"], "unknown operation 'frobnicate'; known:"),
        (["verify", "untyped.py", "--spec", "nowhere.py"], "no spec file at"),
        (["verify", "untyped.py", "--spec", "spec.txt"], "ends in .py"),
        (["verify", "kernel.py", "--stage", "shapes"], "use smoke, sweep, stability, determinism, edge"),
        (["verify", "kernel.py", "--device", "tpu"], "'tpu' is no device"),
        (["verify", "kernel.py", "--dtype", "float64"], "'float64' is no dtype"),
        (["verify", "kernel.py", "--seed", "x"], "--seed"),
        (["verify"], "Missing argument"),
        (["bench", "kernel.py", "--shape", "M=0,N=4"], "cannot read the shape 'M=0,N=4'"),
        (["bench", "kernel.py", "--shape", "M=3,M=4"], "each size once"),
        (["bench", "kernel.py", "--shape", "M=3,K=4"], "it takes M, N"),
        (["bench", "kernel.py", "--incumbent", "missing.py"], "'missing.py' does not exist"),
        (["new"], "say what to optimise"),
        (["new", "frobnicate"], "unknown operation"),
        (["new", "rmsnorm", "--backend", "metal"], "'metal' is none of auto, triton, cuda, cpp"),
        (["new", "rmsnorm", "--approval", "never"], "none of auto, approve"),
        (["new", "rmsnorm", "--agent", "oracle"], "unknown agent 'oracle'"),
        (["new", "rmsnorm", "--from", "missing.py"], "'missing.py' does not exist"),
        (["new", "rmsnorm", "--from", "broken.py"], "broken.py is no Python: invalid syntax (broken.py, line 2)"),
        (["run"], "there is no run under 'runs'"),
        (["run", "nothing"], "no run 'nothing'"),
        (["run", "--experiments", "0"], "--experiments"),
        (["show", "a", "b", "c"], "give [RUN] [N], got 3"),
        (["submit", "kernel.py"], "--hypothesis"),
        (["lab", "nowhere"], "is no folder"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_wrong_use_is_one_message_on_stderr_and_exit_2(tmp_path, arguments, message):
    (tmp_path / "bytes.py").write_bytes(b"KERNEL_TYPE = '\xff'")
    (tmp_path / "untyped.py").write_text("def kernel_fn(x): return x\n")
    (tmp_path / "broken.py").write_text("BACKEND = 'cpp'\ndef kernel_fn(:\n")
    (tmp_path / "kernel.py").write_text(WRONG)
    done = autokernel(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["new", "sofmax"], "'softmax'"),
        (["new", "softmax", "--agent", "serch"], "'search'"),
        (["new", "softmax", "--backend", "tritn"], "'triton'"),
        (["new", "softmax", "--dtype", "flaot16"], "'float16'"),
        (["new", "softmax", "--approval", "aprove"], "'approve'"),
        (["verify", "kernel.py", "--stage", "smok"], "'smoke'"),
        (["verify", "kernel.py", "--operation", "rmsnrom"], "'rmsnorm'"),
        (["bench", "kernel.py", "--operation", "rmsnrom"], "'rmsnorm'"),
        (["bench-suite", "--op", "sofmax"], "'softmax'"),
        (["bench-suite", "--verify", "breif"], "'brief'"),
        (["campaign", "new", "--target", "sofmax=0.2"], "'softmax'"),
        (["campaign", "new", "--target", "softmax=0.2", "--agent", "serch"], "'search'"),
        (["check-model", "net.py:net", "--kernel", "kernel.py", "--admit", "verifid"], "'verified'"),
        (["plot", "--kind", "speedp"], "'speedup'"),
        (["ne", "softmax"], "'new'"),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one_before_torch_is_loaded(tmp_path, arguments, hint):
    (tmp_path / "kernel.py").write_text(WRONG)
    done = run_blocked({"torch", "numpy", "triton", "plotly"}, *arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"id you mean {hint}?" in " ".join(done.stderr.split())
    assert done.stderr.endswith("False\n")
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.py"]


def test_a_model_without_a_key_is_refused_before_a_run_is_made(tmp_path, monkeypatch):
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    one = autokernel("new", "rmsnorm", "--agent", "openai:gpt-5", cwd=tmp_path)
    several = autokernel("campaign", "new", "--target", "rmsnorm=0.2", "--agent", "openai:gpt-5", cwd=tmp_path)

    assert (one.returncode, several.returncode) == (2, 2)
    assert "no key in the environment variable OPENAI_API_KEY" in one.stderr
    assert "no key in the environment variable OPENAI_API_KEY" in several.stderr
    assert not list(tmp_path.iterdir())


def test_with_json_wrong_use_leaves_stdout_empty(tmp_path):
    done = autokernel("verify", "missing.py", "--json", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")


def test_a_device_that_is_not_there_is_our_failure_and_not_a_verdict(starter):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has the GPU that the test asks for in vain")
    done = autokernel("verify", starter, "--device", "cuda", "--json")

    assert (done.returncode, done.stdout) == (3, "")
    assert "device 'cuda" in done.stderr
    assert "Traceback" not in done.stderr


def test_bench_prints_latencies_and_the_speedup_with_its_interval(starter):
    done = autokernel("bench", starter, "--dtype", "float32", "--shape", "M=64,N=256", "--json")
    report = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert set(report["measurement"]["cases"][0]["contestants"]) == {"candidate", "pytorch"}
    speedup = report["measurement"]["speedups"]["pytorch"]
    assert 0 < speedup["low"] <= speedup["value"] <= speedup["high"]


def test_bench_does_not_time_a_wrong_kernel(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    done = autokernel("bench", tmp_path / "wrong.py")

    assert done.returncode == 1
    assert "Not timed" in done.stdout


def test_a_users_own_operation_is_verified_from_its_spec_file(tmp_path):
    (tmp_path / "my_op.py").write_text(
        "import torch\nfrom autokernel.ops import KernelSpec\n"
        "def make(shape, dtype, generator):\n"
        "    return (torch.randn(shape['n'], generator=generator, device=generator.device).to(dtype),)\n"
        "SPEC = KernelSpec(name='cube', reference=lambda x: x * x * x, make_inputs=make, shapes=({'n': 1000},))\n"
    )
    (tmp_path / "kernel.py").write_text(
        "import torch\nimport triton\nimport triton.language as tl\nKERNEL_TYPE = 'cube'\n\n"
        "@triton.jit\n"
        "def cube(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)\n"
        "    tl.store(y_ptr + offs, x * x * x, mask=offs < n)\n\n"
        "def kernel_fn(x):\n"
        "    x = x.contiguous()\n"
        "    y = torch.empty_like(x)\n"
        "    if x.numel():\n"
        "        cube[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\n"
        "    return y\n"
    )
    done = autokernel("verify", "kernel.py", "--spec", "my_op.py", "--stage", "smoke", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_doctor_prints_its_report_as_json():
    done = autokernel("doctor", "--json")
    report = json.loads(done.stdout)

    assert done.returncode == (0 if report["ready"] else 1)
    assert "torch" in {check["name"] for check in report["checks"]}


def test_an_error_of_ours_never_reads_like_a_verdict(starter):
    program = (
        "import sys, autokernel.evaluator as e\n"
        "def broken(*a, **k): raise ZeroDivisionError('planted')\n"
        "e.Evaluator.verify = broken\n"
        "from autokernel.cli import main\n"
        f"sys.exit(main(['verify', {str(starter)!r}, '--json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=240)

    assert (done.returncode, done.stdout) == (3, "")
    assert "planted" in done.stderr
