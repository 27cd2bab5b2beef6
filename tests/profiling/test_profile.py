"""What a profile says of a model: totals that add up, targets with all that optimising them needs, no side effect."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import autokernel as ak
from autokernel.errors import ModelFailed, UsageError
from autokernel.profiling import Target
from examples.models import bert, gpt2, llama

EXAMPLES = {
    "llama": (llama.Llama, llama.example_inputs),
    "gpt2": (gpt2.GPT2, gpt2.example_inputs),
    "bert": (bert.Bert, bert.example_inputs),
}
OPERATIONS = {
    "llama": {"matmul", "rmsnorm", "flash_attention", "fused_mlp", "rotary_embedding"},
    "gpt2": {"matmul", "layernorm", "flash_attention"},
    "bert": {"matmul", "layernorm", "flash_attention"},
}


@pytest.fixture(scope="module")
def reports():
    torch.set_num_threads(1)
    return {
        name: ak.profile(model().eval(), inputs(), train=False, repeats=2) for name, (model, inputs) in EXAMPLES.items()
    }


def quick(model, inputs, **options):
    return ak.profile(model, inputs, repeats=1, floors=False, **options)


@pytest.mark.parametrize("name", EXAMPLES)
def test_shares_and_what_is_unclaimed_add_up_to_the_whole(reports, name):
    report = reports[name]
    totals = report.totals

    assert sum(target.share for target in report.targets) + totals.unclaimed_us / totals.device_us == pytest.approx(1)
    assert totals.recognised_us + totals.listed_us + totals.unclaimed_us == pytest.approx(totals.device_us)
    assert totals.busy_us + totals.host_us == pytest.approx(totals.wall_us)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_models_are_explained_and_their_operations_found(reports, name):
    report = reports[name]

    assert report.totals.explained >= 0.97
    assert {target.operation for target in report.targets} - {""} == OPERATIONS[name]
    assert report.passes <= 10
    assert report.aligned


def test_a_target_knows_sizes_options_layouts_and_places(reports):
    (norm,) = reports["llama"].operation("rmsnorm")
    (variant,) = norm.variants

    assert (variant.shape, variant.dtype, variant.options) == ({"M": 64, "N": 256}, "float32", {"eps": 1e-6})
    assert (variant.calls, norm.calls) == (5, 5)
    assert variant.inputs["x"].shape == (1, 64, 256)
    assert variant.inputs["x"].contiguous
    assert [site.path for site in variant.sites][:2] == ["layers.0.attention_norm", "layers.0.mlp_norm"]
    assert variant.sites[0].parameters == {"weight": "layers.0.attention_norm.weight"}


def test_a_projection_has_the_strides_of_its_transposed_weight(reports):
    head = reports["gpt2"].target("matmul-64x5003x192")

    assert head.variants[0].inputs["B"].stride == (1, 192)
    assert head.variants[0].sites[0].parameters == {"B": "embedding.weight"}  # tied to it


def test_covered_variants_become_timing_cases_weighted_by_their_time(reports):
    target = reports["llama"].operation("flash_attention")[0]
    (case,) = target.timing_cases()

    assert (dict(case.shape), case.dtype) == ({"B": 1, "H": 8, "S": 64, "D": 32}, "float32")
    assert case.options == {"causal": True}
    assert case.weight == pytest.approx(target.device_us)


def test_what_no_shipped_operation_covers_says_why_and_is_not_offered():
    report = quick(nn.Softmax(dim=0), torch.randn(64, 32))
    (columns,) = report.operation("softmax")

    assert not columns.offered
    assert columns.unlike == "not over the last dimension"
    with pytest.raises(UsageError, match="not over the last dimension"):
        columns.timing_cases()
    with pytest.raises(UsageError, match="not covered"):
        report.campaign_targets(["softmax"])


def test_the_rotation_of_halves_is_a_target_with_its_sizes_option_and_strides(reports):
    (rotation,) = reports["llama"].campaign_targets(["rotary_embedding"])

    (of_queries, of_keys) = sorted(rotation.timing, key=lambda one: -one.shape["H"])
    assert of_queries.shape == {"B": 1, "H": 8, "S": 64, "D": 32}
    assert of_keys.shape == {"B": 1, "H": 2, "S": 64, "D": 32}
    assert of_queries.options == of_keys.options == {"interleaved": False}
    assert of_queries.layout == of_keys.layout == "permuted"
    assert of_queries.model_us * 2 == pytest.approx(of_queries.weight)  # two layers
    assert reports["llama"].totals.recognised_us / reports["llama"].totals.device_us > 0.9


def test_timing_cases_lie_in_memory_as_the_model_has_them(reports):
    layouts = {one.name: one.timing[0].layout for one in reports["llama"].campaign_targets(least_share=0.0)}

    assert layouts["matmul-64x2000x256"] == "transposed:1"  # a Linear's weight
    assert layouts["flash_attention"] == "permuted:0"  # keys and values were repeated for their queries
    assert layouts["fused_mlp"] == "contiguous"  # its weights are taken as they are
    assert layouts["rmsnorm"] == "contiguous"
    (of_bert,) = reports["bert"].operation("flash_attention")
    assert of_bert.timing_cases()[0].layout == "permuted"


def test_the_order_is_that_of_the_time_above_the_floor(reports):
    targets = reports["bert"].targets
    above = [target.recoverable_us for target in targets]

    assert above == sorted(above, reverse=True)
    assert all(target.floor_us is not None for target in targets if target.operation)


def test_ceiling_and_gain_are_those_of_amdahl():
    from autokernel.profiling import Variant

    half = Target(
        name="a", title="a", device_us=50.0, share=0.5, variants=(Variant(device_us=50.0, floor_us=25.0),)
    )  # fmt: skip

    assert half.ceiling == pytest.approx(2.0)
    assert half.gain == pytest.approx(1 / 0.75)


def test_what_ifs_predict_the_device_time(reports):
    report = reports["gpt2"]
    head = report.target("matmul-64x5003x192")
    twice = report.what_if({head.name: 2.0})

    assert twice.saved_us == pytest.approx(head.device_us / 2)
    assert twice.speedup == pytest.approx(1 / (1 - head.share / 2))
    assert report.what_if({head.name: "free"}).speedup == pytest.approx(head.ceiling)
    assert report.what_if({head.name: "floor"}).speedup == pytest.approx(head.gain)
    all_products = report.what_if({"matmul": 2.0})
    assert all_products.saved_us == pytest.approx(sum(one.device_us for one in report.operation("matmul")) / 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nothing": 2.0}, "no target 'nothing'"),
        ({"matmul": 0.0}, "above 0"),
        ({"matmul": math.nan}, "above 0"),
        ({"matmul": "quick"}, "'floor' or 'free'"),
        ({"matmul": 2.0, "matmul-64x5003x192": 2.0}, "named twice"),
    ],
)
def test_a_wrong_what_if_is_refused(reports, changes, message):
    with pytest.raises(UsageError, match=message):
        reports["gpt2"].what_if(changes)


def test_a_saved_report_reads_back_the_same(reports, tmp_path):
    path = reports["llama"].save(tmp_path / "profile.json")
    loaded = ak.ProfileReport.load(path)

    assert loaded.targets == reports["llama"].targets
    assert loaded.totals == reports["llama"].totals
    with pytest.raises(UsageError, match="no model to capture"):
        loaded.capture("layers.0.mlp", tmp_path / "mlp.py")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 0}', '{"format": 1}'])
def test_a_file_that_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "wrong.json").write_text(text)

    with pytest.raises(UsageError):
        ak.ProfileReport.load(tmp_path / "wrong.json")


def test_the_backward_pass_is_attributed_to_the_modules_of_the_forward_pass():
    report = quick(llama.Llama(layers=1, vocabulary=64), llama.example_inputs(length=16, vocabulary=64), backward=True)
    behind = {target.title: target for target in report.targets if target.phase == "backward"}

    assert "backward of rmsnorm" in behind
    assert "layers.0.attention_norm" in behind["backward of rmsnorm"].paths
    assert not any(target.offered for target in behind.values())
    assert report.aligned
    assert report.totals.explained >= 0.97


def test_a_profile_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    model[0].weight.grad = torch.full((8, 8), 3.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(4, 8)
    random_before = torch.get_rng_state()

    quick(model.eval(), x, train=True, backward=True)

    assert not model.training
    assert not model[2].training
    assert torch.equal(model[0].weight.grad, torch.full((8, 8), 3.0))
    assert model[3].weight.grad is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model._forward_hooks
    assert not model[0]._forward_pre_hooks
    assert torch.equal(random_before, torch.get_rng_state())


def test_a_function_can_be_profiled():
    report = quick(lambda a, b: torch.softmax(a @ b, dim=-1), (torch.randn(8, 8), torch.randn(8, 8)))

    assert {target.operation for target in report.targets} == {"matmul", "softmax"}


def test_modules_that_hold_no_operation_are_listed_whole():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(144, 4))
    titles = {target.title for target in quick(model, torch.randn(2, 1, 8, 8)).targets}

    assert {"Conv2d", "GELU"} <= titles


# --- bad input


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4))

    def forward(self, x):
        return self.inner(x) + 1


def test_inputs_of_the_wrong_shape_are_refused_with_the_place_and_the_shapes():
    with pytest.raises(ModelFailed, match=r"Fails failed in inner\.0 .*\(2, 5\) float32.*check that the model runs"):
        quick(Fails(), torch.randn(2, 5))


def test_a_model_that_raises_is_reported_with_its_message():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("no such thing")

    with pytest.raises(ModelFailed, match="ValueError: no such thing") as caught:
        quick(Raises(), torch.randn(2))
    assert isinstance(caught.value.__cause__, ValueError)


def test_too_little_memory_is_reported_as_such():
    def hungry(x):
        return torch.empty(1 << 46)

    with pytest.raises(ModelFailed, match="not enough memory on cpu"):
        quick(hungry, torch.randn(2))


def test_a_model_on_the_meta_device_is_refused():
    with pytest.raises(UsageError, match="meta device"):
        quick(nn.Linear(4, 4, device="meta"), torch.randn(2, 4))
    with pytest.raises(UsageError, match="meta device"):
        quick(nn.Linear(4, 4), torch.randn(2, 4, device="meta"))


def test_control_flow_that_depends_on_data_is_followed():
    class Branches(nn.Module):
        def forward(self, x):
            return torch.softmax(x, -1) if x.sum() > 0 else x.cumsum(-1)

    operations = [
        {target.operation for target in quick(Branches(), sign * torch.ones(4, 4)).targets} for sign in (1, -1)
    ]
    assert "softmax" in operations[0]
    assert "softmax" not in operations[1]


def test_passes_that_differ_are_not_guessed_together():
    calls = []

    def changes(x):
        calls.append(0)
        return torch.softmax(x, -1) if len(calls) % 2 else torch.log_softmax(x, -1).exp()

    report = ak.profile(changes, torch.randn(64, 64), repeats=2, floors=False)

    assert any("passes differ" in note for note in report.notes)
    assert report.totals.explained >= 0.9


def test_inputs_that_the_model_changes_are_the_same_in_every_pass_and_for_the_caller():
    def doubles(x):
        x.mul_(2.0)
        assert float(x.abs().max()) == 2.0
        return torch.softmax(x, -1)

    x = torch.ones(4, 4)
    report = quick(doubles, x)

    assert torch.equal(x, torch.ones(4, 4))
    assert any("changes its inputs in place" in note for note in report.notes)


def test_dropout_in_training_mode_is_profiled_and_the_same_in_every_pass():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    report = quick(model, torch.randn(4, 8), train=True)

    assert report.training
    assert report.aligned
    assert any("Dropout" in target.title for target in report.targets)


def test_tied_weights_are_named_once():
    model = gpt2.GPT2(layers=1, vocabulary=50)
    head = next(t for t in quick(model, gpt2.example_inputs(length=8, vocabulary=50)).targets if "head" in t.paths)

    assert head.variants[0].sites[0].parameters == {"B": "embedding.weight"}


@pytest.mark.parametrize("output", [lambda y: {"a": [y, None, 3]}, lambda y: (y, "text"), lambda y: None])
def test_outputs_may_be_of_any_kind(output):
    report = quick(lambda x: output(torch.softmax(x, -1)), torch.randn(4, 4))
    assert report.operation("softmax")


def test_a_backward_pass_needs_something_to_differentiate():
    with pytest.raises(UsageError, match="requires a gradient"):
        quick(lambda x: x.argmax(), torch.randn(4), backward=True)


def test_arguments_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UsageError, match="pass an nn.Module or a function"):
        quick("model", torch.randn(2))
    with pytest.raises(UsageError, match="pass a tensor, a tuple"):
        quick(nn.Linear(2, 2), 3.0)
    with pytest.raises(UsageError, match="repeats is 0"):
        ak.profile(nn.Linear(2, 2), torch.randn(2), repeats=0)
    with pytest.raises(UsageError, match="needs a GPU"):
        quick(nn.Linear(2, 2), torch.randn(2), memory=tmp_path / "memory.pickle")
    with pytest.raises(UsageError, match="calls no PyTorch operator"):
        quick(lambda x: x, torch.randn(2))


def test_a_compiled_model_is_refused():
    with pytest.raises(UsageError, match="_orig_mod"):
        quick(torch.compile(nn.Linear(2, 2)), torch.randn(2, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operators_of_a_scripted_part_count_as_those_of_the_module_around_it():
    inner = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.Softmax(dim=-1)))
    report = quick(nn.Sequential(nn.Linear(8, 8), inner), torch.randn(2, 8))

    assert {"matmul", "softmax"} <= {target.operation for target in report.targets}


def test_the_trace_holds_the_modules_and_the_calls(tmp_path):
    quick(bert.Bert(layers=1), bert.example_inputs(length=8), trace=tmp_path / "trace.json")
    names = {event.get("name", "") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}

    assert "autokernel@layers.0.attention" in names
    assert "aten::addmm" in names


def test_keyword_inputs_and_a_loss_of_ones_own_are_used():
    model = nn.Linear(4, 4)
    seen = []

    def loss(output):
        seen.append(output.shape)
        return functional.mse_loss(output, torch.zeros(2, 4))

    quick(model, {"input": torch.randn(2, 4)}, backward=True, loss=loss)
    assert set(seen) == {torch.Size((2, 4))}


@pytest.mark.gpu
def test_on_a_gpu_kernels_belong_to_the_operators_that_launched_them():
    model = llama.Llama().cuda().bfloat16()
    report = ak.profile(model, llama.example_inputs().cuda(), train=False)

    assert report.totals.explained >= 0.97
    assert report.aligned
    assert all(target.kernels for target in report.targets if target.operation and target.device_us)
    assert report.totals.busy_us <= report.totals.wall_us
    assert report.peak_memory_bytes > 0
    assert {target.operation for target in report.targets} >= OPERATIONS["llama"]


@pytest.mark.gpu
def test_on_a_gpu_the_backward_pass_and_a_memory_snapshot_work(tmp_path):
    model = gpt2.GPT2().cuda()
    report = ak.profile(model, gpt2.example_inputs().cuda(), backward=True, memory=tmp_path / "memory.pickle")

    assert report.totals.explained >= 0.97
    assert (tmp_path / "memory.pickle").stat().st_size > 1000


def test_the_plan_becomes_targets_of_a_campaign(reports):
    report = reports["llama"]
    made = report.campaign_targets(least_share=0.0)
    by_name = {target.name: target for target in made}

    assert [target.name for target in made] == [target.name for target in report.plan]
    assert by_name["rmsnorm"].operation == "rmsnorm"
    assert by_name["rmsnorm"].timing[0].shape == {"M": 64, "N": 256}
    assert by_name["rmsnorm"].timing[0].options == {"eps": 1e-6}
    assert by_name["rmsnorm"].share == report.target("rmsnorm").share
