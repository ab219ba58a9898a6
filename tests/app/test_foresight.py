"""Predictions beside measurements: of this machine's CPU, and of a GPU that is only remembered."""

from dataclasses import replace

import pytest

from paceline.app.truth import local_prediction as foresight
from paceline.app.truth.local_prediction import ledger_of, ledger_of_store
from paceline.errors import InvalidInputError
from paceline.measurements.records import Record

STEP = Record(
    kind="step",
    outcome="ok",
    recorded_at="2026-11-20T12:00:00+00:00",
    source="paceline measure",
    workload="alexnet",
    task="train",
    device_name="AMD EPYC",
    framework="torch",
    compiler="eager",
    precision="fp32",
    optimizer="sgd",
    batch_per_device=16,
    samples_s=(0.9, 1.0, 1.1),
    mode="step",
    machine="abc",
    num_threads=1,
    cell="alexnet/b16x1",
)
PRODUCT = replace(
    STEP,
    kind="operator",
    source="paceline ceilings",
    workload="MATMUL",
    shape=(1.0, 1024.0, 1024.0, 1024.0),
    samples_s=(0.02,),
    batch_per_device=None,
    mode="",
    cell="MATMUL",
)
TRIAD = replace(PRODUCT, workload="ELEMENTWISE", shape=(16777216.0, 1.0, 3.0), samples_s=(0.01,))
CONVOLUTION = replace(
    PRODUCT, workload="CONV", shape=(4, 128, 28, 28, 128, 3, 3, 28, 28, 1), cell="CONV"
)
CEILINGS = (
    PRODUCT,
    TRIAD,
    replace(TRIAD, shape=(16777216.0, 1.0, 1.0), note="fresh", samples_s=(0.03,)),
    replace(TRIAD, note="in place"),
    replace(TRIAD, shape=(16.0, 1.0, 2.0), samples_s=(1e-6,)),
    replace(TRIAD, shape=(3211264.0, 1.0, 4.0), note="cached", samples_s=(0.001,)),
    replace(TRIAD, shape=(48.0, 1.0, 2.0), note="small layers", samples_s=(3e-4,)),
    replace(PRODUCT, shape=(1, 16, 4096, 4096), note="few rows"),
    replace(PRODUCT, shape=(1, 1, 4096, 4096), note="one row"),
    replace(CONVOLUTION, shape=(1, 512, 7, 7, 512, 3, 3, 7, 7, 1), note="few pixels"),
    CONVOLUTION,
    replace(CONVOLUTION, note="pointwise"),
    replace(CONVOLUTION, note="depthwise"),
    replace(CONVOLUTION, workload="CONV_BACKWARD_INPUT"),
    replace(CONVOLUTION, workload="CONV_BACKWARD_WEIGHT"),
    replace(PRODUCT, workload="ATTENTION", shape=(4, 12, 12, 128, 128, 64, 0)),
    replace(PRODUCT, workload="RECURRENT", shape=(16, 64, 128, 128, 1, 1, 4)),
    replace(PRODUCT, workload="POOL", shape=(200704.0, 1.0, 1.0)),
    replace(PRODUCT, workload="POOL_BACKWARD", shape=(200704.0, 1.0, 1.0)),
)


def test_a_model_is_predicted_by_the_ceilings_and_by_other_models_only():
    other = replace(STEP, workload="vgg16", batch_per_device=1, samples_s=(0.5,), cell="vgg16/b1x1")
    (alone,) = ledger_of_store([*CEILINGS, STEP])
    first, _ = ledger_of_store([*CEILINGS, STEP, other])
    assert alone.predicted_s is not None
    assert "no measured step" in alone.calibration
    assert first.calibration == "this machine, 1 measured steps"
    assert first.predicted_s != alone.predicted_s


def test_another_machine_or_thread_count_lends_nothing():
    elsewhere = [replace(r, machine="other") for r in CEILINGS]
    crowded = [replace(r, num_threads=8) for r in CEILINGS]
    (row,) = ledger_of_store([*elsewhere, *crowded, STEP])
    assert row.predicted_s is None


def test_a_page_of_some_cells_says_what_the_page_of_all_says():
    other = replace(STEP, workload="vgg16", batch_per_device=1, samples_s=(0.5,), cell="vgg16/b1x1")
    store = [*CEILINGS, STEP, other]
    assert ledger_of_store(store, [STEP]) == ledger_of_store(store)[:1]


def test_a_step_measured_again_takes_the_place_of_the_first():
    other = replace(STEP, workload="vgg16", batch_per_device=1, samples_s=(0.5,), cell="vgg16/b1x1")
    again = replace(other, samples_s=(0.6,))
    (row, *_) = ledger_of_store([*CEILINGS, STEP, other, again])
    (only, *_) = ledger_of_store([*CEILINGS, STEP, again])
    assert row.predicted_s == only.predicted_s


def test_a_gpu_is_not_predicted_by_the_cpu_beside_it():
    on_gpu = replace(STEP, device_name="NVIDIA Graphics Device", power_limit_w=400.0)
    (row,) = ledger_of_store([*CEILINGS, on_gpu])
    assert row.predicted_s is None


def test_only_plain_pytorch_is_predicted_on_the_cpu():
    for change in ({"framework": "jax"}, {"compiler": "compiled"}, {"precision": "bf16"}):
        (row,) = ledger_of_store([*CEILINGS, replace(STEP, **change)])
        assert row.predicted_s is None


def test_a_framework_is_predicted_by_its_own_ceilings():
    on_jax = replace(STEP, framework="jax", compiler="xla")
    own = [replace(record, framework="jax", compiler="xla") for record in CEILINGS]
    (row,) = ledger_of_store([*CEILINGS, *own, on_jax])
    assert row.calibration == "this machine's ceilings, no measured step"
    other_way = replace(on_jax, framework="tensorflow", compiler="xla")
    (row,) = ledger_of_store([*CEILINGS, *own, other_way])
    assert row.predicted_s is None


def test_a_gpu_is_predicted_by_the_catalogue():
    record = replace(
        STEP, workload="resnet50", device_name="A100 SXM4 80GB", precision="bf16",
        batch_per_device=64, power_limit_w=400.0, samples_s=(0.05,),
    )  # fmt: skip
    (row,) = ledger_of([record], {})
    assert row.predicted_s is not None
    assert row.predicted_low_s < row.predicted_s < row.predicted_high_s
    assert 0.01 < row.predicted_s < 0.2


def test_a_gpu_that_the_catalogue_does_not_know_is_not_predicted():
    record = replace(STEP, device_name="NVIDIA Graphics Device", power_limit_w=400.0)
    (row,) = ledger_of([record], {})
    assert row.predicted_s is None


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Entries that were loaded, in order."""
    entries: list[str] = []
    load = foresight.load
    foresight._traced.cache_clear()
    foresight._lowered.cache_clear()

    def noted(entry: str, **options):
        entries.append(entry)
        return load(entry, **options)

    monkeypatch.setattr(foresight, "load", noted)
    return entries


def test_a_model_is_traced_once_for_all_its_cells(traced):
    steps = [replace(STEP, workload="vgg16", mode=mode) for mode in ("step", "forward-backward")]
    on_gpu = replace(
        STEP,
        workload="alexnet",
        device_name="A100 SXM4 80GB",
        precision="bf16",
        power_limit_w=400.0,
    )
    assert all(row.predicted_s for row in ledger_of_store([*CEILINGS, *steps]))
    ledger_of([replace(on_gpu, batch_per_device=batch) for batch in (1, 2, 4)], {})
    assert traced == ["vgg16", "alexnet"]


def test_models_that_teach_are_read_in_the_python_that_ran_them(traced, monkeypatch):
    asked = []

    def noted(entry, **options):
        asked.append((entry, options["python"]))
        raise InvalidInputError("no such module", hint="none")

    monkeypatch.setattr(foresight, "load", noted)
    mine = [replace(STEP, workload=f"mine:{name}", cell=name) for name in ("one", "other")]
    ledger_of_store([*CEILINGS, *mine], python="/their/python")
    assert set(asked) == {("mine:one", "/their/python"), ("mine:other", "/their/python")}


@pytest.mark.parametrize("power_limit_w", [None, 400.0])
def test_a_cell_that_failed_is_not_traced(traced, power_limit_w):
    failed = replace(
        STEP, workload="mine:broken", outcome="failed", samples_s=(), power_limit_w=power_limit_w
    )
    (row,) = ledger_of_store([*CEILINGS, failed])
    assert (traced, row.predicted_s) == ([], None)
