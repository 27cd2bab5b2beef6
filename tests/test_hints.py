"""The known name that a wrong one was probably meant for."""

from __future__ import annotations

import pytest

from autokernel import agents, backends, ops
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("sofmax", ops.names(), "softmax"),
        ("rmsnrom", ops.names(), "rmsnorm"),
        ("flash-attention", ops.names(), "flash_attention"),
        ("Matmul", ops.names(), "matmul"),
        ("trition", backends.NAMES, "triton"),
        ("CUDA", backends.NAMES, "cuda"),
        ("flaot16", ("float16", "bfloat16"), "float16"),
        ("rmsnrm-1", ("rmsnorm-1", "rmsnorm-2"), "rmsnorm-1"),
    ],
)
def test_a_slip_is_recognised(name, known, meant):
    assert did_you_mean(name, known) == f" (did you mean {meant!r}?)"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("frobnicate", ops.names()),
        ("metal", backends.NAMES),
        ("float64", ("float16", "bfloat16", "float32")),  # another dtype, and no slip
        ("rmsnorm-3", ("rmsnorm-1", "rmsnorm-2")),
        ("softmax", ops.names()),
        ("", ops.names()),
    ],
)
def test_what_is_like_none_of_them_is_not_guessed_at(name, known):
    assert did_you_mean(name, known) == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("serch", r"unknown agent 'serch' \(did you mean 'search'\?\); known: auto"),
        ("opnai:gpt-5", r"did you mean 'openai'\?"),
        ("replay", r"unknown agent 'replay'; known: .*replay:RUN"),
        ("search:3", r"unknown agent 'search:3'; known"),
    ],
)
def test_an_agents_name_is_checked_with_its_argument(name, message):
    with pytest.raises(UsageError, match=message):
        agents.check(name)
