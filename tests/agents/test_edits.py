"""Answers are read strictly: what is not clearly one candidate is refused, with what to do."""

from __future__ import annotations

import pytest

from autokernel.agents.edits import Candidate, Edit, UnusableAnswer, applied, objection, parse
from tests.agents.model_server import edit, whole_file
from tests.scripted import kernel

SOURCE = kernel(1.5)


def one(text: str) -> Candidate:
    (candidate,) = parse(text)
    return candidate


@pytest.mark.parametrize("info", ["python", "py", "", "python kernel.py"])
def test_a_whole_file_in_one_block(info):
    candidate = one(f"HYPOTHESIS: faster\n\n```{info}\n{SOURCE}```\nThat is all.")

    assert candidate == Candidate(hypothesis="faster", source=SOURCE)


def test_a_longer_fence_may_hold_shorter_ones():
    source = SOURCE + '"""\n```\nexample\n```\n"""\n'

    assert one(f"HYPOTHESIS: x\n````python\n{source}````").source == source


def test_snippets_without_kernel_fn_do_not_count():
    text = f"HYPOTHESIS: x\n```\nBLOCK = 1\n```\n```python\n{SOURCE}```"

    assert one(text).source == SOURCE


def test_what_a_model_thought_before_does_not_count():
    assert one(f"<think>\n```python\n{kernel(9.0)}```\n</think>\n{whole_file(SOURCE)}").source == SOURCE


@pytest.mark.parametrize(
    "line",
    ["HYPOTHESIS: a b", "**HYPOTHESIS:** a b", "## Hypothesis: a b", "HYPOTHESIS:\na b", "HYPOTHESIS: a\nb"],
)
def test_a_hypothesis_is_found_and_made_one_line(line):
    assert one(f"{line}\n\n```python\n{SOURCE}```").hypothesis == "a b"


def test_without_a_hypothesis_the_first_line_stands_for_it():
    assert one(f"I widen the loads.\n```python\n{SOURCE}```").hypothesis == "I widen the loads."
    assert one(f"```python\n{SOURCE}```").hypothesis == "no hypothesis given"


def test_edits_in_or_outside_of_a_fence():
    plain = edit("SPEED = 1.5", "SPEED = 2.0")
    fenced = plain.replace("<<<<<<<", "```python\n<<<<<<<") + "```\n"

    assert one(plain).edits == one(fenced).edits == (Edit("SPEED = 1.5", "SPEED = 2.0"),)
    assert applied(one(plain), SOURCE) == kernel(2.0)


def test_edits_are_applied_one_after_the_other():
    text = edit("SPEED = 1.5", "SPEED = 2.0") + edit("SPEED = 2.0\nWRONG = False", "SPEED = 3.0\nWRONG = False")

    assert applied(one(text), SOURCE) == kernel(3.0)


def test_an_edit_may_delete_lines_and_may_hold_fences():
    text = edit("WRONG = False", "")
    assert applied(one(text), SOURCE) == SOURCE.replace("WRONG = False\n", "")
    with_fence = edit("WRONG = False", "WRONG = False\n# ```")
    assert "# ```" in applied(one(with_fence), SOURCE)


def test_an_edit_finds_lines_with_tabs_as_the_prompt_shows_them():
    source = SOURCE.replace("    return x", "\treturn x")

    assert applied(one(edit("    return x", "    return x + 0")), source).endswith("    return x + 0\n")


def test_a_base_is_read():
    assert one("BASE: experiment 7\n" + edit("a", "b")).base == 7
    assert one(edit("a", "b")).base is None


def test_candidates_are_divided():
    text = "Ideas:\nCANDIDATE 1\n" + whole_file(SOURCE, "one") + "## Candidate 2:\n" + edit("a", "b", "two")

    assert [candidate.hypothesis for candidate in parse(text, most=3)] == ["one", "two"]
    assert [candidate.hypothesis for candidate in parse(text, most=1)] == ["one"]


def test_a_candidates_heading_within_a_file_divides_nothing():
    assert one(whole_file(SOURCE + "CANDIDATE 2\n")).source == SOURCE + "CANDIDATE 2\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Use shared memory.", "prose only"),
        ("```python\nx = 1\n```", "1 blocks, none of which defines kernel_fn"),
        (whole_file(SOURCE) + whole_file(SOURCE), "2 blocks define kernel_fn"),
        (whole_file(SOURCE) + edit("a", "b"), "a whole file and edits"),
        (f"```python\n{SOURCE}", "not closed"),
        (f"~~~python\n{SOURCE}```", "not closed"),
        ("<<<<<<< SEARCH\na\n=======\nb\n", "not closed by '>>>>>>> REPLACE'"),
        ("<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n", "comes too early"),
        ("<<<<<<< SEARCH\na\n<<<<<<< SEARCH\n", "comes too early"),
        (edit("", "b"), "empty SEARCH text"),
        (edit("a", "a"), "replaces its text by itself"),
        ("x" * 500_000, "over the limit"),
    ],
)
def test_an_unclear_answer_is_refused(text, message):
    with pytest.raises(UnusableAnswer, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("SPEED  =  1.5", "with other white space"),
        ("SPEED = 1.4", r"'SPEED = 1.4' is the first line to look at; the file has 'SPEED = 1.5'"),
        ("x", "is not in the file"),
    ],
)
def test_an_edit_that_does_not_fit_says_why(search, message):
    with pytest.raises(UnusableAnswer, match=message):
        applied(one(edit(search, "y")), SOURCE)


def test_an_edit_that_fits_twice_names_the_lines():
    with pytest.raises(UnusableAnswer, match=r"stands 2 times in the file \(lines 1, 3\)"):
        applied(one(edit("a", "c")), "a\nb\na\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SOURCE, ""),
        ("if True:\n    def kernel_fn(x): pass\nBACKEND = 'cpp'\n", ""),
        ("from somewhere import f as kernel_fn\nBACKEND = 'cpp'\n", ""),
        ("BACKEND = 'cpp'\ndef kernel(x): pass\n", "defines no kernel_fn"),
        ("BACKEND = 'cpp'\ndef f():\n    def kernel_fn(x): pass\n", "defines no kernel_fn"),
        ("def kernel_fn(x): pass\n", "BACKEND = 'triton'"),
        ("def kernel_fn(:\n", "is no Python: line 1"),
        ("\x00", "is no Python"),
        ("(" * 100_000, "is no Python"),
    ],
)
def test_a_text_that_cannot_be_a_kernel_of_the_run(source, message):
    said = objection(source, operation="rmsnorm", backend="cpp")

    assert message in said
    assert bool(message) == bool(said)


def test_a_candidate_can_be_kept_as_json():
    candidate = Candidate(hypothesis="h", edits=(Edit("a", "b"),), base=3)

    assert Candidate.from_dict(candidate.to_dict()) == candidate
