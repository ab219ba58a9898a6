import dataclasses

import numpy as np
import pytest

from paceline.dtypes import DType
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, Phase, monomials
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload

MODELS = ["resnet50", "gpt2", "lstm", "bert-base", "mnist-cnn"]


def lowered(name="resnet50", task="train", which=0, **settings):
    graph = load_workload(name, task=task).passes[which].graph
    return lower(graph, Configuration(**settings))


def flop(one, batch=4, seq=64):
    return float(one.costs.count @ (one.costs.flop @ monomials(batch, seq)[0]))


def moved_bytes(one, batch=4, seq=64):
    columns = one.costs.read_bytes + one.costs.write_bytes
    return float(one.costs.count @ (columns @ monomials(batch, seq)[0]))


def peak(one, batch=4, seq=64):
    return float((one.memory.by_owner.sum(axis=1) @ monomials(batch, seq)[0]).max())


def num_kernels(one):
    return float(one.costs.count @ one.costs.num_kernels)


@pytest.mark.parametrize("name", MODELS)
def test_counts_and_order_agree(name):
    costs = lowered(name).costs
    assert np.array_equal(np.bincount(costs.order), costs.count)
    rows = [
        (costs.kind[i], costs.phase[i], *costs.flop[i], *costs.read_bytes[i], *costs.write_bytes[i],
         *costs.weight_bytes[i], *costs.dims[i].ravel(), costs.num_kernels[i], costs.variant[i])
        for i in range(len(costs.kind))
    ]  # fmt: skip
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("name", MODELS)
def test_fp32_lowering_loses_no_arithmetic(name):
    graph = load_workload(name).passes[0].graph
    whole = float((graph.ops.flop @ monomials(4, 64)[0]).sum())
    assert flop(lowered(name, precision="fp32")) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_autocast_changes_bytes_and_not_arithmetic(name):
    wide, narrow = lowered(name, precision="fp32"), lowered(name, precision="bf16")
    assert flop(narrow) == pytest.approx(flop(wide), rel=1e-12)
    assert narrow.parameter_bytes == wide.parameter_bytes
    assert narrow.gradient_bytes == wide.gradient_bytes
    assert (narrow.costs.kind == OpKind.CAST).sum() > (wide.costs.kind == OpKind.CAST).sum()


def test_autocast_halves_the_activations_of_a_convolutional_network():
    wide, narrow = lowered(precision="fp32"), lowered(precision="bf16")
    at = monomials(64, 1)[0]
    activations = [
        float((m.memory.by_owner[:, Owner.ACTIVATION] @ at).max()) for m in (wide, narrow)
    ]
    assert activations[1] / activations[0] == pytest.approx(0.5, abs=0.08)


def test_fp8_multiplies_weights_in_eight_bits_and_attention_and_logits_in_sixteen():
    costs = lowered("gpt2", precision="fp8").costs
    attends = np.isin(costs.kind, (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD))
    assert set(costs.matmul_dtype[attends]) == {DType.BF16}
    multiplies = costs.kind == OpKind.MATMUL
    is_narrow = costs.matmul_dtype[multiplies] == DType.FP8
    assert costs.count[multiplies][is_narrow].sum() == costs.count[multiplies].sum() - 3


def test_half_weights_halve_the_bytes_of_inference():
    """All but the eight-byte indices that the one max pooling writes, 64 × 56 × 56 per image."""
    wide, narrow = (lowered(task="infer", precision=p) for p in ("fp32", "bf16"))
    indices = 4 * 64 * 56 * 56 * 8
    assert narrow.parameter_bytes == wide.parameter_bytes / 2
    halved = (moved_bytes(wide) - indices) / 2 + indices
    assert moved_bytes(narrow) == pytest.approx(halved, rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_state_and_gradients_are_those_of_the_optimizer(name):
    one = lowered(name)
    states = {"resnet50": 1}.get(name, 2)
    assert one.optimizer_state_bytes == 4 * states * one.num_trainable_parameters
    assert one.gradient_bytes == 4 * one.num_trainable_parameters
    assert one.gradient_ready[:, 1].sum() == one.gradient_bytes
    assert (np.diff(one.gradient_ready[:, 0]) >= 0).all()


def test_gradients_of_adapters_are_ready_from_the_last_layer_to_the_first():
    ready = lowered("gpt2", lora_rank=8).gradient_ready
    assert len(ready) == 12 * 6 * 2  # two thin matrices beside each of a layer's six
    assert (np.diff(ready[:, 0]) >= 0).all()
    assert ready[-1, 0] > ready[0, 0]


def test_a_tied_gradient_is_ready_when_its_last_part_is():
    """The head's part comes first in a backward pass, that of the looked-up rows last."""
    last_op, last_bytes = lowered("gpt2").gradient_ready[-1]
    assert last_bytes == 4 * 50257 * 768
    assert last_op == lowered("gpt2").gradient_ready[:, 0].max()


@pytest.mark.parametrize("settings", [{"frozen": ("*",)}, {"lora_rank": 8}])
def test_how_a_model_is_trained_changes_no_inference(settings):
    plain, same = lowered("gpt2", task="infer"), lowered("gpt2", task="infer", **settings)
    assert same.num_parameters == plain.num_parameters
    assert (flop(same), moved_bytes(same), peak(same)) == (
        flop(plain), moved_bytes(plain), peak(plain),
    )  # fmt: skip


def test_gradients_of_earlier_microbatches_are_there_before_the_pass():
    graph = load_workload("resnet50").passes[0].graph
    one = lifetimes(graph, Configuration(accumulates=True))
    assert (one.birth[one.owner == Owner.GRADIENT] == -1).all()


def test_what_is_resident_is_there_before_and_after_the_pass():
    one = lifetimes(load_workload("resnet50").passes[0].graph, Configuration())
    resident = one.is_resident()
    for owner in (Owner.PARAMETER, Owner.OPTIMIZER_STATE, Owner.BUFFER):
        assert resident[one.owner == owner].all()
    for owner in (Owner.ACTIVATION, Owner.GRADIENT):
        assert not resident[one.owner == owner].any()


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "bert-base"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("checkpointing", ["block", "full"])
def test_checkpointing_trades_memory_for_one_more_forward(name, precision, checkpointing):
    kept = lowered(name, precision=precision)
    again = lowered(name, precision=precision, checkpointing=checkpointing)
    assert peak(again, 16, 512) < peak(kept, 16, 512)
    phases = np.isin(kept.costs.phase, (Phase.FORWARD, Phase.LOSS))
    forward = float(kept.costs.count[phases] @ (kept.costs.flop[phases] @ monomials(4, 64)[0]))
    assert flop(kept) < flop(again) <= flop(kept) + forward


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compiler", ["compiled", "xla", "tensorrt"])
def test_fusion_saves_kernels_and_bytes_and_no_arithmetic(name, compiler):
    eager, fused = lowered(name), lowered(name, compiler=compiler)
    assert flop(fused) == pytest.approx(flop(eager), rel=1e-12)
    assert num_kernels(fused) < num_kernels(eager)
    assert moved_bytes(fused) < moved_bytes(eager)
    assert peak(fused) <= peak(eager) * 1.01


@pytest.mark.parametrize("name", MODELS)
def test_memory_grows_with_the_batch(name):
    one = lowered(name)
    peaks = [peak(one, batch) for batch in (1, 2, 8, 64)]
    assert peaks == sorted(peaks)
    assert peaks[0] >= one.parameter_bytes + one.optimizer_state_bytes


def test_optimizer_kernels_shrink_from_plain_to_foreach_to_fused():
    counts = [num_kernels(lowered(optimizer_kernel=k)) for k in ("plain", "foreach", "fused")]
    assert counts == sorted(counts, reverse=True)


def test_inference_has_neither_gradients_nor_state():
    one = lowered(task="infer")
    assert (one.gradient_bytes, one.optimizer_state_bytes, len(one.gradient_ready)) == (0, 0, 0)


def test_a_precision_that_cannot_train_is_refused():
    with pytest.raises(InvalidInputError, match="int8"):
        lowered(precision="int8")
    with pytest.raises(UnknownNameError):
        lowered(precision="fp17")


def test_lowering_changes_nothing():
    graph = load_workload("resnet50").passes[0].graph
    before = {f.name: getattr(graph.storages, f.name).copy()
              for f in dataclasses.fields(graph.storages)}  # fmt: skip
    lower(graph, Configuration(checkpointing="full", compiler="compiled"))
    for name, array in before.items():
        assert np.array_equal(array, getattr(graph.storages, name))
