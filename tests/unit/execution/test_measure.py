"""Sweeps over a fake engine: order, resume, out of memory, the largest batch."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from run_machines import cpu_place, gpu_machine

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.execution.cells import Cell, Sweep, sweep_cells, sweep_key
from paceline.execution.conditions import Settings, fingerprint
from paceline.execution.largest import search_largest
from paceline.execution.measure import measure_cells
from paceline.execution.recording import build_record
from paceline.execution.stacks import Stack, StackSpec, find_spec, stack_specs
from paceline.execution.worker import WORKERS, WorkerResult
from paceline.measurements.store import Store

FAKE = Path(__file__).parent / "fixtures/fake_engine.py"
SPEC = StackSpec(
    name="fake",
    framework="fake",
    package="fake",
    version="1.0",
    requires=(),
    without_dependencies=(),
    engine=str(FAKE),
    import_name="json",
    compilers=("eager",),
    modes=("step", "forward"),
    environment={"PACELINE_WORKERS": str(WORKERS)},
)
STACK = Stack(spec=SPEC, python=Path(sys.executable))
PLACE = cpu_place()
SETTINGS = Settings(
    timeout_s=20.0,
    timing={
        "min_samples": 3, "max_samples": 20, "min_s": 0.01, "max_s": 0.2, "max_warmup_s": 0.05,
        "min_sample_s": 0.001,
    },
)  # fmt: skip


def cells_of(*workloads, batches=(1, 2)):
    return sweep_cells(Sweep(workloads=workloads, batches=batches), [STACK])


def measure(cells, store, **changes):
    return list(measure_cells(cells, {"fake": STACK}, PLACE, store, SETTINGS, **changes))


def test_a_sweep_gives_a_record_per_cell_and_failures_are_values(tmp_path):
    cells = cells_of("good", "raises", "crashes", batches=(1,))
    with Store(tmp_path) as store:
        records = measure(cells, store)
    assert [r.outcome for r in records] == ["ok", "failed", "failed"]
    assert records[0].samples_per_s == pytest.approx(1 / records[0].median_s)
    assert "ValueError" in records[1].reason
    assert "SIGABRT" in records[2].reason
    assert Store(tmp_path).read().records == tuple(records)


def test_batches_above_one_that_ran_out_of_memory_are_not_tried(tmp_path):
    with Store(tmp_path) as store:
        records = measure(cells_of("fits-40", batches=(32, 64, 128, 16)), store)
    assert [r.batch_per_device for r in records] == [16, 32, 64, 128]
    assert [r.outcome for r in records] == ["ok", "ok", "out-of-memory", "out-of-memory"]
    assert "CUDA out of memory" in records[2].reason
    assert records[3].reason == "not tried: batch 64 already ran out of memory"


def test_an_interrupted_sweep_goes_on_and_a_finished_one_is_measured_again(tmp_path):
    cells = cells_of("good", batches=(1, 2, 3))
    with Store(tmp_path) as store:
        first = measure_cells(cells, {"fake": STACK}, PLACE, store, SETTINGS)
        begun = [next(first), next(first)]
        first.close()
    with Store(tmp_path) as store:
        told = []
        resumed = measure(cells, store, talk=told.append)
        assert resumed[:2] == begun
        assert {notice.number for notice in told} == {3}
        again = measure(cells, store)
    assert {r.sweep for r in resumed}.isdisjoint(r.sweep for r in again)
    assert len(Store(tmp_path).read().records) == 6


def test_the_same_sweep_on_another_machine_is_another_sweep():
    cells = cells_of("good")
    assert sweep_key(cells, "a") != sweep_key(cells, "b")
    assert sweep_key(cells, "a") == sweep_key(tuple(reversed(cells)), "a")


@pytest.mark.parametrize("other", [{"device": "cuda"}, {"num_threads": 7}])
def test_what_a_processor_did_is_not_taken_for_what_another_device_does(tmp_path, other):
    cells = cells_of("good", batches=(1, 2))
    with Store(tmp_path) as store:
        begun = measure_cells(cells, {"fake": STACK}, PLACE, store, SETTINGS)
        kept = next(begun)
        begun.close()
        told = []
        settings = replace(SETTINGS, **other)
        place = replace(PLACE, facts=gpu_machine())
        elsewhere = list(
            measure_cells(cells, {"fake": STACK}, place, store, settings, talk=told.append)
        )
    assert {notice.number for notice in told} == {1, 2}
    assert kept.sweep != elsewhere[0].sweep


SWEEPER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_measure import *
with Store(Path(sys.argv[1])) as store:
    for record in measure_cells(cells_of("good", batches=range(1, 8)), {{"fake": STACK}}, PLACE,
                                store, SETTINGS):
        print(record.cell, flush=True)
"""


@pytest.mark.parametrize("num_lines", [1, 3])
def test_a_killed_sweep_resumes_to_the_same_table(tmp_path, num_lines):
    command = [sys.executable, "-c", SWEEPER, str(tmp_path)]
    sweeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert sweeper.stdout is not None
    seen = [sweeper.stdout.readline().strip() for _ in range(num_lines)]
    time.sleep(0.05 * num_lines)
    os.kill(sweeper.pid, signal.SIGKILL)
    seen += sweeper.stdout.read().split()
    sweeper.stdout.close()
    sweeper.wait()
    kept = [r.cell for r in Store(tmp_path).read().records]
    assert kept[: len(seen)] == seen
    assert len(kept) <= len(seen) + 1
    cells = cells_of("good", batches=range(1, 8))
    with Store(tmp_path) as store:
        records = measure(cells, store)
    assert [r.cell for r in records] == [cell.key for cell in cells]
    assert len({r.sweep for r in records}) == 1


def test_two_sweeps_at_once_lose_nothing(tmp_path):
    command = [sys.executable, "-c", SWEEPER, str(tmp_path)]
    sweepers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [sweeper.wait(timeout=600) for sweeper in sweepers] == [0, 0]
    contents = Store(tmp_path).read()
    keys = {cell.key for cell in cells_of("good", batches=range(1, 8))}
    assert {r.cell for r in contents.records} == keys
    assert contents.num_damaged == 0


def test_an_interrupt_keeps_what_was_measured(tmp_path):
    def interrupt(notice):
        if notice.number == 2 and notice.stage == "measuring":
            raise KeyboardInterrupt

    with Store(tmp_path) as store, pytest.raises(KeyboardInterrupt):
        measure(cells_of("good"), store, talk=interrupt)
    assert [r.batch_per_device for r in Store(tmp_path).read().records] == [1]


def attempt_with_room_for(limit, tried):
    def attempt(cell):
        tried.append(cell.batch_per_device)
        fits = cell.batch_per_device <= limit
        result = WorkerResult(
            ending="ok" if fits else "out-of-memory",
            answer={"samples_s": [0.1]} if fits else {},
        )
        return build_record(cell, STACK, result, PLACE, SETTINGS)

    return attempt


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 40, 100, 1000, 12345])
def test_largest_batch_is_found_within_five_percent(limit):
    tried = []
    (cell,) = cells_of("good", batches=(1,))
    records = list(search_largest(cell, attempt_with_room_for(limit, tried)))
    best = max((r.batch_per_device for r in records if r.outcome == "ok"), default=0)
    assert best <= limit
    assert limit - best <= max(1, 0.05 * limit)
    assert len(tried) == len(set(tried)) <= 40


def test_the_search_ends_at_a_failure_that_is_not_memory():
    (cell,) = cells_of("good", batches=(1,))

    def attempt(wanted):
        result = WorkerResult(ending="timeout", reason="no end", answer={})
        return build_record(wanted, STACK, result, PLACE, SETTINGS)

    assert [r.outcome for r in search_largest(cell, attempt)] == ["timeout"]


@pytest.mark.parametrize(
    ("mode", "told", "recorded"),
    [("step", {"optimizer": "adamw"}, "adamw"), ("step", {}, "sgd"), ("forward", {}, None)],
)
def test_a_record_names_the_optimizer_that_ran(mode, told, recorded):
    (cell,) = cells_of("good", batches=(1,))
    result = WorkerResult(ending="ok", answer={"samples_s": [1.0], **told})
    record = build_record(replace(cell, mode=mode), STACK, result, PLACE, SETTINGS)
    assert record.optimizer == recorded


def test_cells_are_unique_ordered_and_have_distinct_keys():
    sweep = Sweep(
        workloads=("a", "b", "a"), batches=(16, 1, 16), devices=(2, 1), modes=("step", "forward")
    )
    cells = sweep_cells(sweep, [STACK])
    assert len(cells) == len({cell.key for cell in cells}) == 2 * 2 * 2 * 2
    assert [c.batch_per_device for c in cells[:2]] == [1, 16]


def test_what_only_some_stacks_can_do_is_measured_where_it_can():
    onnx = Stack(spec=stack_specs()["onnxruntime"], python=Path(sys.executable))
    sweep = Sweep(workloads=("a",), batches=(1,), modes=("step",))
    assert [c.stack for c in sweep_cells(sweep, [STACK, onnx])] == ["fake"]
    assert [c.stack for c in sweep_cells(sweep, [onnx])] == ["onnxruntime"]


@pytest.mark.parametrize(
    "sweep",
    [
        Sweep(workloads=(), batches=(1,)),
        Sweep(workloads=("a",), batches=(0,)),
        Sweep(workloads=("a",), batches=(1,), devices=(-1,)),
    ],
)
def test_a_sweep_of_nothing_is_a_message(sweep):
    with pytest.raises(InvalidInputError):
        sweep_cells(sweep, [STACK])


def test_key_tells_apart_what_changes_the_measurement():
    base = Cell(
        workload="m", mode="step", batch_per_device=1, num_devices=1, precision="fp32",
        compiler="eager", stack="torch",
    )  # fmt: skip
    changes = [
        {"mode": "forward"}, {"batch_per_device": 2}, {"num_devices": 2}, {"precision": "bf16"},
        {"compiler": "compiled"}, {"stack": "jax"}, {"seq": 64}, {"image_size": 96},
        {"optimizer": "adam"}, {"channels_last": True},
    ]  # fmt: skip
    from dataclasses import replace

    keys = {replace(base, **change).key for change in changes}
    assert len(keys | {base.key}) == len(changes) + 1
    assert replace(base, batch_per_device=9).series == base.series


def test_fingerprint_names_nobody(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef\n")
    mark = fingerprint(tmp_path)
    assert len(mark) == 16
    assert mark == fingerprint(tmp_path)
    assert mark != fingerprint()
    assert os.uname().nodename not in mark


def test_a_user_without_a_name_has_a_fingerprint(monkeypatch):
    def nameless():
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert len(fingerprint()) == 16


def test_stack_specs_are_pinned_and_versions_can_be_chosen():
    for spec in stack_specs().values():
        assert all("==" in r for r in (*spec.requires, *spec.without_dependencies))
        assert (WORKERS / spec.engine).exists()
    assert find_spec("torch").name == "torch"
    older = find_spec("torch==2.8.0")
    assert (older.name, older.version) == ("torch-2.8.0", "2.8.0")
    assert not any("==" in r for r in older.requires)
    assert find_spec(f"mxnet=={stack_specs()['mxnet'].version}") == stack_specs()["mxnet"]


@pytest.mark.parametrize("text", ["torch==", "torch==1.0; rm -rf /", "torch==a b"])
def test_a_version_that_is_none_is_a_message(text):
    with pytest.raises(InvalidInputError, match="is not a version"):
        find_spec(text)


def test_an_unknown_stack_has_near_names():
    with pytest.raises(UnknownNameError) as raised:
        find_spec("tensorfow")
    assert "`tensorflow`" in raised.value.hint
