"""Linear attention, state spaces and delta rules are dealt out by heads, as engines do."""

import numpy as np
import pytest
from tests.sampled import sampled

from paceline.model.graph.graph import Graph, Owner
from paceline.model.graph.workload import Task
from paceline.model.reading.load import load_workload
from paceline.parallelism.split import split
from paceline.parallelism.split.shape import SplitShape

#: Mamba-2 (Mamba-2 2.7B, in chunks), Mamba (2.8B, a fused scan), gated delta rule (Qwen3-Next),
#: RWKV-7.
SHIPPED = (
    "hf:mamba2-2.7b",
    "hf:mamba-2.8b",
    "hf:qwen3-next-80b-a3b",
    "published_recurrent:rwkv7_1b5",
)
TASKS: tuple[Task, ...] = ("train", "infer")


def share(before: Graph, after: Graph, owner: Owner) -> float:
    own = before.storages.owner == owner
    sizes = (graph.storages.elements[own].sum() for graph in (after, before))
    return float(next(sizes) / max(next(sizes), 1.0))


@pytest.mark.parametrize(
    ("degree", "model", "task"),
    sampled(
        [(degree, model, task) for degree in (2, 8) for model in SHIPPED for task in TASKS],
        2, (8, SHIPPED[0]),
    ),
)  # fmt: skip
def test_a_rank_has_its_share_of_weights_state_and_work(
    degree: int, model: str, task: Task
) -> None:
    """Within 3 % of an equal part beside what nobody splits: norms and small gates."""
    if (model, task, degree) == ("hf:qwen3-next-80b-a3b", "train", 8):
        pytest.skip("two heads of keys and values, which training does not copy")
    for one in load_workload(model, task=task).passes:
        shape = (
            SplitShape(tensor=degree) if task == "train" else SplitShape.of_engine(tensor=degree)
        )
        rank = split(one.graph, shape).graph
        assert share(one.graph, rank, Owner.PARAMETER) == pytest.approx(1 / degree, abs=0.03)
        work = rank.ops.flop.sum() / one.graph.ops.flop.sum()
        assert work == pytest.approx(1 / degree, abs=0.03)
        if (one.graph.storages.owner == Owner.KV_CACHE).any():
            assert share(one.graph, rank, Owner.KV_CACHE) == pytest.approx(1 / degree, abs=0.01)


def test_attention_and_convolutions_are_split_as_before() -> None:
    """Where the flow of data shows the heads nothing else is asked: shapes of the ops agree."""
    graph = load_workload("gpt2").passes[0].graph
    rank = split(graph, SplitShape(tensor=4)).graph
    assert np.isfinite(rank.ops.dims).all()
    assert share(graph, rank, Owner.PARAMETER) == pytest.approx(0.25, abs=0.01)
