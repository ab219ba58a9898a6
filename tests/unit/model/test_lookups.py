"""An embedding moves the rows that are asked for, however large its table is."""

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


@pytest.mark.parametrize(
    ("model", "task"), [("gpt2", "train"), ("bert-base", "train"), ("llama-3-8b", "infer")]
)
def test_a_lookup_reads_what_it_writes_and_its_indices(model: str, task: str) -> None:
    at = monomials([4.0], [128.0])
    for each in load_workload(model, task=task).passes:
        costs = lower(each.graph, Configuration(precision="fp32")).costs
        lookups = np.flatnonzero(costs.kind == OpKind.EMBEDDING)
        assert lookups.size
        for row in lookups:
            read, written = (at @ costs.read_bytes[row])[0], (at @ costs.write_bytes[row])[0]
            num_rows = (at @ costs.dims[row, 0])[0]
            assert read == written + 8 * num_rows


def test_a_table_of_another_size_moves_no_more() -> None:
    costs = lower(load_workload("dlrm", task="train").passes[0].graph, Configuration()).costs
    lookups = np.flatnonzero(costs.kind == OpKind.EMBEDDING)
    assert lookups.size
    read = monomials([1024.0]) @ costs.read_bytes[lookups].T
    written = monomials([1024.0]) @ costs.write_bytes[lookups].T
    assert (read < 3 * written).all()


def test_sums_over_neighbours_read_a_row_for_each_edge() -> None:
    """A graph convolution gathers states of nodes, which are no parameters."""
    graph = load_workload("published_graphs:gcn_arxiv", task="infer").passes[0].graph
    costs = lower(graph, Configuration(precision="fp32")).costs
    lookups = np.flatnonzero(costs.kind == OpKind.EMBEDDING)
    read = (monomials([1.0]) @ costs.read_bytes[lookups].T)[0] @ costs.count[lookups]
    edges, widths = 2_484_941, (256, 256, 40)
    rows = 4.0 * edges * sum(widths)
    assert rows < read < rows * 1.1
