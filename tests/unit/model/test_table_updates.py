"""Tables of embeddings are updated by the rows that a step read, as trainers of recommenders do."""

import pytest

from paceline.model.graph.costs import Configuration, LoweredPass, TableUpdates
from paceline.model.graph.graph import Graph, OpKind, Owner, Phase, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload, with_optimizer
from paceline.model.table_updates import is_mostly_tables, looked_up, updates_rows, written_updates

BATCH = 1024
#: Columns of all tables together that an item reads a row of, and states of an element.
READS = {
    "dlrm": (26 * 16, 0),
    "published_tables:dlrm_dcnv2": (214 * 128, 1),
    "ncf": (64 + 64 + 128 + 128, 2),
}


def graph_of(model: str) -> Graph:
    return load_workload(model).passes[0].graph


def lowered(model: str, how: TableUpdates) -> LoweredPass:
    return lower(graph_of(model), Configuration(precision="fp32", table_updates=how))


def late_bytes(model: str, how: TableUpdates) -> float:
    """What backward passes of lookups and the update move."""
    costs = lowered(model, how).costs
    rows = (costs.kind == OpKind.EMBEDDING_BACKWARD) | (costs.phase == Phase.OPTIMIZER)
    moved = costs.moved_bytes(monomials([BATCH], [1.0]))[0]
    return float(moved[rows] @ costs.count[rows])


@pytest.mark.parametrize("model", READS)
def test_an_update_of_rows_costs_what_a_hand_counts(model: str) -> None:
    """A row that was read is read and written with its states, and no table is gone through."""
    columns, states = READS[model]
    graph = graph_of(model)
    elements = graph.storages.elements[:, 0]
    dense = elements[graph.storages.owner == Owner.PARAMETER].sum() - table_elements(graph)
    rows = 4.0 * BATCH * columns * 2 * (1 + states)
    fused = late_bytes(model, "fused")
    # Gradients of what was looked up, ids, and whatever is no table.
    assert rows <= fused <= rows + 4.0 * BATCH * columns * 1.2 + 4.0 * 30 * dense
    assert late_bytes(model, "dense") > 3 * 4.0 * table_elements(graph)


def table_elements(graph: Graph) -> float:
    is_table = looked_up(graph) & (graph.storages.owner == Owner.PARAMETER)
    return float(graph.storages.elements[is_table, 0].sum())


@pytest.mark.parametrize("model", READS)
def test_no_gradient_as_large_as_a_table_is_kept(model: str) -> None:
    """Sparse gradients grow with the batch; fused ones are never there. Weights stay."""
    at = monomials([BATCH], [1.0])[0]
    kept = {
        how: float((lowered(model, how).memory.by_owner[:, Owner.GRADIENT] @ at).max())
        for how in ("dense", "sparse", "fused")
    }
    columns, _ = READS[model]
    assert kept["fused"] < kept["sparse"]
    assert kept["sparse"] - kept["fused"] >= 4.0 * BATCH * columns * 0.99
    assert kept["dense"] >= 4.0 * table_elements(graph_of(model))
    whole = {how: lowered(model, how).parameter_bytes for how in ("dense", "sparse", "fused")}
    assert len(set(whole.values())) == 1


def test_replicas_still_exchange_whole_tables() -> None:
    sent = {how: lowered("dlrm", how).gradient_bytes for how in ("dense", "sparse", "fused")}
    assert len({round(num_bytes) for num_bytes in sent.values()}) == 1


def test_published_trainers_say_how_and_other_models_are_as_written() -> None:
    found = {model: written_updates(graph_of(model)) for model in (*READS, "gpt2")}
    assert found == {
        "dlrm": "sparse", "published_tables:dlrm_dcnv2": "fused", "ncf": "dense", "gpt2": "dense"
    }  # fmt: skip
    assert not updates_rows(graph_of("ncf"), "as-written")
    assert updates_rows(graph_of("ncf"), "sparse")


def test_a_table_that_makes_logits_is_updated_whole() -> None:
    """GPT-2 multiplies by its table of words; its gradient is dense, whatever is asked for."""
    assert not is_mostly_tables(graph_of("gpt2"))
    dense, fused = (lower(graph_of("gpt2"), Configuration(table_updates=h)) for h in HOWS)
    assert fused.gradient_bytes == dense.gradient_bytes
    words = 50257 * 768 * 4.0
    at = monomials([1.0], [128.0])[0]
    assert (fused.memory.by_owner[:, Owner.GRADIENT] @ at).max() > words


HOWS: tuple[TableUpdates, ...] = ("dense", "fused")


def test_states_of_a_row_are_one_number_where_the_optimizer_is_row_wise() -> None:
    """TorchRec's row-wise Adagrad keeps a number a row of 128, and no other state of tables."""
    workload = with_optimizer(load_workload("published_tables:dlrm_dcnv2"), "rowwise-adagrad")
    states = lower(workload.passes[0].graph, Configuration()).optimizer_state_bytes
    tables, dense = 26_135_627_264, 16_044_545
    assert states == pytest.approx(4.0 * (tables / 128 + dense), rel=1e-3)


def test_tables_of_a_recommender_stay_wide_under_autocast() -> None:
    """Nothing multiplies by them, so that a model is not large by their parameters."""
    found = lower(graph_of("published_tables:dlrm_dcnv2"), Configuration(precision="bf16"))
    assert found.parameter_bytes == pytest.approx(4.0 * 26_151_671_809, rel=1e-3)
