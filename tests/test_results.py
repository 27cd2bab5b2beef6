from __future__ import annotations

import pytest

from autokernel import results
from autokernel.results import COLUMNS, ResultsFile, Row

CONTRACT = (
    "experiment tag kernel_type throughput_tflops latency_us pct_peak speedup_vs_pytorch correctness peak_vram_mb "
    "description decision backend dtype speedup_vs_best ci_low ci_high speedup_vs_compile agent tokens seconds commit "
    "timestamp worker"
)


def row(number: int, **fields) -> Row:
    return Row(
        **{"experiment": number, "tag": "run", "correctness": "PASS", "timestamp": "2025-11-30T11:35:22Z", **fields}
    )


@pytest.fixture
def file(tmp_path):
    return ResultsFile(tmp_path / "results.tsv", tmp_path / "aside")


def test_the_columns_are_those_of_the_contract_in_its_order(file):
    file.append(row(0))

    assert " ".join(COLUMNS) == CONTRACT
    assert file.path.read_text().splitlines()[0] == CONTRACT.replace(" ", "\t")


def test_a_row_is_read_back_as_it_was_written(file):
    written = row(
        3, kernel_type="rmsnorm", throughput_tflops=0.125, latency_us=66.5, pct_peak=81.25, speedup_vs_pytorch=1.5,
        peak_vram_mb=12.0, description="LANES 1 -> 8", decision="keep", backend="cpp", dtype="float32",
        speedup_vs_best=1.2, ci_low=1.1, ci_high=1.3, speedup_vs_compile=1.4, agent="search", tokens=512, seconds=3.5,
        commit="0123456789ab",
    )  # fmt: skip
    file.append(written)

    assert results.load(file.path) == [written]


def test_what_was_not_measured_is_empty_and_read_back_as_none(file):
    file.append(row(1))

    (read,) = results.load(file.path)
    assert (read.latency_us, read.tokens, read.speedup_vs_best) == (None, None, None)


@pytest.mark.parametrize("separator", ["\t", "\n", "\r\n", "\u2028", "\x85", "\v"])
def test_separators_inside_a_field_become_spaces(file, separator):
    file.append(row(1, description=f"one{separator}two"))

    assert len(file.path.read_bytes().split(b"\n")) == 3
    assert results.load(file.path)[0].description == "one two"


def test_columns_that_were_moved_or_added_by_hand_are_respected(file):
    file.path.write_text("\t".join(["note", *reversed(COLUMNS)]) + "\n")
    file.append(row(1, agent="search"))
    with open(file.path, "a") as text:
        text.write("\t".join(["mine", "", *(["2025-11-30T11:35:22Z"] + [""] * 20 + ["2"])]) + "\n")

    first, second = results.load(file.path)
    assert (first.experiment, first.agent, first.extra) == (1, "search", {"note": ""})
    assert (second.experiment, second.extra) == (2, {"note": "mine"})
    assert file.repair([]) == []


def test_a_wrong_row_is_reported_with_its_line_number_and_left_alone(file):
    file.append(row(0))
    with open(file.path, "a") as text:
        text.write("one\trun\n\n2\trun\trmsnorm\tfast\n")
    before = file.path.read_bytes()

    table = results.read(file.path)
    assert [(problem.line, problem.reason) for problem in table.problems] == [
        (3, "experiment is 'one', not a number"),
        (5, "throughput_tflops is 'fast', not a number"),
    ]
    with pytest.warns(UserWarning, match="line 3"), pytest.warns(UserWarning, match="line 5"):
        assert [one.experiment for one in results.load(file.path)] == [0]
    assert len(file.repair([])) == 2
    assert file.path.read_bytes() == before


def test_a_torn_last_line_is_moved_aside_and_a_missing_newline_is_not(file):
    file.append(row(0))
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-1])  # an editor that leaves out the last newline
    assert file.repair([row(0)]) == []
    assert file.path.read_bytes() == whole

    file.append(row(1, worker="worker-1 on node7, GPU 1"))
    file.path.write_bytes(file.path.read_bytes()[:-4])  # whether the name was longer, nobody can say
    file.repair([row(0), row(1, worker="worker-1 on node7, GPU 1")])
    assert [one.worker for one in results.load(file.path)] == ["", "worker-1 on node7, GPU 1"]
    file.path.write_bytes(whole)
    next(file._aside.iterdir()).unlink()

    file.path.write_bytes(whole + b"1\trun\trmsn")
    notes = file.repair([row(0), row(1)])
    assert [one.experiment for one in results.load(file.path)] == [0, 1]
    assert len(notes) == 2
    assert "torn" in notes[0]
    assert [kept.read_bytes() for kept in file._aside.iterdir()] == [b"1\trun\trmsn"]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_no_cut_through_the_last_row_loses_or_doubles_a_row(file, cut):
    for number in range(3):
        file.append(row(number, description="x" * 30))
    data = file.path.read_bytes()
    file.path.write_bytes(data[: len(data) - cut])

    file.repair([row(number, description="x" * 30) for number in range(3)])
    assert [one.experiment for one in results.load(file.path)] == [0, 1, 2]


def test_a_file_of_the_ten_old_columns_gets_ours_behind_them(file):
    file.path.write_text("\t".join(COLUMNS[:10]) + "\n0\trun\trmsnorm\t0.1\t5\t50%\t1.2x\tPASS\t3\tbaseline\n")
    notes = file.repair([])
    file.append(row(1, agent="search"))

    first, second = results.load(file.path)
    assert "lacked the columns decision" in notes[0]
    assert (first.pct_peak, first.speedup_vs_pytorch, first.agent) == (50.0, 1.2, "")
    assert second.agent == "search"


def test_a_lost_header_is_put_back_and_a_file_of_something_else_is_moved_aside(file):
    file.append(row(0))
    header, rest = file.path.read_bytes().split(b"\n", 1)
    file.path.write_bytes(rest)
    assert "header" in file.repair([row(0)])[0]
    assert file.path.read_bytes() == header + b"\n" + rest

    file.path.write_text("shopping list\nmilk\n")
    file.repair([row(0)])
    assert [one.experiment for one in results.load(file.path)] == [0]
    assert [kept.read_text() for kept in file._aside.iterdir()] == ["shopping list\nmilk\n"]


def test_windows_line_ends_and_a_byte_order_mark_are_read(file):
    file.append(row(0, commit="abc"))
    file.path.write_bytes(b"\xef\xbb\xbf" + file.path.read_bytes().replace(b"\n", b"\r\n"))

    assert file.repair([row(0)]) == []
    file.append(row(1))
    assert [one.experiment for one in results.load(file.path)] == [0, 1]


def test_a_missing_or_empty_file_has_no_rows(file):
    assert results.load(file.path) == []
    file.path.touch()
    assert results.load(file.path) == []


def test_the_rows_as_a_pandas_frame(file):
    pytest.importorskip("pandas")
    file.append(row(0, latency_us=5.0))
    file.append(row(1))

    frame = results.load_frame(file.path)
    assert list(frame.columns) == list(COLUMNS)
    assert frame["latency_us"].isna().tolist() == [False, True]
