"""What an engine's tables say of the machine that they were made for."""

from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import EngineTable, engine_tables


def _tables(*prompt_tokens: int) -> list[EngineTable]:
    how = Configuration(compiler="compiled", is_served=True)
    workload = load_workload("llama-3-8b", task="infer")
    machine = Machine.of(find_device(load_catalog(), "H100 SXM5 80GB"))
    jobs = [
        Job(
            workload=workload, configuration=how, prompt_tokens=tokens, output_tokens=1,
            profile="vllm",
        )
        for tokens in prompt_tokens
    ]  # fmt: skip
    found = engine_tables(jobs, [machine] * len(jobs))
    assert all(isinstance(one, EngineTable) for one in found)
    return [one for one in found if isinstance(one, EngineTable)]


def test_a_prompt_beyond_a_chunk_takes_the_workspace_of_a_chunk() -> None:
    short, chunk, long = _tables(128, 8192, 32768)
    assert short.memory_bytes < chunk.memory_bytes
    assert long.memory_bytes == pytest.approx(chunk.memory_bytes, rel=1e-3)
    assert long.batching.cache_tokens == pytest.approx(chunk.batching.cache_tokens, rel=1e-2)
