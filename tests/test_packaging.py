"""What a newcomer meets first: pins, make targets, the CI script, the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import autokernel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
DECLARED = [Requirement(text) for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])]


def test_constraints_hold_exact_versions_only():
    assert [str(pin) for pin in PINS if [spec.operator for spec in pin.specifier] != ["=="]] == []


@pytest.mark.parametrize("python", ["3.10.14", "3.11.7", "3.12.4", "3.13.1"])
@pytest.mark.parametrize("requirement", DECLARED, ids=lambda requirement: requirement.name)
def test_a_declared_dependency_has_one_pin_that_satisfies_it(requirement, python):
    short = ".".join(python.split(".")[:2])
    environment = {
        "python_full_version": python,
        "python_version": short,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
    }
    if requirement.marker and not requirement.marker.evaluate(environment):
        return
    name = canonicalize_name(requirement.name)
    pins = [pin for pin in PINS if canonicalize_name(pin.name) == name]
    pins = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(environment)]

    assert len(pins) == 1
    (version,) = (spec.version for spec in pins[0].specifier)
    assert requirement.specifier.contains(version, prereleases=True)


def test_torch_is_pinned_so_that_no_other_build_is_taken():
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


@pytest.mark.parametrize("target", ["setup", "demo", "lab", "test", "check"])
def test_make_knows_the_targets_that_the_readme_names(target):
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_make_without_a_target_says_what_there_is():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert set(re.findall(r"^make (\w+)", done.stdout, re.MULTILINE)) == {"demo", "lab", "notebooks", "test", "check"}


def test_make_with_no_such_python_says_what_to_install(tmp_path):
    command = ["make", "setup", "PYTHON=no-such-python", f"VENV={tmp_path / 'venv'}"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "no no-such-python: apt-get install python3" in done.stdout


def test_the_ci_script_is_valid_bash_and_executable():
    script = ROOT / ".ci" / "run"

    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("autokernel-*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_both_packages_with_all_their_files(wheel):
    packed = set(wheel.namelist())
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in tracked.splitlines() if name.startswith("autokernel/")}
    wanted |= {name.removeprefix("widgets/") for name in tracked.splitlines() if name.startswith("widgets/")}

    assert {name for name in wanted if (ROOT / name).exists() or (ROOT / "widgets" / name).exists()} <= packed
    assert "autokernel/program.md" in packed


def test_the_wheel_holds_neither_tests_nor_notebooks(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}

    assert tops == {"autokernel", "autokernel_widgets", f"autokernel-{autokernel.__version__}.dist-info"}


def test_the_wheel_installs_the_command(wheel):
    entry_points = wheel.read(f"autokernel-{autokernel.__version__}.dist-info/entry_points.txt").decode()

    assert "autokernel = autokernel.cli:main" in entry_points
