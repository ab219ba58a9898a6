"""``make gpu-truth``: a fixed suite on this machine's NVIDIA GPU, written as records.

Usage: PYTHONPATH=tools python -m gpu.truth [--out FOLDER] [--total-s 300] [--start 0] [--small]
Operators by class and dtype, twenty models by batch, precision and compiler, forward and whole
steps, with memory and power, as ``truth.toml`` lists them, in under ten minutes: what the time
does not reach is written as skipped. The records are scored apart and calibrate nothing by
themselves. Without an NVIDIA GPU it says so and does nothing. ``--small`` runs a few tiny items on
the CPU, to test the tool.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import paceline
from paceline.execution.conditions import fingerprint
from paceline.execution.machine.nvml import open_nvml
from paceline.execution.machine.probe import probe_host, probe_machine
from paceline.execution.machine.sensors import Reading, Sensors, summarize
from paceline.measurements.records import Record
from paceline.measurements.store import Store

_TOOLS = Path(__file__).parent
_PACKAGE = Path(paceline.__file__).parent
_PATHS = [_PACKAGE / "execution" / "engines", _PACKAGE / "frontends" / "torch"]
#: Of the sensors; a driver renews its readings about as often.
_READ_EVERY_S = 0.02
#: Drivers count energy some ten times a second: over less, a mean of it says nothing.
_POWER_OVER_S = 1.0
#: Tokens of texts, where the suite says nothing.
_SEQ = 128
#: A worker that a broken item ended is started again so often.
_MOST_STARTS = 5

Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where the suite runs.

    Attributes:
        device: ``cuda`` or ``cpu``.
        device_name: As in the catalogue.
        driver_version: Empty without a driver.
        fingerprint: Hash of machine and user.
        sensors: Read while an item is sampled.
    """

    device: str
    device_name: str
    driver_version: str
    fingerprint: str
    sensors: Sensors


def read_suite(path: Path = _TOOLS / "truth.toml") -> dict[str, Any]:
    """The suite as written."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def suite_items(
    operators: Sequence[Mapping[str, Any]], models: Sequence[Mapping[str, Any]]
) -> list[Item]:
    """Every item, numbered in the order of the suite."""
    items = [*_operator_items(operators), *_model_items(models)]
    return [item | {"number": number} for number, item in enumerate(items)]


def _operator_items(operators: Sequence[Mapping[str, Any]]) -> Iterator[Item]:
    for one in operators:
        for dtype, shape in itertools.product(one["dtypes"], one["shapes"]):
            yield {"type": "operator", "kind": one["kind"], "dtype": dtype, "shape": shape}


def _model_items(models: Sequence[Mapping[str, Any]]) -> Iterator[Item]:
    for one in models:
        product = itertools.product(
            one["names"], one["compilers"], one["modes"], one["precisions"], one["batches"]
        )
        for name, compiler, mode, precision, batch in product:
            yield {
                "type": "model", "name": name, "batch": batch, "precision": precision,
                "mode": mode, "compiler": compiler, "seq": one.get("seq", _SEQ),
                "channels_last": one.get("channels_last", False),
            }  # fmt: skip


def find_machine() -> Machine | None:
    """This machine with its first NVIDIA GPU; None without one."""
    nvml = open_nvml()
    facts = probe_host() if nvml else None
    if nvml is None or facts is None or not facts.gpus:
        return None
    name = probe_machine(facts=facts).device_name or facts.gpus[0].name
    return Machine(
        device="cuda", device_name=name, driver_version=nvml.driver_version(),
        fingerprint=fingerprint(), sensors=Sensors(nvml, (0,)),
    )  # fmt: skip


def run_suite(
    items: Sequence[Item], budget: Mapping[str, float], machine: Machine
) -> Iterator[Record]:
    """Measure every item; one that ends the worker is recorded as failed, and the rest go on."""
    deadline_s = time.monotonic() + budget["total_s"]
    left = list(items)
    for _ in range(_MOST_STARTS):
        request = {
            "paths": [str(path) for path in _PATHS], "device": machine.device, "timing": budget,
            "deadline_s": deadline_s, "items": left,
        }  # fmt: skip
        answered = 0
        for answer, readings in _serve(request, machine.sensors):
            yield build_record(left[answered], answer, readings, machine)
            answered += 1
        left = left[answered:]
        if not left:
            return
        ended = {"outcome": "failed", "reason": "the worker ended without an answer"}
        yield build_record(left[0], ended, [], machine)
        left = left[1:]
    for item in left:
        skipped = {"outcome": "skipped", "reason": f"the worker ended {_MOST_STARTS} times"}
        yield build_record(item, skipped, [], machine)


def _serve(
    request: Mapping[str, Any], sensors: Sensors
) -> Iterator[tuple[dict[str, Any], list[Reading]]]:
    """Answers of one worker as they come, each with what the sensors read meanwhile."""
    worker = subprocess.Popen(
        [sys.executable, str(_TOOLS / "workers" / "gpu_truth_worker.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdin is not None
    assert worker.stdout is not None
    readings: list[Reading] = []
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(worker.pid, sensors, readings, is_over))
    worker.stdin.write(json.dumps(request) + "\n")
    worker.stdin.flush()
    watcher.start()
    try:
        for line in worker.stdout:
            answer = json.loads(line)
            begin, end = answer.get("started_s", 0.0), answer.get("ended_s", 0.0)
            yield answer, [one for one in readings if begin <= one.at_s <= end]
            readings.clear()
    finally:
        is_over.set()
        watcher.join()
        worker.kill()
        worker.communicate()


def _watch(pid: int, sensors: Sensors, readings: list[Reading], is_over: threading.Event) -> None:
    while not is_over.wait(_READ_EVERY_S):
        readings.append(sensors.read(pid))


def build_record(
    item: Item, answer: Mapping[str, Any], readings: Sequence[Reading], machine: Machine
) -> Record:
    """What came of one item, in the schema of all measurements."""
    samples = tuple(answer.get("samples_s", ()))
    seen = summarize(readings, num_threads=1) if len(readings) > 1 else None
    sampled_s = answer.get("ended_s", 0.0) - answer.get("started_s", 0.0)
    has_power = seen is not None and machine.device == "cuda" and sampled_s >= _POWER_OVER_S
    power_w = seen.mean_power_w if seen and has_power else None
    step_s = statistics.median(samples) if samples else None
    return Record(
        outcome=answer["outcome"],
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source="make gpu-truth",
        device_name=machine.device_name,
        driver_version=machine.driver_version or None,
        machine=machine.fingerprint,
        framework="torch",
        framework_version=answer.get("framework_version"),
        platform_version=answer.get("platform_version"),
        python_version=answer.get("python_version"),
        samples_s=samples,
        steps_per_sample=answer.get("steps_per_sample", 1),
        num_warmup=len(answer.get("warmup_s", ())) or None,
        first_step_s=answer.get("first_step_s"),
        is_steady=answer.get("is_steady"),
        compile_s=answer.get("compile_s"),
        allocated_bytes=answer.get("allocated_bytes"),
        reserved_bytes=answer.get("reserved_bytes"),
        process_bytes=seen.peak_device_bytes if seen else None,
        mean_power_w=power_w,
        energy_j=power_w * step_s if power_w is not None and step_s is not None else None,
        clock_hz=seen.mean_clock_hz if seen else None,
        temperature_c=seen.temperature_c if seen else None,
        throttle_reasons=",".join(seen.throttle_reasons) if seen else "",
        is_shared=seen.is_shared if seen else None,
        seq=answer.get("seq"),
        reason=answer.get("reason", ""),
        **_what(item),
    )


def _what(item: Item) -> dict[str, Any]:
    """Fields of a record that say what ran."""
    if item["type"] == "operator":
        return {
            "kind": "operator", "workload": item["kind"], "precision": item["dtype"],
            "shape": tuple(float(value) for value in item["shape"]), "compiler": "eager",
            "mode": "forward",
        }  # fmt: skip
    is_training = item["mode"] != "forward"
    return {
        "kind": "step", "workload": item["name"], "precision": item["precision"],
        "task": "train" if is_training else "infer", "mode": item["mode"],
        "compiler": item["compiler"], "channels_last": item.get("channels_last", False),
        "batch_per_device": float(item["batch"]), "optimizer": "sgd" if is_training else None,
    }  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/gpu_truth"))
    parser.add_argument("--total-s", type=float, help="the whole run, in place of the suite's")
    parser.add_argument("--start", type=int, default=0, help="number of the first item")
    parser.add_argument("--small", action="store_true", help="a few tiny items on the CPU")
    asked = parser.parse_args()
    suite = read_suite()
    if asked.small:
        machine: Machine | None = Machine(
            device="cpu", device_name="CPU", driver_version="", fingerprint=fingerprint(),
            sensors=Sensors(None),
        )  # fmt: skip
        items = suite_items(suite["small"]["operators"], suite["small"]["models"])
    else:
        machine = find_machine()
        items = suite_items(suite["operator"], suite["model"])
    if machine is None:
        print("needs an NVIDIA GPU with its driver and pynvml, which are not here: nothing done")
        return
    counts: dict[str, int] = {}
    budget = suite["budget"] | ({"total_s": asked.total_s} if asked.total_s else {})
    with Store(asked.out) as store:
        for record in run_suite(items[asked.start :], budget, machine):
            store.append(record)
            counts[record.outcome] = counts.get(record.outcome, 0) + 1
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    print(f"{machine.device_name}: {words}; records in {asked.out}")


if __name__ == "__main__":
    main()
