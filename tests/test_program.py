"""The agent's manual: what it names exists, what exists it names, and its code compiles."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest
import torch
import typer.main

import autokernel
from autokernel import backends, ops
from autokernel.backends import cpp, nvrtc
from autokernel.backends.arguments import KINDS
from autokernel.cli.app import app
from autokernel.errors import BackendUnavailable
from autokernel.policy import PolicySettings
from autokernel.verdict import Stage

MANUAL = Path(__file__).parents[1] / "program.md"
TEXT = MANUAL.read_text(encoding="utf-8")
PACKAGE = Path(autokernel.__file__).parent
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(kind, textwrap.dedent(body)) for _indent, kind, body in FENCE.findall(TEXT)]
PROSE = FENCE.sub("", TEXT)
HEADINGS = re.findall(r"^## (.+)$", PROSE, re.MULTILINE)
TIERS = [heading for heading in HEADINGS if heading.startswith("Tier ")]
ARCHITECTURES = ("Ampere", "Ada", "Hopper", "Blackwell", "CDNA3", "CDNA4", "CPU")
PARTS = ["Triton", "CUDA C++", "C++ on a CPU"]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def section(heading: str) -> str:
    """The text from a level-2 heading to the next."""
    return re.split(r"^## ", TEXT, flags=re.MULTILINE)[HEADINGS.index(heading) + 1]


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def blocks(kind: str) -> list[str]:
    return [body for block_kind, body in BLOCKS if block_kind == kind]


def finding_kinds() -> set[str]:
    """Every kind of finding that the source makes."""
    made = re.compile(r'(?:Finding|add_finding)\(\s*"([a-z_]+)"|(?:append\(\s*|return \[)\(\s*"([a-z]+_[a-z_]+)",')
    kinds = set()
    for file in [*PACKAGE.glob("verifier/*.py"), *PACKAGE.glob("runner/*.py"), *PACKAGE.glob("*.py")]:
        kinds.update(one or other for one, other in made.findall(file.read_text(encoding="utf-8")))
    sentinel = (PACKAGE / "runner" / "sentinel.py").read_text(encoding="utf-8")
    watched = re.search(r"^_EVENTS = \{(.*?)^\}", sentinel, re.MULTILINE | re.DOTALL)
    assert watched is not None
    return kinds | set(re.findall(r'": "(\w+)"', watched.group(1)))


def test_no_two_sections_have_one_name():
    assert sorted(set(HEADINGS)) == sorted(HEADINGS)


def test_the_table_of_contents_leads_to_every_section_and_nowhere_else():
    before_the_first = TEXT.split("\n## ", 1)[0]
    named = re.findall(r"\[([^\]]+)\]\(#([^)]+)\)", before_the_first)

    assert [(name, target) for name, target in named if anchor(name) != target] == []
    missing = set(HEADINGS) - {name for name, _target in named}
    first, last = HEADINGS.index("Mission"), HEADINGS.index("Tunable constants")
    assert missing <= set(HEADINGS[first : last + 1])  # given as a range
    assert {name for name, _target in named} <= set(HEADINGS)


def test_every_link_within_the_manual_has_a_target():
    targets = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", PROSE, re.MULTILINE)}

    assert set(re.findall(r"\]\(#([^)]+)\)", PROSE)) <= targets


@pytest.mark.parametrize("name", ops.names())
def test_an_operation_has_its_section_and_its_row_in_the_contract(name):
    assert [part for part in PARTS if f"### {part}\n" not in section(f"Operation: {name}")] == []
    contract = section("The contract of kernel.py")
    (row,) = [line for line in contract.splitlines() if line.startswith(f"| `{name}` |")]
    options = {option for chosen in ops.get(name).options for option in chosen}
    assert [option for option in options if f"{option}=" not in row] == []


@pytest.mark.parametrize("name", backends.NAMES)
def test_a_backend_has_its_section(name):
    assert f'BACKEND = "{name}"' in section(f"Backend: {name}")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_has_its_section(name):
    assert f"Architecture: {name}" in HEADINGS


def test_there_are_six_tiers_each_with_a_part_for_every_backend():
    assert [tier.split(":")[0] for tier in TIERS] == [f"Tier {number}" for number in range(1, 7)]
    for tier in TIERS:
        assert re.findall(r"^### (.+)$", FENCE.sub("", section(tier)), re.MULTILINE) == PARTS


@pytest.mark.parametrize("stage", [stage.value for stage in Stage])
def test_a_verification_stage_has_its_row(stage):
    assert f"| `{stage}` |" in section("How a candidate is judged")


def test_every_finding_that_the_source_makes_is_explained():
    rows = [line.split("|")[1] for line in section("Findings").splitlines() if line.startswith("| `")]
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    made = finding_kinds()

    assert len(made) > 20
    assert made - explained == set(), "add a row to the section Findings of program.md"
    assert explained - made == set(), "the section Findings of program.md explains what no code reports"


def test_every_command_that_is_named_exists_with_its_options():
    calls = re.findall(r"`autokernel ([^`]+)`", PROSE)
    assert len(calls) >= 10

    for call in calls:
        name, *words = call.split()
        assert name in COMMANDS, call
        known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, call


@pytest.mark.parametrize("kind", KINDS)
def test_an_argument_kind_is_listed(kind):
    assert f"`{kind}`" in section("Backend: cuda") + section("Backend: cpp")


def test_the_thresholds_are_those_of_the_policy():
    settings = PolicySettings()
    kept, stop = section("How a candidate is timed and kept"), section("When to stop")

    assert f"above {1 + settings.threshold:g};" in kept
    assert f"high end below {1 - settings.case_tolerance:g}" in kept
    assert f"more than {100 * settings.call_tolerance:g} % longer" in kept
    assert f"after {settings.plateau} experiments without a gain" in stop
    assert settings.near_peak is not None
    assert f"at {100 * settings.near_peak:g} % of the roofline floor" in stop


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_a_python_block_parses(number):
    ast.parse(blocks("python")[number])


def test_the_skeleton_of_a_triton_kernel_is_right():
    source = next(body for body in blocks("python") if 'BACKEND = "triton"' in body)
    from autokernel.evaluator import Evaluator, EvaluatorSettings

    with Evaluator("reduce", device="cpu", settings=EvaluatorSettings(roofline=False)) as evaluator:
        verdict = evaluator.verify(source, stages=[Stage.SMOKE, Stage.EDGE])

    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("number", range(len(blocks("cuda"))))
def test_a_cuda_block_compiles(number, arch, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = blocks("cuda")[number]
    names = re.findall(r"__global__.*?\b(\w+)\(const", re.sub(r"__launch_bounds__\(\w+\)", "", source), re.DOTALL)
    try:
        cubin = nvrtc.compile_cubin(
            source, [f"{name}<__half>" for name in names], arch, ["-DBLOCK_SIZE=256", "-DMAX_VECTORS=4"]
        )
    except BackendUnavailable as missing:
        pytest.skip(str(missing))

    assert len(cubin.lowered) == len(names)


def test_the_skeletons_of_compiled_kernels_declare_what_their_text_has(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = next(body for body in blocks("python") if 'BACKEND = "cpp"' in body)
    try:
        cpp.compiler()
    except BackendUnavailable as missing:
        pytest.skip(str(missing))
    namespace: dict[str, object] = {}
    exec(compile(source, "kernel.py", "exec"), namespace)

    kernel_fn = namespace["kernel_fn"]
    assert callable(kernel_fn)
    assert kernel_fn(torch.zeros(2, 3)).shape == (2,)
