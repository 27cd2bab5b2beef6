"""Candidates in KernelBench's form: what is made of them, how they are judged, what the benchmark would have said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from autokernel.errors import InvalidKernel, UsageError
from autokernel.kernelbench import Collection, Settings, candidates, find_problems
from autokernel.kernelbench.examine import examine
from autokernel.kernelbench.score import THRESHOLDS, ProblemScore, level_of, score
from autokernel.kernelbench.texts import adapted, starter
from autokernel.kernelbench.working import texts_of
from autokernel.measurement import Ratio
from autokernel.plots.fastp import FastP, fast_p, fast_p_table
from tests.command_line import autokernel

HERE = Path(__file__).parent
PROBLEMS, CANDIDATES = HERE / "problems", HERE / "candidates"
LINEAR = """import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
"""


def problem(name: str):
    file = next(PROBLEMS.glob(f"*/{name}.py"))
    text = file.read_text()
    return text, examine(text, str(file), name="problem", device="cpu", most_bytes=64 << 20)


def loaded(text: str):
    names: dict = {}
    exec(text, names)
    return names


@pytest.mark.parametrize("name", ["2_tiny_result", "2_scaled_by_a_number", "4_steps_written_into_a_buffer"])
def test_the_starter_computes_what_the_problem_does_with_the_weights_it_is_given(name: str):
    text, facts = problem(name)
    names = loaded(starter(text, facts, "cpp"))
    spec = facts.spec(loaded(text))
    inputs = spec.make_inputs(facts.own_shape, torch.float32, torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(names["kernel_fn"](*inputs), spec.baseline(*inputs))
    assert (names["KERNEL_TYPE"], names["BACKEND"]) == ("problem", "cpp")


def test_a_number_among_the_arguments_is_an_option():
    text, facts = problem("2_scaled_by_a_number")
    assert "def kernel_fn(x, s=2.5):" in starter(text, facts, "cpp")
    assert facts.spec(loaded(text)).options == ({"s": 2.5},)


def test_parameters_of_other_names_are_matched_by_their_order():
    text, facts = problem("2_tiny_result")
    candidate = LINEAR + (
        "        self.inner = nn.Linear(*sizes)\n\n    def forward(self, x):\n        return self.inner(x)\n"
    )
    function = loaded(adapted(candidate, text, facts, "cpp"))["kernel_fn"]
    x, weight, bias = torch.randn(5, 40), torch.randn(24, 40), torch.randn(24)
    with torch.no_grad():
        torch.testing.assert_close(function(x, weight, bias), x @ weight.T + bias)


def test_parameters_that_fit_neither_by_name_nor_by_order_are_named():
    text, facts = problem("2_tiny_result")
    candidate = LINEAR + "        self.inner = nn.Linear(3, 4)\n"
    with pytest.raises(ValueError, match=r"inner.weight \[4, 3\].*linear.weight \[24, 40\]"):
        loaded(adapted(candidate, text, facts, "cpp"))


@pytest.mark.parametrize(("text", "words"), [("def f(:", "no Python"), ("x = 1\n", "neither ModelNew nor kernel_fn")])
def test_a_text_that_is_no_candidate_is_refused(text: str, words: str):
    whole, facts = problem("2_tiny_result")
    with pytest.raises(InvalidKernel, match=words):
        adapted(text, whole, facts, "cpp")


def test_a_file_with_kernel_fn_is_taken_as_it_is():
    whole, facts = problem("2_tiny_result")
    text = (CANDIDATES / "level2" / "2_tiny_result--right.py").read_text()
    assert adapted(text, whole, facts, "cpp") == text


def test_problems_are_found_by_level_and_number_and_nothing_is_an_error():
    names = [file.stem for file in find_problems(PROBLEMS, levels=[1])]
    assert names[:3] == ["1_rectangular_product", "2_scaled_by_a_number", "3_running_sum"]
    with pytest.raises(UsageError, match="no problem is found"):
        find_problems(PROBLEMS, names=["absent"])


def test_shares_count_problems_that_can_be_judged_and_a_threshold_must_be_passed():
    """Three problems of a level: 2.0 times as fast, right and not timed, refused."""
    found = {
        "a": ProblemScore(name="a", level=1, candidates=1, right=1, best=1, speedups={"pytorch": Ratio(2.0, 1.9, 2.1)}),
        "b": ProblemScore(name="b", level=1, candidates=1, right=1, best=1),
        "c": ProblemScore(name="c", level=1, refused="for a reason"),
    }
    level = level_of("level 1", list(found.values()))
    assert (level.problems, level.refused) == (2, 1)
    assert level.fast == {"pytorch": {0.0: 1.0, 1.0: 0.5, 1.5: 0.5, 2.0: 0.0, 3.0: 0.0, 5.0: 0.0}}
    drawn = FastP(level.name, level.problems, level.refused, level.fast)
    assert list(fast_p([drawn]).data[0].y) == [100, 50, 50, 0, 0, 0]
    assert fast_p_table([drawn]).rows[0] == ("level 1", "over PyTorch eager", 2, 1, 100, 50, 50, 0, 0, 0)
    with pytest.raises(UsageError, match="no problem"):
        fast_p([FastP("level 1", 0, 1, {})])


def test_a_collection_is_taken_up_where_it_was_left_and_keeps_its_settings(tmp_path: Path):
    settings = Settings(device="cpu", backend="cpp", compiled=False)
    files = find_problems(PROBLEMS, names=["7_rectifier", "3_always"])
    first = Collection.begin(tmp_path / "some", settings)
    assert [bool(one.refused) for one in first.add(files[:1], lambda _text: None)] == [False]
    again = Collection.begin(tmp_path / "some", settings)
    assert [one.name for one in again.add(files, lambda _text: None)] == ["level2_3_always_nothing"]
    found = score(again, again.select())
    assert [one.state for one in found.problems] == ["not begun", "refused"]
    assert found.levels[0].fast["pytorch"] == dict.fromkeys(THRESHOLDS, 0.0)
    with pytest.raises(UsageError, match="other settings"):
        Collection.begin(tmp_path / "some", Settings(device="cpu", backend="triton"))


@pytest.mark.thorough
def test_the_whole_way_zeros_fool_the_benchmark_and_not_the_verification(tmp_path: Path):
    root = ("--root", tmp_path)
    made = autokernel("kernelbench", "new", PROBLEMS, "--problem", "2_tiny", "--no-compile", "--device", "cpu", *root)
    assert made.returncode == 0, made.stderr
    done = autokernel("kernelbench", "run", "kernelbench", "--candidates", CANDIDATES, *root, timeout=280)
    assert done.returncode == 0, done.stderr + done.stdout
    figure = tmp_path / "fast.html"
    shown = autokernel("kernelbench", "score", "kernelbench", "--figure", figure, *root)
    assert "experiment 2: the benchmark's check is content, ours is not" in shown.stdout, shown.stderr
    assert figure.stat().st_size > 1000
    collection = Collection(tmp_path / "kernelbench")
    found = score(collection, collection.select()).problems[0]
    assert (found.candidates, found.right, found.best, found.severe) == (2, 1, 1, ())
    assert [number for number, _why in found.deceived] == [2] and "element" in found.deceived[0][1]
    assert found.speedups["pytorch"].value > 0
    decisions = {one.number: one.decision for one in collection.run("level2_2_tiny_result").experiments}
    assert decisions == {0: "baseline", 1: "keep", 2: "revert"}  # however fast PyTorch's own kernel is
    assert (tmp_path / "kernelbench" / "runs" / "level2_2_tiny_result" / "results.tsv").read_text().count("\n") == 4


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_delegation_rounding_and_a_size_written_in_are_each_rejected_for_their_cause(tmp_path: Path):
    root = ("--root", tmp_path)
    autokernel("kernelbench", "new", PROBLEMS, "--problem", "1_rect", "--no-compile", "--device", "cpu", *root)
    autokernel("kernelbench", "run", "kernelbench", "--candidates", CANDIDATES, *root, timeout=600)
    found = json.loads(autokernel("kernelbench", "score", "kernelbench", "--json", *root).stdout)["problems"][0]
    assert (found["right"], found["best"]) == (1, 4)
    reasons = dict(found["deceived"])
    assert "library_call" in reasons[1] and "edge: rows=97" in reasons[2] and "smoke" in reasons[3]


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_the_starter_of_every_problem_is_right(tmp_path: Path):
    root = ("--root", tmp_path)
    autokernel("kernelbench", "new", PROBLEMS, "--no-compile", "--device", "cpu", *root, timeout=600)
    done = autokernel("kernelbench", "run", "kernelbench", *root, timeout=1500)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("baseline") == 14 and "rejected" not in done.stdout


def test_candidates_that_belong_to_no_problem_are_said(tmp_path: Path):
    (tmp_path / "given").mkdir()
    shutil.copy(CANDIDATES / "level2" / "2_tiny_result.py", tmp_path / "given" / "other.py")
    collection = Collection.begin(tmp_path / "c", Settings(device="cpu", backend="cpp", compiled=False))
    list(collection.add(find_problems(PROBLEMS, names=["7_rectifier"]), lambda _text: None))
    with pytest.raises(UsageError, match="no file in .* is called as one of the problems"):
        candidates(tmp_path / "given", collection.select())


def test_a_given_file_that_is_no_candidate_does_not_keep_the_others_from_being_judged(tmp_path: Path):
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "fits.py").write_text("class ModelNew:\n    pass\n")
    collection = Collection.begin(tmp_path / "c", Settings(device="cpu", backend="cpp", compiled=False))
    (entry,) = collection.add(find_problems(PROBLEMS, names=["7_rectifier"]), lambda _text: None)
    given = [tmp_path / name for name in ("none.py", "fits.py", "absent.py")]
    texts, unfit = texts_of(collection, entry, given)
    assert [name for name, _text in texts] == ["fits.py"] and "def kernel_fn(x):" in texts[0][1]
    assert "neither ModelNew nor kernel_fn" in unfit[0] and "absent.py" in unfit[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("new", "no/such/folder"), "is no folder"),
        (("run", "absent"), "no KernelBench collection 'absent'"),
        (("score", "absent"), "no KernelBench collection 'absent'"),
    ],
)
def test_wrong_use_is_one_message(arguments: tuple[str, ...], words: str, tmp_path: Path):
    done = autokernel("kernelbench", *arguments, "--root", tmp_path)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_on_a_gpu_starters_with_products_convolutions_and_recurrences_are_right(tmp_path: Path):
    root = ("--root", tmp_path)
    chosen = [part for word in ("1_rect", "1_conv", "1_recurrent") for part in ("--problem", word)]
    made = autokernel("kernelbench", "new", PROBLEMS, *chosen, "--no-compile", "--device", "cuda", *root, timeout=300)
    assert made.returncode == 0 and "refused:" not in made.stdout, made.stdout + made.stderr
    done = autokernel("kernelbench", "run", "kernelbench", *root, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("baseline") == 3 and "rejected" not in done.stdout, done.stdout
