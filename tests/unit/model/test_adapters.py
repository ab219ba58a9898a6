"""What is there beside adapters, counted by hand."""

from dataclasses import replace

import pytest

from paceline.dtypes import DType
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


def test_adapters_in_fp32_keep_a_copy_of_what_each_layer_reads():
    """Four bytes instead of two that a frozen layer then does not keep, and with dropout a mask."""
    graph = load_workload("gpt2").passes[0].graph
    point = monomials(4, 1024)[0]

    def peak(inputs):
        how = Configuration(
            lora_rank=8, lora_modules=("*.q",), training_format="pure", adapter_inputs=inputs
        )
        return (lower(graph, how).memory.by_owner.sum(axis=1) @ point).max()

    shared, cast, dropped = map(peak, ("shared", "cast", "dropped"))
    elements = 12 * 4 * 1024 * 768
    assert cast - shared == pytest.approx((4 - 2) * elements, rel=0.01)
    assert dropped - cast == pytest.approx(elements, rel=0.01)


def test_adapters_in_fp32_move_memory_from_kernel_to_kernel():
    """Bytes of each element, by hand, of layers that are as wide as what they read.

    Copy of the input 6, read by two products in FP32 4 more; what is added scaled forward and
    backward 16, summed and narrowed 10 beyond a sum in 16 bits, gradients widened, narrowed and
    those of the input narrowed 18. Dropout moves 8 each way, its mask written and read.
    """
    graph = load_workload("gpt2").passes[0].graph
    point = monomials(4, 1024)

    def moved_bytes(inputs):
        how = Configuration(
            lora_rank=8, lora_modules=("*.q",), training_format="pure", adapter_inputs=inputs
        )
        costs = lower(graph, how).costs
        return float(costs.moved_bytes(point)[0] @ costs.count)

    shared, cast, dropped = map(moved_bytes, ("shared", "cast", "dropped"))
    elements = 12 * 4 * 1024 * 768
    assert cast - shared == pytest.approx((6 + 4 + 16 + 10 + 18) * elements, rel=0.01)
    assert dropped - cast == pytest.approx((8 + 8 + 2) * elements, rel=0.01)


@pytest.mark.parametrize(
    ("as_peft", "pattern"),
    [
        (("q_proj", "v_proj"), ("*.attention.q", "*.attention.v")),
        (("gate_proj", "up_proj", "down_proj"), ("*.ffn",)),
    ],
)
def test_target_modules_of_peft_name_layers_of_our_graphs(as_peft, pattern):
    graph = load_workload("llama-3-8b").passes[0].graph

    def trained_bytes(modules):
        memory = lower(graph, Configuration(lora_rank=8, lora_modules=modules)).memory
        return memory.by_owner[:, Owner.OPTIMIZER_STATE] @ monomials(1, 512)[0]

    assert trained_bytes(as_peft).max() == trained_bytes(pattern).max() > 0.0


WORDS, HIDDEN, RANK = 128_256, 4096, 8


def by_owner(*trained):
    """Most bytes of each owner in a step of Llama 3 8B; everything is in 16 bits."""
    graph = load_workload("llama-3-8b").passes[0].graph
    how = Configuration(lora_rank=RANK, training_format="pure", frozen=trained)
    return (lower(graph, how).memory.by_owner @ monomials(1, 16)[0]).max(axis=0)


def test_what_is_trained_whole_beside_adapters_is_there_twice_with_gradient_and_moments():
    """PEFT trains a copy of each module that is to be saved: head and embedding of 0.5 G each."""
    adapters, head, both = (
        by_owner(),
        by_owner("except:head"),
        by_owner("except:head", "except:embedding"),
    )
    size = 2 * WORDS * HIDDEN
    for owner, copies in ((Owner.PARAMETER, 1), (Owner.GRADIENT, 1), (Owner.OPTIMIZER_STATE, 2)):
        assert head[owner] - adapters[owner] == pytest.approx(copies * size, rel=1e-3)
        assert both[owner] - adapters[owner] == pytest.approx(2 * copies * size, rel=1e-3)


def test_a_module_that_is_not_there_is_not_trained():
    with pytest.raises(InvalidInputError, match="no module with parameters matches `heads`"):
        by_owner("except:heads")


@pytest.mark.parametrize(("modules", "outputs"), [("*.q", 768), ("*.up", 3072)])
def test_dora_keeps_what_layer_and_adapter_make_and_makes_each_weight_again(modules, outputs):
    """Two outputs of two bytes a token and layer; A·B is 2 K R C FLOP a layer at any batch."""
    graph = load_workload("gpt2").passes[0].graph

    def lowered(kind):
        how = Configuration(lora_rank=8, lora_modules=(modules,), lora_kind=kind)
        return lower(graph, how)

    plain, dora = (lowered(kind) for kind in ("lora", "dora"))
    peaks = [
        (one.memory.by_owner.sum(axis=1) @ monomials(8, 1024)[0]).max() for one in (plain, dora)
    ]
    assert peaks[1] - peaks[0] == pytest.approx(2 * 2 * 12 * 8 * 1024 * outputs, rel=0.05)

    def product_flop(one, batch):
        costs = one.costs
        flop = costs.flop @ monomials(batch, 1024)[0] * costs.count
        return float(flop[costs.kind == OpKind.MATMUL].sum())

    for batch in (1, 8):
        more = product_flop(dora, batch) - product_flop(plain, batch)
        assert more == pytest.approx(12 * 2 * 768 * 8 * outputs, rel=1e-3)


def test_a_kind_of_adapters_needs_their_rank():
    with pytest.raises(InvalidInputError):
        lower(load_workload("gpt2").passes[0].graph, Configuration(lora_kind="dora"))


def test_loha_multiplies_by_a_matrix_of_each_weights_shape_and_keeps_it():
    """Of a layer of K × C: three products of rows · K · C, and eight of R · K · C.

    Hyeon-Woo et al., arXiv:2108.06098, proposition 1: two halves in each direction, and a gradient
    for each of four factors. The product with the input saves the matrix.
    """
    graph, width, outputs, rank = load_workload("gpt2").passes[0].graph, 768, 3072, 8
    how = Configuration(lora_rank=rank, lora_modules=("*.up",))
    plain, loha = (lower(graph, replace(how, lora_kind=kind)) for kind in ("lora", "loha"))

    def product_flop(one, batch):
        costs = one.costs
        flop = costs.flop @ monomials(batch, 1024)[0] * costs.count
        return float(flop[costs.kind == OpKind.MATMUL].sum())

    # Nothing before the first of twelve layers is trained: its input needs no gradient.
    square = 2 * width * outputs
    for batch in (1, 4):
        rows = batch * 1024
        thin = 2 * rows * rank * (12 * (2 * width + 3 * outputs) + 11 * width)
        whole = square * (12 * (2 * rows + 8 * rank) + 11 * rows)
        more = product_flop(loha, batch) - product_flop(plain, batch)
        assert more == pytest.approx(whole - thin, rel=1e-3)
    kept = [one.memory.by_owner.sum(axis=1) @ monomials(1, 1024)[0] for one in (plain, loha)]
    assert kept[1].max() - kept[0].max() > 12 * width * outputs * 2


def test_adapters_in_fp32_multiply_whole_matrices_in_fp32():
    """Tensor cores take no part in it: on an A100 that is a sixteenth of the rate."""
    graph = load_workload("gpt2").passes[0].graph

    def formats(inputs):
        how = Configuration(
            lora_rank=8, lora_modules=("*.up",), lora_kind="loha", adapter_inputs=inputs
        )
        costs = lower(graph, how).costs
        big = (costs.kind == OpKind.MATMUL) & (costs.matmul_dtype == DType.FP32)
        return int((big * costs.count).sum())

    assert formats("shared") == 0
    assert formats("cast") == 2 * 12 + 11
