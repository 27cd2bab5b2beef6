"""Operations are found by data flow, in whatever way a model writes them, and nothing else is taken for one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from autokernel.profiling import patterns
from autokernel.profiling.cases import case_of, main_dtype
from autokernel.profiling.graph import Graph
from autokernel.profiling.stream import Recorder

B, H, S, D, N = 2, 3, 8, 4, 24


def matches(function, *inputs, model=None):
    recorder = Recorder()
    with torch.no_grad(), recorder.recording(model):
        function(*inputs)
    found = patterns.find(Graph(recorder.calls))
    taken = [index for match in found for index in match.calls]
    assert len(taken) == len(set(taken))  # no call is in two operations
    return found


def only(kind, function, *inputs, model=None):
    (match,) = [one for one in matches(function, *inputs, model=model) if one.kind == kind]
    return match


def kinds(function, *inputs, model=None):
    return [match.kind for match in matches(function, *inputs, model=model)]


# --- normalisation


def rms_of_llama(x, weight):
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def rms_by_division(x, weight):
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5) * weight


def rms_by_reciprocal(x, weight):
    return x * torch.sqrt(torch.square(x).mean(-1, True) + 1e-5).reciprocal() * weight


def rms_by_power(x, weight):
    return (x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).pow(-0.5)) * weight


def rms_of_pytorch(x, weight):
    return functional.rms_norm(x, (N,), weight, 1e-5)


@pytest.mark.parametrize("written", [rms_of_llama, rms_by_division, rms_by_reciprocal, rms_by_power, rms_of_pytorch])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_root_mean_square_normalisation_is_found_however_it_is_written(written, dtype):
    x, weight = torch.randn(B, S, N, dtype=dtype), torch.randn(N, dtype=dtype)
    match = only("rmsnorm", written, x, weight)

    assert (match.unlike, match.options) == ("", {"eps": 1e-5})
    assert match.inputs["x"].shape == (B, S, N)
    assert match.inputs["weight"].shape == (N,)
    assert match.output.shape == (B, S, N)


def test_the_casts_around_a_normalisation_belong_to_it():
    x, weight = torch.randn(B, N, dtype=torch.bfloat16), torch.randn(N, dtype=torch.bfloat16)
    match = only("rmsnorm", rms_of_llama, x, weight)

    assert match.inputs["x"].dtype == match.output.dtype == "bfloat16"
    assert len(match.calls) == 8  # cast, pow, mean, add, rsqrt, two products, cast


def test_a_weight_that_counts_from_one_is_noted():
    def gemma(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + weight)

    assert only("rmsnorm", gemma, torch.randn(B, N), torch.randn(N)).details == {"weight_offset": 1.0}


def test_a_normalisation_without_weight_is_found_and_not_covered():
    def bare(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    assert only("rmsnorm", bare, torch.randn(B, N)).unlike == "without weight"


@pytest.mark.parametrize(
    "other",
    [
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6) * w,  # over the rows
        lambda x, w: x * torch.rsqrt(x.abs().mean(-1, keepdim=True) + 1e-6) * w,  # no squares
        lambda x, w: w * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) + w,  # x itself is not scaled
    ],
)
def test_what_only_looks_like_a_normalisation_is_not_taken_for_one(other):
    assert "rmsnorm" not in kinds(other, torch.randn(N, N), torch.randn(N))


def layer_by_mean(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) * weight + bias


def layer_by_variance(x, weight, bias):
    spread = x.var(-1, keepdim=True, unbiased=False)
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(spread + 1e-5) * weight + bias


def layer_of_pytorch(x, weight, bias):
    return functional.layer_norm(x, (N,), weight, bias, 1e-5)


@pytest.mark.parametrize("written", [layer_by_mean, layer_by_variance, layer_of_pytorch])
def test_layer_normalisation_is_found_however_it_is_written(written):
    match = only("layernorm", written, torch.randn(B, S, N), torch.randn(N), torch.randn(N))

    assert (match.unlike, match.options) == ("", {"eps": 1e-5})
    assert set(match.inputs) == {"x", "weight", "bias"}


# --- attention

LATER = torch.ones(S, S, dtype=torch.bool).triu(1)


def qkv():
    return tuple(torch.randn(B, H, S, D) for _ in range(3))


def attention_of(mask):
    def attention(q, k, v):
        return torch.softmax(mask(q @ k.transpose(-1, -2) / math.sqrt(D)), dim=-1) @ v

    return attention


@pytest.mark.parametrize(
    ("mask", "causal"),
    [
        (lambda scores: scores, False),
        (lambda scores: scores.masked_fill(LATER, float("-inf")), True),
        (lambda scores: scores + torch.zeros(S, S).masked_fill(LATER, torch.finfo(torch.float32).min), True),
        (lambda scores: torch.where(~LATER, scores, torch.tensor(-1e9)), True),
        (lambda scores: torch.zeros(B, 1, S, S).masked_fill(LATER, float("-inf")) + scores, True),
        (lambda scores: scores + torch.zeros(1, 1, S, S), False),
    ],
)
def test_attention_by_hand_is_found_with_its_mask_read_from_the_values(mask, causal):
    match = only("flash_attention", attention_of(mask), *qkv())

    assert (match.unlike, match.options) == ("", {"causal": causal})
    assert [match.inputs[name].shape for name in "QKV"] == [(B, H, S, D)] * 3


def test_a_mask_that_is_not_the_causal_one_is_not_covered():
    padding = torch.zeros(B, 1, 1, S).masked_fill(torch.arange(S) > 5, float("-inf"))
    match = only("flash_attention", attention_of(lambda scores: scores + padding), *qkv())

    assert "mask" in match.unlike


def test_a_learned_bias_on_the_scores_is_not_covered():
    bias = torch.randn(1, H, S, S)
    assert "bias" in only("flash_attention", attention_of(lambda scores: scores + bias), *qkv()).unlike


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "MATH"])
def test_scaled_dot_product_attention_is_found_whichever_backend_runs(backend, causal, scale):
    def attention(q, k, v):
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

    match = only("flash_attention", attention, *qkv())

    assert match.unlike == ""
    assert match.options["causal"] is causal
    assert match.options.get("sm_scale") == (None if scale is None else pytest.approx(scale, rel=1e-5))


def test_a_scale_on_the_queries_is_part_of_the_attention():
    def attention(q, k, v):
        return torch.softmax((q * 0.25) @ k.transpose(-1, -2), dim=-1) @ v

    match = only("flash_attention", attention, *qkv())
    assert match.options == {"causal": False, "sm_scale": 0.25}
    assert len(match.calls) == 4  # scaling, product, softmax, product


def test_dropout_of_the_probabilities_is_not_covered():
    def attention(q, k, v):
        return functional.dropout(torch.softmax(q @ k.transpose(-1, -2), dim=-1), 0.1, training=True) @ v

    assert only("flash_attention", attention, *qkv()).unlike == "dropout of 0.1"


def test_attention_to_other_places_is_not_covered():
    q, _, _ = qkv()
    k, v = torch.randn(B, H, 5, D), torch.randn(B, H, 5, D)

    assert only("flash_attention", attention_of(lambda s: s), q, k, v).unlike == "8 queries against 5 keys"


def test_softmax_written_out_is_part_of_an_attention_too():
    def attention(q, k, v):
        scores = q @ k.transpose(-1, -2) * D**-0.5
        terms = torch.exp(scores - scores.amax(-1, keepdim=True))
        return (terms / terms.sum(-1, keepdim=True)) @ v

    assert kinds(attention, *qkv()) == ["flash_attention"]


def test_a_softmax_between_no_products_stays_a_softmax():
    found = matches(lambda x: torch.softmax(x + x.mean(), dim=-1) * 2, torch.randn(B, S, N))
    assert [(match.kind, match.unlike) for match in found] == [("softmax", "")]

    (across,) = matches(lambda x: torch.softmax(x, dim=1), torch.randn(B, S, N))
    assert across.unlike == "not over the last dimension"


def test_a_long_sum_above_a_softmax_is_searched_in_time():
    def deep(x):
        for _ in range(60):
            x = x + x.sin()
        return torch.softmax(x, dim=-1)

    assert kinds(deep, torch.randn(B, S, N)) == ["softmax"]


# --- the gated block


class Gated(nn.Module):
    def __init__(self, activation, *, bias=False):
        super().__init__()
        self.gate, self.up = nn.Linear(N, 40, bias=bias), nn.Linear(N, 40, bias=bias)
        self.down = nn.Linear(40, N, bias=bias)
        self.activation = activation

    def forward(self, x):
        return self.down(self.activation(self.gate(x)) * self.up(x))


@pytest.mark.parametrize(
    ("activation", "name", "covered"),
    [
        (functional.silu, "silu", True),
        (lambda x: x * torch.sigmoid(x), "silu", True),
        (functional.gelu, "gelu", True),
        (lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), "gelu", True),
        (torch.relu, "relu", True),
        (lambda x: functional.gelu(x, approximate="tanh"), "gelu_tanh", False),
        (lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3))), "gelu_tanh", False),
        (lambda x: x * torch.sigmoid(1.702 * x), "quick_gelu", False),
        (torch.sigmoid, "sigmoid", False),
    ],
)
def test_a_gated_block_is_found_with_its_activation(activation, name, covered):
    model = Gated(activation)
    match = only("fused_mlp", model, torch.randn(B, S, N), model=model)

    assert match.options == {"activation": name}
    assert bool(match.unlike) is not covered
    assert {name: match.inputs[name].parameter for name in ("w_gate", "w_up", "w_down")} == {
        "w_gate": "gate.weight", "w_up": "up.weight", "w_down": "down.weight",
    }  # fmt: skip


def test_gate_and_up_from_one_product_are_found():
    joint, down = nn.Linear(N, 80, bias=False), nn.Linear(40, N, bias=False)

    def block(x):
        gate, up = joint(x).chunk(2, dim=-1)
        return down(functional.silu(gate) * up)

    assert only("fused_mlp", block, torch.randn(S, N)).details == {"joint_gate_up": True}


def test_a_gated_block_with_biases_is_not_covered():
    model = Gated(functional.silu, bias=True)
    assert only("fused_mlp", model, torch.randn(S, N), model=model).unlike == "with a bias"


def test_a_block_without_a_gate_is_two_products():
    model = nn.Sequential(nn.Linear(N, 40), nn.SiLU(), nn.Linear(40, N))
    swish = nn.Sequential(nn.Linear(N, 40, bias=False), nn.Linear(40, N, bias=False))

    assert kinds(model, torch.randn(S, N), model=model) == ["matmul", "matmul"]
    hidden = lambda x: (lambda h: swish[1](h * torch.sigmoid(h)))(swish[0](x))  # noqa: E731
    assert kinds(hidden, torch.randn(S, N)) == ["matmul", "matmul"]


# --- rotary embedding


def angles(width=D):
    angle = torch.arange(S)[:, None] * 100.0 ** -(torch.arange(width // 2) / (width // 2))
    return angle.cos(), angle.sin()


def half(x):
    cos, sin = (torch.cat((one, one), dim=-1) for one in angles())
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def half_of_slices(x):
    cos, sin = angles()
    first, second = x[..., : D // 2], x[..., D // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def neighbours(x):
    cos, sin = angles()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def neighbours_by_turning(x):
    cos, sin = (one.repeat_interleave(2, dim=-1) for one in angles())
    turned = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    return x * cos + turned * sin


def neighbours_unbound(x):
    cos, sin = angles()
    even, odd = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def complex_numbers(x):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.complex(*angles())).flatten(-2).to(x.dtype)


@pytest.mark.parametrize(
    ("written", "style"),
    [
        (half, "half"),
        (half_of_slices, "half"),
        (neighbours, "interleaved"),
        (neighbours_by_turning, "interleaved"),
        (neighbours_unbound, "interleaved"),
        (complex_numbers, "interleaved"),
    ],
)
def test_rotary_embedding_is_found_with_its_style(written, style):
    match = only("rotary_embedding", written, torch.randn(B, H, S, D))

    assert match.details == {"style": style}
    assert match.options == ({"interleaved": False} if style == "half" else {})
    assert match.unlike == ""
    assert match.inputs["x"].shape == (B, H, S, D)
    assert case_of(match) == ({"B": B, "H": H, "S": S, "D": D}, "")


def turned(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


HEADS, POSITIONS = torch.randn(B, S, H, D).transpose(1, 2), torch.randn(B, S, H, D)
SHAPE = {"B": B, "H": H, "S": S, "D": D}


@pytest.mark.parametrize(
    ("x", "sizes", "shape", "dtype"),
    [
        (HEADS, (S, D), SHAPE, "float32"),
        (HEADS, (1, 1, S, D), SHAPE, "float32"),
        (HEADS, (B, 1, S, D), {**SHAPE, "B": 1, "S": B * S}, "float32"),  # a table for each sequence
        (POSITIONS, (1, S, 1, D), SHAPE, "float32"),
        (POSITIONS, (B, S, 1, D), {**SHAPE, "B": 1, "S": B * S}, "float32"),
        (HEADS.bfloat16(), (S, D), SHAPE, "float32"),  # the table's dtype is the wider
    ],
)
def test_a_rotation_has_the_sizes_that_a_kernel_is_given(x, sizes, shape, dtype):
    match = only("rotary_embedding", turned, x, torch.randn(sizes), torch.randn(sizes))

    assert case_of(match) == (shape, "")
    assert main_dtype(match) == dtype


@pytest.mark.parametrize(
    ("x", "sizes", "reason"),
    [
        (HEADS, (H, S, D), "a table of 3x8x4"),
        (HEADS, (B, H, S, D), "a table of 2x3x8x4"),
        (HEADS.contiguous(), (B, 1, S, D), "a table of 2x1x8x4"),  # would need a copy
        (torch.randn(S, D), (S, D), "2 dimensions"),
    ],
)
def test_a_rotation_that_no_kernel_is_given_says_why(x, sizes, reason):
    match = only("rotary_embedding", turned, x, torch.randn(sizes), torch.randn(sizes))

    assert match.unlike.startswith(reason)
    assert case_of(match)[1] == match.unlike


def test_joining_halves_without_turning_them_is_no_rotary_embedding():
    assert kinds(lambda x: torch.cat((x[..., 2:], x[..., :2]), dim=-1) * 2 + x, torch.randn(B, H, S, D)) == []


# --- the loss, products, sums


def test_cross_entropy_is_found_in_its_two_ways():
    logits, targets = torch.randn(6, N), torch.randint(N, (6,))
    by_hand = lambda x, t: (torch.logsumexp(x, -1) - x.gather(1, t[:, None])[:, 0]).mean()  # noqa: E731
    by_parts = lambda x, t: -torch.log_softmax(x, -1).gather(1, t[:, None]).mean()  # noqa: E731

    assert only("cross_entropy", functional.cross_entropy, logits, targets).unlike == ""
    assert only("cross_entropy", by_hand, logits, targets).unlike == ""
    assert only("cross_entropy", by_parts, logits, targets).kind == "cross_entropy"


def test_the_cast_of_the_logits_belongs_to_the_loss():
    def loss(x, t):
        return functional.cross_entropy(x.float(), t)

    match = only("cross_entropy", loss, torch.randn(6, N, dtype=torch.bfloat16), torch.randint(N, (6,)))
    assert (match.inputs["logits"].dtype, len(match.calls)) == ("bfloat16", 3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"reduction": "sum"}, "mean"),
        ({"ignore_index": 0}, "ignores 0"),
        ({"weight": torch.ones(N)}, "weights"),
        ({"label_smoothing": 0.1}, "smoothing"),
    ],
)
def test_another_loss_of_the_same_name_is_not_covered(options, reason):
    def loss(x, t):
        return functional.cross_entropy(x, t, **options)

    assert reason in only("cross_entropy", loss, torch.randn(6, N), torch.randint(N, (6,))).unlike


def test_products_and_sums_say_what_the_shipped_operation_does_not_do():
    def mixed(a, b):
        (a @ a.T).sum(-1)
        torch.bmm(b, b.transpose(1, 2)).sum((0, 1))
        return functional.linear(a, a[:3], torch.ones(3))

    found = [
        (match.kind, match.unlike, match.details) for match in matches(mixed, torch.randn(S, N), torch.randn(B, S, N))
    ]
    assert found == [
        ("matmul", "", {}),
        ("reduce", "", {}),
        ("matmul", "a batch of matrices", {}),
        ("reduce", "not over the last dimension alone", {}),
        ("matmul", "", {"bias": True}),
    ]


def test_integers_are_not_summed_as_an_operation():
    assert kinds(lambda x: x.sum(-1), torch.arange(N)[None]) == []
