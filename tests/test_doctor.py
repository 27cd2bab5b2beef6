"""The doctor: what it finds, what it says about what is missing, and that it never fails itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

from autokernel import doctor, doctor_checks, hardware
from autokernel.doctor import Check, Report, diagnose, render
from autokernel.hardware import Device, MeasuredPeaks, Roofline, datasheet

ROOT = Path(__file__).parents[1]
PEAKS = MeasuredPeaks(
    device="a device",
    copy_gb_per_s=4270.0,
    read_gb_per_s=4500.0,
    tflop_per_s={"float16": 790.0, "float32": 51.0},
    launch_us=2.1,
    seconds=1.0,
    measured_at="2026-01-01T00:00:00+00:00",
)
H200 = Device(kind="cuda", name="NVIDIA H200", arch="sm_90", units=132, driver="580.82.07", runtime="CUDA 13.0")


def line_of(peaks: MeasuredPeaks = PEAKS, device: Device = H200) -> Roofline:
    return Roofline(device, peaks, datasheet(device))


def named(checks, name: str) -> Check:
    return next(check for check in checks if check.name == name)


@pytest.fixture(scope="module")
def report():
    """The real report of this machine, with quick figures instead of measured ones."""
    patch = pytest.MonkeyPatch()
    patch.setattr(hardware, "roofline", lambda device: Roofline(hardware.detect("cpu"), PEAKS))
    yield diagnose()
    patch.undo()


def test_the_report_of_this_machine_has_every_check_and_is_json(report):
    data = json.loads(json.dumps(report.to_dict()))

    names = {check["name"] for check in data["checks"]}
    assert {"python", "torch", "device", "bandwidth", "triton", "c++ compiler", "git", "cache"} <= names
    assert {check["status"] for check in data["checks"]} <= {"ok", "warn", "missing"}
    assert data["roofline"]["measured"]["copy_gb_per_s"] == 4270.0


def test_whatever_is_not_well_says_how_to_get_it(report):
    assert [check for check in report.checks if check.status == "missing" and not check.fix] == []


def test_the_triton_interpreter_is_tried_for_real(report):
    assert "interpreter works" in named(report.checks, "triton").value


@pytest.mark.parametrize(
    ("compiler", "header", "lacking"),
    [("/usr/bin/gcc", True, ""), ("/usr/bin/gcc", False, "Python.h"), (None, True, "a C compiler")],
)
def test_on_a_gpu_triton_needs_a_compiler_and_the_headers_of_python(monkeypatch, tmp_path, compiler, header, lacking):
    monkeypatch.setattr(hardware, "detect", lambda device: H200)
    monkeypatch.setattr(shutil, "which", lambda name: compiler)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    if header:
        (tmp_path / "Python.h").write_text("")

    assert doctor_checks._lacking_for_gpu() == lacking


def test_the_text_has_a_line_for_each_check_and_keeps_to_the_width(report):
    text = render(report, width=80)

    for check in report.checks:
        assert any(line.startswith(f"{check.status:<8}{check.name}") for line in text.splitlines())
    longest_word = max(len(word) for check in report.checks for word in (check.value + " " + check.fix).split())
    assert max(map(len, text.splitlines())) <= max(80, 24 + longest_word)
    assert str(report) == render(report)


def test_color_is_in_the_text_only_on_request(report):
    assert "\x1b[" not in render(report)
    assert "\x1b[" in render(report, color=True)


def test_a_gpu_is_reported_with_driver_data_sheet_and_share():
    checks = list(doctor_checks.device(line_of()))

    assert "580.82.07" in named(checks, "device").value
    assert "H200 SXM: 4800 GB/s" in named(checks, "data sheet").value
    assert "4270 GB/s copy (89% of the data sheet)" in named(checks, "bandwidth").value
    assert "float16 790 (80% of the data sheet)" in named(checks, "matrix rate").value


def test_an_unlisted_gpu_is_a_warning_and_its_measured_figures_stand():
    checks = list(doctor_checks.device(line_of(device=Device(kind="cuda", name="NVIDIA Z9", arch="sm_200", units=9))))

    assert named(checks, "data sheet").status == "warn"
    assert named(checks, "bandwidth").value == "4270 GB/s copy, 4500 GB/s read"


def test_scattered_samples_are_a_warning():
    busy = MeasuredPeaks.from_dict({**PEAKS.to_dict(), "steady": False})

    assert named(doctor_checks.device(line_of(busy)), "bandwidth").status == "warn"


def test_a_check_that_raises_is_a_line_of_the_report(monkeypatch):
    def broken():
        raise RuntimeError("the driver\nis upset")

    monkeypatch.setattr(hardware, "roofline", lambda device: broken())
    monkeypatch.setattr(doctor_checks, "triton", broken)

    report = diagnose()

    assert named(report.checks, "device") == Check("device", "missing", "the driver is upset")
    assert named(report.checks, "triton").value == "the driver is upset"
    assert report.roofline is None
    assert not report.ready
    assert "not ready: device missing" in render(report)


@pytest.mark.parametrize(
    ("missing", "needed"),
    [
        ((), ()),
        (("notebooks", "figures", "triton", "cuda compiler"), ()),
        (("git",), ("git",)),
        (("triton", "c++ compiler"), ()),
        (("triton", "c++ compiler", "cuda compiler"), ("triton", "c++ compiler", "cuda compiler")),
    ],
)
def test_a_machine_is_ready_with_torch_a_device_git_and_one_backend(missing, needed):
    assert Report(tuple(Check(name, "missing", "") for name in missing)).needed == needed


def test_the_key_is_never_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:password@localhost:8000")

    (check,) = doctor_checks.llm_key()

    assert check.status == "ok"
    assert "secret" not in str(check)
    assert "password" not in str(check)


def test_without_a_key_the_search_agent_is_named_as_what_remains():
    (check,) = doctor_checks.llm_key()

    assert check.status == "warn"
    assert "search agent" in check.value


def test_a_machine_without_git_is_told_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    (check,) = doctor_checks.git()

    assert (check.status, check.fix) == ("missing", "apt-get install git")


def test_a_git_without_identity_is_a_warning_and_one_with_it_is_not(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    assert named(doctor_checks.git(), "git identity").status == "warn"

    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ada")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "ada@example.org")

    assert named(doctor_checks.git(), "git identity").value == "Ada <ada@example.org>"


def test_a_machine_without_a_c_plus_plus_compiler_is_told_how_to_get_one(monkeypatch):
    monkeypatch.setattr("autokernel.backends.available", lambda name: (False, "no C++ compiler"))

    (check,) = doctor_checks.cpp()

    assert check == Check("c++ compiler", "missing", "no C++ compiler", "apt-get install g++ (or set CXX)")


def test_a_cpu_build_of_pytorch_beside_a_gpu_is_a_warning(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(Path, "exists", lambda self: str(self) == "/dev/nvidia0")

    (check,) = doctor_checks.torch()

    assert check.status == "warn"
    assert "cannot use the NVIDIA GPU" in check.value


def test_missing_packages_are_named_in_the_command_that_gets_them(monkeypatch):
    real = doctor_checks._version
    monkeypatch.setattr(doctor_checks, "_version", lambda name: None if name == "anywidget" else real(name) or "1.0")

    (check,) = doctor_checks.notebooks()

    assert (check.status, check.fix) == ("missing", "pip install anywidget")
    assert check.value.startswith("no anywidget (jupyterlab ")


def test_without_chromium_figures_are_html_only(monkeypatch):
    monkeypatch.setattr(doctor_checks, "_version", lambda name: "1.0")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("BROWSER_PATH", raising=False)

    (check,) = doctor_checks.figures()

    assert check.status == "warn"
    assert "HTML only" in check.value


@pytest.mark.parametrize("level", ["namespaces", "landlock", "process"])
def test_weaker_isolation_is_a_warning(monkeypatch, level):
    monkeypatch.setattr("autokernel.runner.sandbox.level", lambda: level)

    (check,) = doctor_checks.isolation()

    assert check.status == ("ok" if level == "namespaces" else "warn")
    assert check.value.startswith(level)


def test_a_cache_that_cannot_be_written_is_a_warning(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))

    (check,) = doctor_checks.cache()

    assert check.status == "warn"
    assert str(blocked) in check.value


def test_a_python_without_any_package_gets_a_report(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/nonexistent"}
    command = [str(tmp_path / "bare" / "bin" / "python"), "-m", "autokernel.doctor", "--json"]

    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    states = {check["name"]: check["status"] for check in data["checks"]}
    assert states["torch"] == states["triton"] == states["git"] == states["notebooks"] == "missing"
    assert states["python"] == "ok"
    assert not data["ready"]


def test_the_module_refuses_other_arguments_with_its_usage(capsys):
    assert doctor._main(["--xml"]) == 2
    assert "usage: python -m autokernel.doctor [--json]" in capsys.readouterr().err


def test_importing_the_doctor_does_not_import_torch():
    command = [sys.executable, "-c", "import autokernel.doctor, sys; sys.exit('torch' in sys.modules)"]

    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
