"""Published tables as records: the same shape as what users measure, with their origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from paceline.measurements.records import Outcome, Record

_OUT_OF_MEMORY = "A-OOM"
_ITEMS_PER_S = frozenset({"img/s", "seq/s", "samples/s"})
_GB_BYTES = 1e9


def import_rows(
    rows: Iterable[Mapping[str, str]],
    *,
    recorded_on: str,
    device_of: Callable[[Mapping[str, str]], str | None],
    workload_of: Callable[[Mapping[str, str]], str | None],
) -> Iterator[Record]:
    """Records of a published table; rows whose device or workload is unknown are left out.

    Args:
        rows: Lines with the columns of the published measurements (``docs/how-to/score.md``).
        recorded_on: Date of the table, ISO 8601.
        device_of: ``Device.name`` of a row, or None.
        workload_of: Model of a row as a user types it, or None.
    """
    for row in rows:
        device_name, workload = device_of(row), workload_of(row)
        if device_name is not None and workload is not None:
            yield _record(row, recorded_on, device_name, workload)


def _record(row: Mapping[str, str], recorded_on: str, device_name: str, workload: str) -> Record:
    step_s = _step_s(row)
    memory_gb = _number(row, "peak_mem_gb")
    outcome: Outcome = "ok" if step_s is not None or memory_gb is not None else "skipped"
    if row.get("quality") == _OUT_OF_MEMORY:
        outcome = "out-of-memory"
    return Record(
        kind="step",
        outcome=outcome,
        recorded_at=recorded_on,
        source=row.get("source", ""),
        workload=workload,
        device_name=device_name,
        task="train" if row.get("task") == "train" else "infer",
        num_devices=int(_number(row, "n_gpus") or 1),
        num_nodes=int(_number(row, "n_nodes") or 1),
        framework=row.get("framework") or None,
        precision=row.get("precision") or None,
        batch_per_device=_number(row, "batch_per_gpu"),
        grad_accumulation=int(_number(row, "grad_accum") or 1),
        seq=_number(row, "seq_len"),
        image_size=_number(row, "img_size"),
        input_data=row.get("input_data") or "unknown",
        samples_s=() if step_s is None else (step_s,),
        samples_per_s=_number(row, "throughput"),
        sample_unit=row.get("unit") or None,
        allocated_bytes=None if memory_gb is None else memory_gb * _GB_BYTES,
        note=row.get("notes", ""),
    )


def _step_s(row: Mapping[str, str]) -> float | None:
    """Printed step time, else items of one step over throughput."""
    printed_ms = _number(row, "step_time_ms")
    if printed_ms is not None:
        return printed_ms / 1e3
    rate, batch = _number(row, "throughput"), _number(row, "batch_per_gpu")
    if rate and batch and row.get("unit") in _ITEMS_PER_S:
        devices = max(_number(row, "n_gpus") or 1.0, 1.0)
        return batch * devices * (_number(row, "grad_accum") or 1.0) / rate
    return None


def _number(row: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(row.get(name) or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
