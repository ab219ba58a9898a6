"""The predictor of this machine on made-up machines whose coefficients are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.execution.machine_model import LocalModel, fit_local, predict_local
from paceline.execution.machine_work import StepWork, Work, amounts_of, step_work, with_pages
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

RATES = {
    Work.CONVOLUTION: 80e9, Work.INPUT_GRADIENT: 70e9, Work.WEIGHT_GRADIENT: 60e9,
    Work.POINTWISE: 40e9, Work.DEPTHWISE: 10e9, Work.PRODUCT: 60e9, Work.ATTENTION: 30e9,
    Work.RECURRENCE: 50e9, Work.OPERANDS: 5e9, Work.FILTERS: 4e9, Work.VECTOR: 9e9,
    Work.CACHED: 40e9, Work.STREAM: 12e9, Work.UPDATE: 20e9, Work.POOL: 1e9, Work.PAGES: 2e9,
    Work.POOL_GRADIENT: 2e9, Work.DISPATCH: 1e5, Work.LOOP: 1e5, Work.CALL: 1e4,
}  # fmt: skip
TRUE = LocalModel(rates=amounts_of(RATES), shared_frac={2: 0.8}, all_reduce_bytes_per_s={2: 1e9})
WRONG = replace(TRUE, rates=TRUE.rates * np.where(np.arange(len(Work)) < Work.OPERANDS, 1.3, 0.8))


def work(scale=1.0, *, gradient_bytes=4e8):
    growing = {
        Work.CONVOLUTION: 2e9 * scale, Work.STREAM: 5e7 * scale, Work.PRODUCT: 1e9 * scale,
    }  # fmt: skip
    fixed = {Work.OPERANDS: 2e8, Work.PAGES: 1e8, Work.DISPATCH: 300.0}
    return StepWork(amounts=amounts_of(growing | fixed), gradient_bytes=gradient_bytes)


def model_work(name, batch):
    graph = load_workload(name, task="train").passes[0].graph
    plain = Configuration(
        precision="fp32", platform="cpu", channels_last=False, optimizer_kernel="plain"
    )
    return step_work(lower(graph, plain), batch=batch)


def inference_work(name, batch, seq=1, framework="torch"):
    graph = load_workload(name, task="infer").passes[0].graph
    plain = Configuration(precision="fp32", platform="cpu", channels_last=False)
    return step_work(lower(graph, plain), batch=batch, seq=seq, framework=framework)


def recurrent_work(name, seq):
    return inference_work(name, 8, seq)


def seconds(model, asked, num_devices=1):
    step = predict_local(model, asked, num_devices=num_devices)
    assert step is not None
    return step.mid_s


def test_no_measurement_leaves_the_ceilings_as_they_are():
    assert fit_local(WRONG, []) is WRONG
    assert "no measured step" in WRONG.name


def test_measured_steps_of_one_model_predict_its_other_batches():
    pairs = [(w, seconds(TRUE, w)) for w in (model_work("alexnet", b) for b in (1, 16))]
    fitted = fit_local(WRONG, pairs)
    for batch in (4, 64):
        asked = model_work("alexnet", batch)
        assert seconds(fitted, asked) == pytest.approx(seconds(TRUE, asked), rel=0.10)


def test_measured_steps_of_one_model_predict_another():
    pairs = [(w, seconds(TRUE, w)) for w in (model_work("alexnet", b) for b in (1, 4, 16, 64))]
    fitted = fit_local(WRONG, pairs)
    asked = model_work("resnet50", 16)
    before = abs(math.log(seconds(WRONG, asked) / seconds(TRUE, asked)))
    after = abs(math.log(seconds(fitted, asked) / seconds(TRUE, asked)))
    assert after < 0.2
    assert after < before


def test_steps_that_contradict_each_other_leave_the_ceilings_where_they_are():
    """A third too fast or too slow at random, and all of them slow by as much."""
    works = [work(scale) for scale in (1.0, 4.0, 16.0, 64.0)]
    moved = []
    for factors in ((1.35,) * 4, (1.35, 1 / 1.35, 1.35, 1 / 1.35)):
        pairs = [
            (one, factor * seconds(TRUE, one)) for one, factor in zip(works, factors, strict=True)
        ]
        fitted = fit_local(TRUE, pairs)
        moved.append(float(np.abs(np.log(fitted.rates / TRUE.rates)).max()))
        known = [predict_local(fitted, one) for one in works]
        assert all(k.low_s < s < k.high_s for k, (_, s) in zip(known, pairs, strict=True))
    assert moved[1] < moved[0] / 2


def test_pages_that_a_step_was_seen_to_take_teach_nothing_about_its_arithmetic():
    """An allocator may map a block anew in every step, of which its size tells nothing."""
    told = work()
    taken = with_pages(told, told.amounts[Work.PAGES] + 4e7)
    pairs = [(taken, seconds(TRUE, taken))] * 3
    assert fit_local(TRUE, pairs).rates == pytest.approx(TRUE.rates)
    unseen = fit_local(TRUE, [(told, one_s) for _, one_s in pairs])
    assert unseen.rates[Work.CONVOLUTION] < 0.99 * TRUE.rates[Work.CONVOLUTION]
    assert with_pages(told, None) is told


def test_more_measurements_narrow_the_interval():
    pairs = [(w, seconds(TRUE, w)) for w in (work(s) for s in (1.0, 4.0, 16.0, 64.0))]
    before, after = (predict_local(m, work(8.0)) for m in (WRONG, fit_local(WRONG, pairs)))
    assert before is not None
    assert after is not None
    assert after.high_s / after.low_s < before.high_s / before.low_s


def test_work_that_was_measured_is_surer_than_work_that_was_not():
    convolving, pooling = (
        StepWork(amounts=amounts_of({kind: 1e10})) for kind in (Work.CONVOLUTION, Work.POOL)
    )
    fitted = fit_local(WRONG, [(convolving, seconds(TRUE, convolving))] * 3)
    seen, unseen = (predict_local(fitted, asked) for asked in (convolving, pooling))
    assert seen is not None
    assert unseen is not None
    assert seen.high_s / seen.mid_s < unseen.high_s / unseen.mid_s


@given(st.floats(1.0, 1e3), st.floats(1.0, 1e3))
def test_more_work_never_takes_less_time(scale, more):
    assert seconds(TRUE, work(scale * more)) >= seconds(TRUE, work(scale))


def test_two_processes_are_never_faster_than_one_at_the_same_batch_each():
    assert seconds(TRUE, work(), 2) > seconds(TRUE, work())


def test_inference_exchanges_nothing():
    asked = work(gradient_bytes=0.0)
    assert seconds(TRUE, asked, 2) == pytest.approx(seconds(TRUE, asked) / 0.8)


@pytest.mark.parametrize("num_devices", [2, 4])
def test_a_ring_sends_its_share_of_the_gradients_twice(num_devices):
    """Patarasuk, Yuan 2009: 2 (n - 1) / n of the message, at the bus bandwidth of nccl-tests."""
    bus_bytes_per_s = 1e9
    free = replace(
        TRUE,
        rates=amounts_of(RATES | {Work.STREAM: 1e30}),
        shared_frac={num_devices: 1.0},
        all_reduce_bytes_per_s={num_devices: bus_bytes_per_s},
    )
    exchanged_s = seconds(free, work(), num_devices) - seconds(free, work())
    asked_bytes = 2 * (num_devices - 1) / num_devices * work().gradient_bytes
    assert exchanged_s == pytest.approx(asked_bytes / bus_bytes_per_s)


def test_gradients_are_read_and_written_into_the_buckets_and_out_of_them():
    slower = replace(TRUE, shared_frac={2: 1.0}, all_reduce_bytes_per_s={2: 1e30})
    copied_s = seconds(slower, work(), 2) - seconds(slower, work())
    assert copied_s == pytest.approx(4 * work().gradient_bytes / RATES[Work.STREAM])


def test_a_number_of_processes_that_was_never_tried_has_no_answer():
    assert predict_local(TRUE, work(), num_devices=7) is None


def test_a_step_takes_the_pages_that_it_grows_to():
    """AlexNet's gradients alone are 244 MB; one image of inference fits what was freed before."""
    assert model_work("alexnet", 1).amounts[Work.PAGES] > 4 * 61_100_840
    assert inference_work("alexnet", 1).amounts[Work.PAGES] < 1e7


def test_work_of_a_model_is_its_flop():
    once, twice = model_work("alexnet", 2), model_work("alexnet", 4)
    for kind in (Work.CONVOLUTION, Work.INPUT_GRADIENT, Work.WEIGHT_GRADIENT, Work.PRODUCT):
        assert twice.amounts[kind] == pytest.approx(2 * once.amounts[kind])
    assert once.gradient_bytes == pytest.approx(4 * 61_100_840, rel=1e-6)


def test_each_operation_is_counted_in_one_kind_of_work():
    graph = load_workload("mobilenetv2", task="train").passes[0].graph
    lowered = lower(graph, Configuration(precision="fp32", platform="cpu", channels_last=False))
    amounts = step_work(lowered, batch=3).amounts
    flop = lowered.costs.count @ (lowered.costs.flop @ monomials(3, 1)[0])
    assert amounts[: Work.OPERANDS].sum() == pytest.approx(flop)
    assert amounts[Work.DEPTHWISE] > 0
    assert amounts[Work.POINTWISE] > amounts[Work.DEPTHWISE]


def test_a_product_with_a_vector_packs_no_operand():
    """The three dense layers of AlexNet read 235 MB of weights, for one image once each."""
    weights = 4 * (9216 * 4096 + 4096 * 4096 + 4096 * 1000)
    one, two = (inference_work("alexnet", batch).amounts for batch in (1, 2))
    assert weights < one[Work.VECTOR] < 1.01 * weights
    assert one[Work.PRODUCT] == two[Work.VECTOR] == 0
    assert two[Work.OPERANDS] - one[Work.OPERANDS] > weights


def test_filters_are_laid_out_anew_for_every_convolution():
    """Those of ResNet-50 hold 23.5 M weights (its dense layer has the other 2 M)."""
    once, twice = (inference_work("resnet50", batch).amounts[Work.FILTERS] for batch in (1, 2))
    assert 2 * once - twice == pytest.approx(4 * 23_454_912)


def test_what_outgrows_the_caches_streams_from_memory():
    small, large = (inference_work("resnet50", batch).amounts for batch in (1, 64))
    assert small[Work.CACHED] > 0
    assert small[Work.STREAM] == 0
    assert large[Work.STREAM] > large[Work.CACHED]
    streamed = [one[Work.CACHED] + one[Work.STREAM] for one in (small, large)]
    assert streamed[1] == pytest.approx(64 * streamed[0], rel=0.01)  # Weights are read once.


def test_a_layer_that_is_a_loop_dispatches_its_ops_in_every_step():
    fused, loop = (recurrent_work(name, seq=100) for name in ("lstm", "gru"))
    longer = recurrent_work("gru", seq=200)
    assert fused.amounts[Work.RECURRENCE] > 0
    assert loop.amounts[Work.RECURRENCE] == 0
    assert fused.amounts[Work.LOOP] == 0
    assert longer.amounts[Work.LOOP] == 2 * loop.amounts[Work.LOOP] > 0
    assert longer.amounts[Work.DISPATCH] == loop.amounts[Work.DISPATCH]


def trained_work(framework, name="vgg16", batch=1, seq=1, compiler="eager"):
    graph = load_workload(name, task="train", optimizer="adam").passes[0].graph
    plain = Configuration(
        precision="fp32", platform="cpu", channels_last=False, compiler=compiler,
        optimizer_kernel="plain" if compiler == "eager" else "fused",
    )  # fmt: skip
    return step_work(lower(graph, plain), batch=batch, seq=seq, framework=framework).amounts


def test_a_compiled_step_is_called_once_and_layers_of_keras_one_by_one():
    amounts = {name: trained_work(name) for name in ("torch", "jax", "tensorflow", "keras-torch")}
    calls = {name: found[Work.CALL] for name, found in amounts.items()}
    assert (calls["torch"], calls["jax"], calls["tensorflow"]) == (0, 1, 1)
    layers = 13 + 5 + 3  # Convolutions, poolings and dense layers, and an activation after most.
    assert layers < calls["keras-torch"] < 3 * layers


def test_an_update_op_by_op_finds_in_the_caches_what_its_last_op_left():
    """10.6 MB of a GRU stay in a cache between nine ops; one fused pass reads all states, too."""
    for framework in ("torch", "tensorflow"):
        small, large = (trained_work(framework, name) for name in ("gru", "alexnet"))
        assert small[Work.UPDATE] == 0
        assert large[Work.UPDATE] > 7 * 4 * 61_100_840
    assert trained_work("jax", "gru", compiler="xla")[Work.UPDATE] > 0


def test_the_ops_of_an_update_have_next_to_nothing_to_set_up():
    """Adam in nine ops on each of the sixteen tensors of Alexnet, none of them a layer."""
    op_by_op, fused = (
        trained_work("tensorflow", "alexnet", compiler=compiler) for compiler in ("eager", "xla")
    )
    assert op_by_op[Work.LOOP] == 9 * 16
    assert fused[Work.LOOP] == 1


def test_a_loop_adds_to_the_gradient_of_its_weights_in_every_step():
    """Forward, weights stay in a cache; a gradient passes over those of its 128 units again."""
    weights = 4 * 4 * 128**2 * 100

    def longer(work):
        return (work(200) - work(100))[[Work.OPERANDS, Work.CACHED]].sum()

    forward = longer(lambda seq: inference_work("lstm", 1, seq, "tensorflow").amounts)
    both = longer(lambda seq: trained_work("tensorflow", "lstm", seq=seq))
    assert forward < weights < both - forward


def test_a_step_in_one_block_takes_all_its_pages_anew_or_none():
    """The block of VGG-16 holds the places of what is pooled: 4 x 4 bytes of each element."""
    one, two = (trained_work("jax", batch=batch, compiler="xla") for batch in (1, 2))
    pooled = sum(64 * 2**i * (224 // 2**i) ** 2 for i in range(4)) + 512 * 14**2
    assert two[Work.PAGES] - one[Work.PAGES] > 16 * pooled
    assert trained_work("jax", "lstm", seq=8, compiler="xla")[Work.PAGES] == 0


def test_an_update_with_results_of_its_own_takes_their_pages():
    """Keras's Adam on PyTorch makes five tensors beside each gradient of VGG-16."""
    gradient_bytes = 4 * 138_357_544
    beside = trained_work("keras-torch")[Work.PAGES] - trained_work("torch")[Work.PAGES]
    assert beside == pytest.approx(5 * gradient_bytes, rel=0.05)


def test_a_gradient_gathered_step_by_step_grows_with_the_square_of_the_length():
    short, long = (trained_work("keras-torch", "gru", batch=8, seq=seq) for seq in (512, 1024))
    assert long[Work.CACHED] > 3.5 * short[Work.CACHED]
    short, long = (trained_work("tensorflow", "gru", batch=8, seq=seq) for seq in (512, 1024))
    assert long[Work.CACHED] < 2.1 * short[Work.CACHED]


def test_a_loop_takes_pages_where_two_tensors_of_all_steps_exceed_what_the_heap_keeps():
    """Tensors of 1 MB stay in it; of 8 MB a share of those of all steps is taken anew."""
    small, large = (trained_work("keras-torch", "gru", batch=b, seq=32) for b in (1, 64))
    without = trained_work("torch", "gru", batch=64, seq=32)
    assert small[Work.PAGES] == trained_work("keras-torch", "gru", batch=2, seq=32)[Work.PAGES]
    assert without[Work.PAGES] <= small[Work.PAGES] < large[Work.PAGES]
