"""Mixtures of experts: balanced routing, and weights that no token needs.

Jiang et al. 2024 (arXiv:2401.04088): of Mixtral's 46.7 billion parameters a token uses 12.9.
"""

import numpy as np
import pytest
from traced import trace_here

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration, CostTable
from paceline.model.graph.graph import EXPONENTS, NUM_DIMS, OpKind, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

LAYERS, EXPERTS, CHOSEN, HIDDEN, INNER = 32, 8, 2, 4096, 14336
EXPERT_WEIGHTS = LAYERS * EXPERTS * 3 * HIDDEN * INNER
BATCH = EXPONENTS.index((1, 0))
ACTIVE = 12_879_925_248  # 46,702,792,704 less six of eight experts


def passes():
    return {
        one.name: lower(one.graph, Configuration())
        for task in ("train", "infer")
        for one in load_workload("mixtral-8x7b", task=task).passes
    }


@pytest.fixture(scope="module")
def lowered():
    return passes()


def expert_rows(costs):
    is_stack = (costs.kind == OpKind.MATMUL) & (costs.dims[:, 0, 0] == EXPERTS)
    return np.flatnonzero(is_stack)


def test_a_token_works_through_its_own_experts_only(lowered):
    """The embedding is looked up and not multiplied; attention adds the scores of past tokens."""
    costs, past = lowered["decode"].costs, 1
    flop = float(costs.count @ (costs.flop @ monomials(64, past)[0])) / 64
    embedding = 32_000 * HIDDEN
    assert flop == pytest.approx(2 * (ACTIVE - embedding), rel=0.002)


def test_every_expert_gets_the_same_number_of_tokens(lowered):
    costs = lowered["step"].costs
    rows = expert_rows(costs)
    at = monomials(3, 40)[0]
    m, k = costs.dims[rows, 1] @ at, costs.dims[rows, 3] @ at
    tokens = 3 * 40 * CHOSEN / EXPERTS
    assert ((m == tokens) | (k == tokens)).all()
    assert costs.count[rows].sum() == LAYERS * 6
    products = costs.dims[rows][:, :4] @ at
    assert costs.flop[rows] @ at == pytest.approx(2 * products.prod(axis=1))


@pytest.mark.parametrize("batch", [1, 2, 4, 64])
def test_experts_without_a_token_are_not_read(lowered, batch):
    """Tokens choose two of eight each, independently: none chooses one at (3/4)^batch."""
    num_read = EXPERTS * (1 - 0.75**batch)
    costs, at = lowered["decode"].costs, monomials(batch, 128)
    every = float(costs.count @ ((costs.read_bytes + costs.write_bytes) @ at[0]))
    unread = every - float(costs.moved_bytes(at)[0] @ costs.count)
    assert unread == pytest.approx(2 * EXPERT_WEIGHTS * (EXPERTS - num_read) / EXPERTS, abs=1.0)


def made_up(**changed):
    """One row: a stack of four experts, of which a token needs a half row each, and its weights."""
    row = {"kind": OpKind.MATMUL, "num": 4.0, "rows": 0.5, "weight_bytes": 100.0} | changed
    zero = np.zeros((1, 9))
    dims, weights = np.zeros((1, NUM_DIMS, 9)), zero.copy()
    dims[0, 0, 0], dims[0, 1, BATCH], weights[0, 0] = row["num"], row["rows"], row["weight_bytes"]
    code, none = np.zeros(1, np.int8), np.zeros(0, np.int32)
    return CostTable(
        kind=np.array([row["kind"]], np.int16), variant=code.astype(np.int16), phase=code,
        matmul_dtype=code, count=np.ones(1), num_kernels=np.ones(1), flop=zero,
        read_bytes=weights.copy(), write_bytes=zero, dims=dims, weight_bytes=weights, order=none,
        module=none, modules=(),
    )  # fmt: skip


def test_of_four_experts_that_take_half_the_tokens_each():
    """One token leaves each unread at a chance of 1/2, two at 1/4."""
    moved = made_up().moved_bytes(monomials([1, 2]))
    assert moved[:, 0] == pytest.approx([50, 75])


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": OpKind.ELEMENTWISE},
        {"num": 1.0},  # a single product is no stack of experts
        {"rows": 1.0},  # every token is in it
        {"rows": 2.0},
        {"rows": 0.0},
        {"weight_bytes": 0.0},  # a product of two activations
    ],
)
def test_only_stacks_of_weights_that_share_tokens_are_experts(changed):
    assert len(made_up().expert_rows()) == 1
    assert len(made_up(**changed).expert_rows()) == 0


def test_without_experts_every_byte_counts():
    costs = lower(load_workload("gpt2").passes[0].graph, Configuration()).costs
    at = monomials([1, 8], [16, 512])
    assert np.array_equal(costs.moved_bytes(at), at @ (costs.read_bytes + costs.write_bytes).T)


SIZES = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 100, "gated": 1, "bias": 0,
         "experts": 8}  # fmt: skip


def by_numbers(**more):
    stated = ",".join(f"{name}={value}" for name, value in (SIZES | more).items())
    return trace_here(f"transformer:{stated}", task="train")


def test_experts_by_their_numbers_have_the_weights_of_so_many():
    one, eight = by_numbers(experts=1, top_k=1), by_numbers()
    of_expert, router = 3 * 64 * 128, 64
    layers = SIZES["layers"]
    assert eight.num_parameters - one.num_parameters == 7 * layers * (of_expert + router)


def test_tokens_of_experts_by_their_numbers_work_through_those_they_chose():
    """Products of experts grow with their number, all else stays."""

    def flop(top_k):
        costs = lower(by_numbers(top_k=top_k).passes[0].graph, Configuration()).costs
        rows = expert_rows(costs)
        return (costs.count[rows] * (costs.flop[rows] @ monomials(4, 16)[0])).sum()

    tokens, products_of_a_step = 4 * 16, 3
    of_one = 2 * tokens * 3 * 64 * 128 * products_of_a_step * SIZES["layers"]
    assert flop(1) == pytest.approx(of_one)
    assert flop(3) == pytest.approx(3 * flop(1))


def test_more_experts_chosen_than_there_are_is_refused():
    with pytest.raises(InvalidInputError, match="top_k=9 of experts=8"):
        load_workload("transformer:layers=1,hidden=64,heads=4,vocab=9,experts=8,top_k=9")
