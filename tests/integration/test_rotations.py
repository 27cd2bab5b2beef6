"""Rotary embeddings in a model's own functions: found by what they compute, guarded by the tables' values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autokernel as ak
from autokernel.campaign import Campaign
from autokernel.evaluator import Evaluator
from autokernel.integration import integration_of
from autokernel.integration.rotations import recognise_rotation
from autokernel.ops.spec import TimingCase
from autokernel.runner.client import Limits
from examples.models import llama
from tests.evaluating import settings
from tests.integration.kernels import needs_compiler, starter
from tests.scripted import ScriptedAgent

B, H, S, D = 2, 3, 5, 8
KERNEL = starter("rotary_embedding")
NEIGHBOURS_ONLY = KERNEL.replace("def kernel_fn(", "def starter(") + (
    "\n\ndef kernel_fn(x, cos, sin):\n    return starter(x, cos, sin)\n"
)


@pytest.fixture(autouse=True)
def _seed_and_no_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def turned(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def of_hugging_face(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + turned(q) * sin, k * cos + turned(k) * sin


def of_positions(x, cos, sin):
    return x * cos[:, None] + turned(x) * sin[:, None]


def broadcast(x, cos, sin):
    return x * cos + turned(x) * sin


def in_float32(x, cos, sin):
    return (x.float() * cos.float() + turned(x.float()) * sin.float()).to(x.dtype)


def of_half_tables(x, cos, sin):
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def of_neighbours(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def of_doubled_neighbours(x, cos, sin):
    swapped = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    return x * cos + swapped * sin


class Turning(nn.Module):
    """Calls one of the functions above, by its name in this file."""

    def __init__(self, function, by_keyword=False):
        super().__init__()
        self.name, self.by_keyword = function.__name__, by_keyword

    def forward(self, *args):
        function = globals()[self.name]
        return function(*args[:-1], sin=args[-1]) if self.by_keyword else function(*args)


def angles(*sizes, base=50.0):
    angle = torch.randn(*sizes, D // 2).double() * base
    return angle.cos().float(), angle.sin().float()


def doubled(tables):
    return tuple(torch.cat((one, one), dim=-1) for one in tables)


def repeated(tables):
    return tuple(one.repeat_interleave(2, dim=-1) for one in tables)


def expanded(tables):
    return tuple(one.expand(B, S, D) for one in tables)


def heads(count=H):
    return torch.randn(B, S, count, D).transpose(1, 2)


CALLS = {
    "Hugging Face": (of_hugging_face, lambda: (heads(), heads(2), *doubled(angles(1, S)))),
    "a table for each sequence": (of_hugging_face, lambda: (heads(), heads(2), *doubled(angles(B, S)))),
    "one expanded table": (of_hugging_face, lambda: (heads(), heads(2), *expanded(doubled(angles(1, S))))),
    "tables of [S, D]": (broadcast, lambda: (heads(), *doubled(angles(S)))),
    "tables of [1, 1, S, D]": (broadcast, lambda: (heads(), *doubled(angles(1, 1, S)))),
    "positions before heads": (of_positions, lambda: (heads().transpose(1, 2), *doubled(angles(S)))),
    "float32 inside": (in_float32, lambda: (heads().bfloat16(), *doubled(angles(S)))),
    "a wide result": (broadcast, lambda: (heads().bfloat16(), *doubled(angles(S)))),
    "tables of [S, D/2]": (of_half_tables, lambda: (heads(), *angles(S))),
    "neighbours": (of_neighbours, lambda: (heads(), *angles(S))),
    "neighbours, doubled": (of_doubled_neighbours, lambda: (heads(), *repeated(angles(S)))),
    "one position": (broadcast, lambda: (torch.randn(B, H, 1, D), *doubled(angles(1)))),
}  # fmt: skip


def same(actual, expected):
    one, other = ([value] if isinstance(value, torch.Tensor) else list(value) for value in (actual, expected))
    assert len(one) == len(other)
    for got, right in zip(one, other, strict=True):
        assert (got.shape, got.dtype) == (right.shape, right.dtype)
        torch.testing.assert_close(got, right)


@needs_compiler
@pytest.mark.parametrize("by_keyword", [False, True], ids=["", "by keyword"])
@pytest.mark.parametrize("name", CALLS)
def test_a_function_that_turns_by_position_uses_the_kernel_and_gives_the_same(name, by_keyword):
    function, inputs = CALLS[name]
    args = inputs()
    model = Turning(function, by_keyword)
    expected = model(*args)

    with ak.integrate(model, [KERNEL], args, unverified=True) as fast:
        same(fast(*args), expected)
        report = fast.report()

    assert {(place.what, place.operation) for place in report.places} == {(function.__name__, "rotary_embedding")}
    assert report.kernel_calls == len(args) - 2
    assert report.original_calls == 0


def scaled(x, cos, sin):
    return 1.001 * broadcast(x, cos, sin)


def the_other_way(x, cos, sin):
    return broadcast(x, cos, -sin)


def a_part(x, cos, sin):
    return torch.cat((broadcast(x[..., :4], cos[..., :4], sin[..., :4]), x[..., 4:]), dim=-1)


def by_head(x, cos, sin):
    return broadcast(x, cos[:H, None], sin[:H, None])


@pytest.mark.parametrize("function", [scaled, the_other_way, a_part, by_head])
def test_a_function_that_computes_something_else_is_left_alone(function):
    args = (heads(), *doubled(angles(S)))

    assert recognise_rotation(function, args, {}) is None


@needs_compiler
@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        (lambda: angles(S, 2), "tables whose two parts differ"),
        (lambda: doubled(angles(1)), "tables of other sizes than it was recognised with"),
        (lambda: doubled(angles(1, S)), "tables of other sizes than it was recognised with"),
    ],
    ids=["two parts", "one row for all", "more dimensions"],
)
def test_tables_that_the_kernel_has_no_part_in_are_the_originals(tables, reason):
    x = heads()
    model = Turning(broadcast)
    with ak.integrate(model, [KERNEL], (x, *doubled(angles(S))), unverified=True) as fast:
        others = [one.reshape(S, D) if one.numel() == S * D and one.dim() == 3 and one.shape[0] != 1 else one
                  for one in tables()]  # fmt: skip
        same(fast(x, *others), broadcast(x, *others))
        report = fast.report()

    assert report.kernel_calls == 0
    assert dict(report.places[0].original_calls) == {reason: 1}


@needs_compiler
def test_a_change_of_the_tables_in_place_is_seen():
    x, (cos, sin) = heads(), doubled(angles(S))
    with ak.integrate(Turning(broadcast), [KERNEL], (x, cos, sin), unverified=True) as fast:
        same(fast(x, cos, sin), broadcast(x, cos, sin))
        cos.mul_(0.5)
        same(fast(x, cos, sin), broadcast(x, cos, sin))
        cos[:, 0] += 1  # now the parts differ
        same(fast(x, cos, sin), broadcast(x, cos, sin))
        report = fast.report()

    assert (report.kernel_calls, report.original_calls) == (2, 1)


@needs_compiler
def test_inference_tensors_which_do_not_tell_of_changes_are_read_at_each_call():
    x, tables = heads(), doubled(angles(S))
    with ak.integrate(Turning(broadcast), [KERNEL], (x, *tables), unverified=True) as fast, torch.inference_mode():
        cos, sin = (one.clone() for one in tables)
        same(fast(x, cos, sin), broadcast(x, cos, sin))
        cos[:, 0] += 1
        same(fast(x, cos, sin), broadcast(x, cos, sin))
        report = fast.report()

    assert (report.kernel_calls, report.original_calls) == (1, 1)


@needs_compiler
def test_tables_for_each_sequence_need_positions_that_follow_one_another():
    tables = doubled(angles(B, S))
    q, k = heads(), heads(2)
    with ak.integrate(Turning(of_hugging_face), [KERNEL], (q, k, *tables), unverified=True) as fast:
        same(fast(q.contiguous(), k, *tables), of_hugging_face(q, k, *tables))
        report = fast.report()

    assert report.kernel_calls == 0
    assert "positions that do not follow one another" in next(iter(report.places[0].original_calls))


@needs_compiler
def test_only_the_model_with_kernels_is_concerned_and_afterwards_the_file_is_what_it_was():
    before = globals()["broadcast"]
    args = (heads(), *doubled(angles(S)))
    one, other, plain = (Turning(broadcast) for _ in range(3))
    ak.integrate(one, [KERNEL], args, unverified=True)
    ak.integrate(other, [KERNEL], args, unverified=True)
    expected = before(*args)

    same([plain(*args), one(*args), other(*args)], [expected] * 3)
    assert globals()["broadcast"] is not before
    assert (one.report().kernel_calls, other.report().kernel_calls) == (1, 1)
    one.restore()
    assert globals()["broadcast"] is not before
    same(other(*args), expected)
    assert other.report().kernel_calls == 2
    other.restore()
    assert globals()["broadcast"] is before


@needs_compiler
def test_what_fails_under_way_leaves_the_file_as_it_was():
    before = globals()["broadcast"]
    with pytest.raises(ak.errors.UsageError, match="fails on the given inputs"):
        ak.integrate(Turning(broadcast), [KERNEL], (heads(), torch.ones(7, 7), torch.ones(7, 7)), unverified=True)

    assert globals()["broadcast"] is before


@needs_compiler
def test_a_kernel_without_the_option_turns_neighbours_and_leaves_halves_alone():
    neighbours, halves = (heads(), *angles(S)), (heads(), *doubled(angles(S)))
    with ak.integrate(Turning(of_neighbours), [NEIGHBOURS_ONLY], neighbours, unverified=True) as fast:
        same(fast(*neighbours), of_neighbours(*neighbours))
        assert fast.report().kernel_calls == 1
    with ak.integrate(Turning(broadcast), [NEIGHBOURS_ONLY], halves, unverified=True) as fast:
        same(fast(*halves), broadcast(*halves))
        report = fast.report()

    assert report.kernel_calls == 0
    assert dict(report.places[0].original_calls) == {"its kernel_fn takes no interleaved": 1}


@needs_compiler
def test_a_wrong_kernel_is_found_out_where_it_would_stand():
    wrong = KERNEL.replace("a[i] * s[i] + b[i] * c[i]", "a[i] * s[i] + b[i] * c[i] * 1.001f")
    args = (heads(), *doubled(angles(S)))
    with ak.integrate(Turning(broadcast), [wrong], args, unverified=True) as fast:
        same(fast(*args), broadcast(*args))
        report = fast.report()

    assert report.kernel_calls == 0
    assert "wrong on the model's own input" in report.refused[("", "broadcast")]


@needs_compiler
def test_under_torch_compile_the_model_keeps_its_own_function_in_one_graph():
    class Broadcasting(nn.Module):
        def forward(self, x, cos, sin):
            return broadcast(x, cos, sin)

    args = (heads(), *doubled(angles(S)))
    fast = ak.integrate(Broadcasting(), [KERNEL], args, unverified=True)
    compiled = torch.compile(fast, backend="eager", fullgraph=True)

    same(compiled(*args), broadcast(*args))
    assert fast.report().kernel_calls == 0
    same(fast(*args), broadcast(*args))
    assert fast.report().kernel_calls == 1
    fast.restore()


@needs_compiler
def test_with_gradients_the_original_runs():
    args = (heads().requires_grad_(), *doubled(angles(S)))
    with ak.integrate(Turning(broadcast), [KERNEL], args, unverified=True) as fast, torch.enable_grad():
        assert fast(*args).requires_grad
        report = fast.report()

    assert dict(report.places[0].original_calls) == {"gradients are required": 1}


@needs_compiler
async def test_from_the_profile_through_a_campaign_back_into_the_model(tmp_path):
    model = llama.Llama(layers=2, width=64, heads=4, kv_heads=2, hidden=96, vocabulary=211).eval()
    tokens = llama.example_inputs(batch=2, length=12, vocabulary=211)
    targets = ak.profile(model, tokens, repeats=1, floors=False).campaign_targets(["rotary_embedding"])
    (target,) = targets
    cases = [TimingCase(shape=one.shape, dtype="float32", options=one.options, layout=one.layout)
             for one in target.timing]  # fmt: skip
    judge = Evaluator("rotary_embedding", device="cpu", timing_cases=cases, settings=settings(limits=Limits()))
    campaign = Campaign.create(
        targets, root=tmp_path, device="cpu", judge_of=lambda _name: judge, agent_of=lambda _name: ScriptedAgent([])
    )

    summary = await campaign.run()

    (run,) = campaign.runs.values()
    assert run.best is not None, summary.stopped
    assert run.best.passed, run.best.reason
    fast = ak.integrate(model, run, tokens)  # only what was verified, sizes and option
    check = ak.check_model(fast, tokens, timed=False)
    assert check.ok, check.reason
    assert check.inputs[0].kernel_calls == 2 * 2  # queries and keys in two layers
    assert integration_of(fast).report().refused == {}
    fast.restore()
