"""Published rows of services as they are asked."""

from __future__ import annotations

from accuracy_serving.asked import Row, asked_rows

_NOTES = "peak 4 in flight; section Other; cmd {}; commit 47277d79"


def _row(**cells: str) -> Row:
    cells.setdefault("source", "lab:page.md")
    names = ("source", "model", "framework", "gpu", "n_gpus", "throughput", "extra", "notes")
    return dict.fromkeys(names, "") | cells


def _asked(**cells: str) -> list[Row]:
    return list(asked_rows([_row(**cells)]))


def test_limits_of_a_server_are_read_from_its_notes() -> None:
    notes = "org=A; limit ttft p99 2000 ms tpot p99 200 ms; request latency ms p50 1"
    (row,) = _asked(extra="scenario=server", notes=notes)
    assert row["extra"] == "scenario=server;ttft_p99_limit_ms=2000;tpot_p99_limit_ms=200"


def test_a_processor_stands_for_the_device_with_its_sockets() -> None:
    notes = "CPU: Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz; org=A; system=x_2S_y; cpu sockets=4"
    (row,) = _asked(notes=notes)
    assert (row["gpu"], row["n_gpus"]) == ("CPU: Intel Xeon Platinum 8380", "2")
    (laptop,) = _asked(notes="CPU: Apple M1 Pro; org=A; system=book; cpu sockets=10 cores=10")
    assert laptop["n_gpus"] == "1"


def test_a_server_has_the_devices_of_its_ranks() -> None:
    command = "python3 -m sglang.launch_server --model x --tp-size 4"
    cells = {"framework": "SGLang 0.5", "n_gpus": "8"}
    (row,) = _asked(notes=_NOTES.format(command), **cells)
    assert row["n_gpus"] == "4"
    (copied,) = _asked(notes=_NOTES.format(f"{command} --dp-size 8"), **cells)
    assert copied["n_gpus"] == "8"


def test_a_command_of_another_engine_than_the_row_names_is_left_out() -> None:
    notes = _NOTES.format("--reasoning-parser=qwen3 --max-model-len=32768")
    assert not _asked(framework="SGLang 0.5.9", notes=notes)
    assert _asked(framework="vLLM 0.17.1", notes=notes)


def test_a_run_that_stands_twice_on_a_page_counts_once() -> None:
    twice = _row(extra="ttft_ms_mean=4123.08", throughput="7", notes=_NOTES.format("vllm serve x"))
    other = twice | {"throughput": "8"}
    assert len(list(asked_rows([twice, dict(twice), other]))) == 2
