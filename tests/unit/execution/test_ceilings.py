from dataclasses import replace

import pytest

from paceline.execution.ceilings import summarize_ceilings
from paceline.execution.machine_model import start_model
from paceline.execution.machine_work import Work, amounts_of
from paceline.measurements.records import Record

BASE = Record(
    kind="operator",
    outcome="ok",
    recorded_at="2026-11-20",
    source="paceline ceilings",
    workload="MATMUL",
    device_name="cpu",
    framework="torch",
    precision="fp32",
    shape=(1.0, 100.0, 200.0, 300.0),
    samples_s=(0.5, 0.5),
)
MEMORY = replace(BASE, workload="ELEMENTWISE", shape=(1e6, 1.0, 3.0), samples_s=(1e-3,))
FRESH = replace(MEMORY, note="fresh", shape=(1e6, 1.0, 1.0))
DISPATCH = replace(BASE, workload="ELEMENTWISE", shape=(16.0, 1.0, 2.0), samples_s=(2e-6,))
REDUCE = replace(
    BASE, kind="collective", workload="ALL_REDUCE", shape=(1e6,), num_devices=4, samples_s=(1e-3,)
)
UPDATE = replace(MEMORY, note="in place")
CACHED = replace(MEMORY, note="cached", shape=(1e6, 1.0, 4.0))
SMALL = replace(DISPATCH, note="small layers", shape=(48.0, 1.0, 2.0), samples_s=(48e-5,))
CONVOLUTION = replace(
    BASE, workload="CONV", shape=(2.0, 8.0, 5.0, 5.0, 16.0, 3.0, 3.0, 5.0, 5.0, 1.0)
)
LAYERS = [
    CONVOLUTION,
    replace(CONVOLUTION, note="pointwise"),
    replace(CONVOLUTION, note="depthwise"),
    replace(CONVOLUTION, workload="CONV_BACKWARD_INPUT"),
    replace(CONVOLUTION, workload="CONV_BACKWARD_WEIGHT"),
    replace(
        CONVOLUTION, note="few pixels", shape=(2.0, 8.0, 1.0, 1.0, 16.0, 3.0, 3.0, 1.0, 1.0, 1.0)
    ),
    replace(BASE, note="few rows", shape=(1.0, 4.0, 200.0, 300.0)),
    replace(BASE, note="one row", shape=(1.0, 1.0, 200.0, 300.0)),
    replace(BASE, workload="ATTENTION", shape=(1.0, 2.0, 2.0, 8.0, 8.0, 4.0, 0.0)),
    replace(BASE, workload="RECURRENT", shape=(2.0, 3.0, 4.0, 5.0, 1.0, 1.0, 4.0)),
    replace(BASE, workload="POOL", shape=(100.0, 1.0, 1.0)),
    replace(BASE, workload="POOL_BACKWARD", shape=(100.0, 1.0, 1.0)),
]
_CONVOLVING = ("CONV", "CONV_BACKWARD_INPUT")
ALL = [BASE, MEMORY, FRESH, UPDATE, CACHED, DISPATCH, SMALL, REDUCE, *LAYERS]


def rates(records):
    return {ceiling.name: ceiling.rate for ceiling in summarize_ceilings(records)}


def test_rates_follow_from_shape_and_time():
    found = rates(ALL)
    assert found["matrix product fp32"] == pytest.approx(2 * 100 * 200 * 300 / 0.5)
    assert found["memory"] == pytest.approx(12e6 / 1e-3)
    assert found["fresh memory"] == pytest.approx(4e6 / 1e-3)
    assert found["cached memory"] == pytest.approx(16e6 / 1e-3)
    assert found["dispatch of one op"] == 2e-6
    assert found["layer of a network with nothing to compute"] == pytest.approx(1e-5)
    assert found["all-reduce over 4"] == pytest.approx(2 * 3 / 4 * 1e6 / 1e-3)


def test_collectives_compare_by_what_a_link_carries():
    kinds = ("ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST")
    found = rates([replace(REDUCE, workload=name) for name in kinds])
    share = {"all-gather": 0.75, "reduce-scatter": 0.75, "all-to-all": 0.75, "broadcast": 1.0}
    assert found == {f"{name} over 4": pytest.approx(n * 1e9) for name, n in share.items()}


@pytest.mark.parametrize(
    ("together_s", "hidden"), [(0.5, 1.0), (0.7, 0.0), (0.6, 0.5), (0.8, -0.5)]
)
def test_an_overlap_is_what_the_longer_hides_of_the_shorter(together_s, hidden):
    product = replace(BASE, num_devices=4, shape=(1.0, 64.0, 64.0, 64.0))
    reduce = replace(REDUCE, samples_s=(0.2,))
    both = replace(
        reduce, shape=(*REDUCE.shape, 64.0), note="behind a product", samples_s=(together_s,)
    )
    assert rates([product, reduce, both])[
        "all-reduce over 4 hidden behind a product"
    ] == pytest.approx(hidden)
    assert rates([product, both]) == rates([product])


def test_rates_of_layers_count_the_arithmetic_of_their_kind():
    found = rates(LAYERS)
    assert found["convolution"] == pytest.approx(2 * 2 * 16 * 5 * 5 * 8 * 3 * 3 / 0.5)
    assert found["attention"] == pytest.approx(2 * 2 * 8 * 8 * 4 * 2 / 0.5)
    assert found["recurrence"] == pytest.approx(2 * 3 * 2 * 4 * 5 * (4 + 5) / 0.5)
    assert found["operands of a product of few rows"] == pytest.approx(
        4 * (4 * 300 + 300 * 200 + 4 * 200) / 0.5
    )
    assert found["product with a vector"] == pytest.approx(4 * (300 + 300 * 200 + 200) / 0.5)
    assert found["filters of a convolution of few pixels"] == pytest.approx(
        4 * (2 * (8 + 16) + 16 * 8 * 3 * 3) / 0.5
    )


def test_the_best_counts_which_is_the_least_for_a_time():
    faster = replace(BASE, samples_s=(0.25,))
    slower = replace(DISPATCH, samples_s=(9e-6,))
    found = rates([BASE, faster, slower, DISPATCH])
    assert found["matrix product fp32"] == pytest.approx(2 * 100 * 200 * 300 / 0.25)
    assert found["dispatch of one op"] == 2e-6


def test_opencl_and_company_are_ceilings_of_their_own():
    opencl = replace(BASE, framework="opencl", samples_s=(0.1,))
    crowded = replace(BASE, num_devices=2, samples_s=(1.0,))
    found = rates([BASE, opencl, crowded])
    assert found["matrix product fp32 through opencl"] == 5 * found["matrix product fp32"]
    assert found["matrix product fp32 with 2 at once"] == found["matrix product fp32"] / 2


def test_a_model_begins_at_the_ceilings_or_not_at_all():
    model = start_model(summarize_ceilings([*ALL, replace(BASE, num_devices=2, samples_s=(1.0,))]))
    assert model is not None
    assert model.shared_frac == {2: 0.5}
    assert model.all_reduce_bytes_per_s[4] == pytest.approx(1.5e9)
    assert start_model(summarize_ceilings([BASE])) is None
    assert start_model(summarize_ceilings([r for r in ALL if r.workload != "POOL"])) is None


def test_no_ceiling_of_another_framework_or_precision_begins_a_model():
    plain = start_model(summarize_ceilings(ALL))
    others = [replace(BASE, framework="opencl", samples_s=(0.1,)),
              replace(BASE, precision="bf16", samples_s=(0.1,))]  # fmt: skip
    begun = start_model(summarize_ceilings([*others, *ALL]))
    assert plain is not None
    assert begun is not None
    assert begun.rates.tolist() == plain.rates.tolist()
    assert start_model(summarize_ceilings([*others, *ALL[1:]])) is None


def through(framework, records):
    return [replace(record, framework=framework) for record in records]


def host(note, seconds, count=1.0):
    return replace(DISPATCH, note=note, shape=(count, 1.0, 2.0), samples_s=(seconds,))


def test_a_compiled_framework_begins_at_its_own_ceilings():
    own = [replace(r, samples_s=(r.samples_s[0] / 2,)) for r in ALL if r.workload != "RECURRENT"]
    hosts = [host("call", 1e-4), host("loop", 1e-4 + 64 * 46e-7, 64.0)]
    found = summarize_ceilings([*ALL, *through("jax", own), *through("jax", hosts)])
    plain, model = start_model(found), start_model(found, "jax")
    assert plain is not None
    assert model is not None
    assert model.rates[Work.STREAM] == pytest.approx(2 * plain.rates[Work.STREAM])
    assert model.rates[Work.CALL] == pytest.approx(1e4)
    assert model.rates[Work.DISPATCH] == pytest.approx(48 / (24e-5 - 1e-4))
    assert model.rates[Work.LOOP] == pytest.approx(1e7)  # 26 + 20 thunks of an LSTM's step.
    assert start_model(summarize_ceilings(ALL), "jax") is None


def test_a_layer_that_python_calls_takes_its_op_and_the_call():
    own = through("keras-torch", [host("small layers", 48e-4, 48.0), host("loop", 64e-5, 64.0)])
    found = summarize_ceilings([*ALL, *own])
    plain, model = start_model(found), start_model(found, "keras-torch")
    assert plain is not None
    assert model is not None
    assert 1 / model.rates[Work.CALL] + 1 / model.rates[Work.DISPATCH] == pytest.approx(1e-4)
    assert 29 / model.rates[Work.LOOP] == pytest.approx(1e-5)  # Ops of an LSTM's step there.
    same = [kind for kind in Work if kind not in (Work.CALL, Work.LOOP)]
    assert model.rates[same].tolist() == plain.rates[same].tolist()


def test_a_model_takes_for_a_ceiling_what_the_ceiling_took():
    product = replace(BASE, shape=(1.0, 1024.0, 1024.0, 1024.0), samples_s=(0.02,))
    few = replace(BASE, note="few rows", shape=(1.0, 4.0, 4096.0, 4096.0), samples_s=(0.006,))
    large = replace(CONVOLUTION, shape=(4.0, 128.0, 28.0, 28.0, 128.0, 3.0, 3.0, 28.0, 28.0, 1.0))
    large, gradient = (replace(large, workload=name, samples_s=(0.004,)) for name in _CONVOLVING)
    filters = replace(
        CONVOLUTION, note="few pixels", samples_s=(0.0022,),
        shape=(1.0, 512.0, 7.0, 7.0, 512.0, 3.0, 3.0, 7.0, 7.0, 1.0),
    )  # fmt: skip
    made = [product, few, large, gradient, filters]
    names = {(record.workload, record.note) for record in made}
    others = [record for record in ALL if (record.workload, record.note) not in names]
    model = start_model(summarize_ceilings([*made, *others]))
    assert model is not None

    def seconds(work, flop, laid_out, elements):
        amounts = amounts_of({work: flop, laid_out: 4.0 * elements})
        return float(amounts @ (1 / model.rates))

    packed = (2 * 1024**3, Work.OPERANDS, 3 * 1024**2)
    assert seconds(Work.PRODUCT, *packed) == pytest.approx(0.02)
    packed = (8 * 4096**2, Work.OPERANDS, 4096**2 + 8 * 4096)
    assert seconds(Work.PRODUCT, *packed) == pytest.approx(0.006)
    weights = 9 * 128**2
    packed = (8 * 28**2 * weights, Work.FILTERS, 8 * 128 * 28**2 + weights)
    assert seconds(Work.CONVOLUTION, *packed) == pytest.approx(0.004)
    assert seconds(Work.INPUT_GRADIENT, *packed) == pytest.approx(0.004)
    weights = 9 * 512**2
    packed = (2 * 7**2 * weights, Work.FILTERS, 2 * 512 * 7**2 + weights)
    assert seconds(Work.CONVOLUTION, *packed) == pytest.approx(0.0022)


def test_of_products_the_largest_counts_since_a_small_one_packs_nothing():
    small = replace(BASE, shape=(1.0, 10.0, 10.0, 10.0), samples_s=(1e-9,))
    assert rates([BASE, small]) == rates([BASE])
