"""Reading diffs: numbers, words, colours, both layouts, and text that wants to deceive."""

from __future__ import annotations

import difflib

from autokernel_widgets.difference import MOST_LINES, read_diff, side_by_side
from autokernel_widgets.highlight import MOST_CHARACTERS, highlight, visible

OLD = "LANES = 1  # partial sums\nUNROLL = 4\n\ndef kernel_fn(x):\n    return x\n"
NEW = "LANES = 16  # partial sums\nUNROLL = 4\nTILE = 8\n\ndef kernel_fn(x):\n    return x\n"


def diff(old: str, new: str) -> str:
    body = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/kernel.py", "b/kernel.py"))
    return f"diff --git a/kernel.py b/kernel.py\n{body}"


def changed(line):
    return [span.text for span in line.spans if span.changed]


def test_lines_carry_their_numbers_in_both_texts():
    lines = read_diff(diff(OLD, NEW), OLD, NEW).lines

    assert [(line.kind, line.old, line.new) for line in lines] == [
        ("hunk", None, None), ("removed", 1, None), ("added", None, 1), ("same", 2, 2), ("added", None, 3),
        ("same", 3, 4), ("same", 4, 5), ("same", 5, 6),
    ]  # fmt: skip


def test_the_counts_are_those_of_git():
    change = read_diff(diff(OLD, NEW), OLD, NEW)

    assert (change.added, change.removed, change.left_out) == (2, 1, 0)


def test_only_the_words_that_changed_are_marked():
    _, removed, added, *_ = read_diff(diff(OLD, NEW), OLD, NEW).lines

    assert (changed(removed), changed(added)) == (["1"], ["16"])
    assert removed.text == "LANES = 1  # partial sums"


def test_lines_with_little_in_common_are_not_marked_word_by_word():
    _, removed, added, *_ = read_diff(diff("alpha = beta(gamma)\n", "for i in range(9): pass\n")).lines

    assert changed(removed) == changed(added) == []


def test_no_diff_is_no_line():
    assert read_diff("").lines == ()


def test_a_missing_newline_at_the_end_is_said():
    text = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file\n"

    assert read_diff(text).lines[-1].text == "No newline at end of file"


def test_a_binary_kernel_is_said_to_be_one():
    change = read_diff("diff --git a/kernel.py b/kernel.py\nBinary files a/kernel.py and b/kernel.py differ\n")

    assert [line.kind for line in change.lines] == ["note"]


def test_side_by_side_pairs_what_was_replaced_and_leaves_the_other_side_empty():
    pairs = side_by_side(read_diff(diff(OLD, NEW), OLD, NEW).lines)
    numbers = [(left and left.old, right and right.new) for left, right in pairs]

    assert numbers == [(None, None), (1, 1), (2, 2), (None, 3), (3, 4), (4, 5), (5, 6)]


def test_a_very_long_diff_is_cut_and_says_so():
    change = read_diff(diff("", "".join(f"x{n} = {n}\n" for n in range(MOST_LINES + 50))))

    assert len(change.lines) == MOST_LINES
    assert change.left_out == 51
    assert change.added == MOST_LINES + 50


def test_python_and_the_cpp_within_it_are_both_coloured():
    source = 'CPP_SRC = r"""\nint main() { return 0; }  // done\n"""\nLANES = 4  # four\n'
    lines = highlight(source)

    assert ("// done", "c") in lines[1]
    assert ("return", "k") in lines[1]
    assert ("# four", "c") in lines[3]


def test_colouring_never_changes_the_text():
    broken = 'def f(:\n\t"""\n \x0c \u2028 odd\r\nLANES = 1\n\n'

    assert ["".join(text for text, _ in line) for line in highlight(broken)] == broken.split("\n")


def test_a_huge_source_is_shown_without_colours():
    lines = highlight("x = 1\n" * (MOST_CHARACTERS // 6 + 1))

    assert {kind for line in lines for _, kind in line} == {""}


def test_characters_that_deceive_the_eye_are_spelled_out():
    assert visible("a\u202eb\u200bc\x1b[31m") == "a\\u202eb\\u200bc\\u001b[31m"
    assert visible("größe = 1") == "größe = 1"


def test_a_source_that_does_not_fit_the_diff_costs_the_colours_only():
    lines = read_diff(diff(OLD, NEW), "something else\n", "").lines

    assert [line.text for line in lines if line.kind == "removed"] == ["LANES = 1  # partial sums"]
