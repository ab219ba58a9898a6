"""What ranks keep and send, against counts by hand from published sizes of architectures.

Sources: GPT-2 (Radford et al. 2019, the smallest); Llama 3 8B (arXiv 2407.21783, table 3); Mixtral
8x7B (arXiv 2401.04088, table 1). Shoeybi et al., arXiv 1909.08053, section 3: two sums over tensor
ranks in forward and two in backward of every layer. Hu et al., arXiv 2106.09685: adapters.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import INFINIBAND, SWITCH

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import COLLECTIVES
from paceline.parallelism.fixed_strategy import evaluated_steps
from paceline.parallelism.memory.sharded_memory import FSDP_BLOCKS
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.split import SplitShape, split
from paceline.parallelism.split.calls_run import calls_that_run
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.simulation.blocks import behaving
from paceline.simulation.job import Job

BF16, FP32 = 2, 4
#: Two FP32 moments of AdamW; with an FP32 master beside them.
MOMENTS, WITH_MASTER = 8, 12
#: One weight in 4 bits, blocks of 64 with an FP32 scale quantised to 8 bits (arXiv 2305.14314).
INT4 = 0.5 + 1 / 64

GPT2_LAYERS, GPT2_HIDDEN, GPT2_WORDS, GPT2_POSITIONS = 12, 768, 50257, 1024
GPT2_LAYER = 12 * GPT2_HIDDEN**2 + 13 * GPT2_HIDDEN
GPT2 = GPT2_LAYERS * GPT2_LAYER + (GPT2_WORDS + GPT2_POSITIONS + 2) * GPT2_HIDDEN

LAYERS, HIDDEN, HEAD, KEYS, WIDE, WORDS = 32, 4096, 128, 1024, 14336, 128256
ATTENTION = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * KEYS
PRODUCTS = ATTENTION + 3 * HIDDEN * WIDE
NORMS = 2 * HIDDEN
LLAMA = LAYERS * (PRODUCTS + NORMS) + 2 * WORDS * HIDDEN + HIDDEN

EXPERTS, MIXTRAL_WORDS = 8, 32000
MIXTRAL_COMMON = (
    LAYERS * (ATTENTION + EXPERTS * HIDDEN + NORMS) + 2 * MIXTRAL_WORDS * HIDDEN + HIDDEN
)
MIXTRAL_EXPERTS = LAYERS * EXPERTS * 3 * HIDDEN * WIDE

#: Two layers of four experts of three products each, beside attention, two norms and a router.
SMALL = (
    "transformer:layers=2,hidden=64,heads=4,ffn=128,vocab=96,experts=4,top_k=2,gated=1,bias=0,"
    "norm=rms"
)
SMALL_EXPERTS = 2 * 4 * 3 * 64 * 128
SMALL_COMMON = 2 * (4 * 64 * 64 + 4 * 64 + 2 * 64) + 2 * 96 * 64 + 64


def rank(model: str, shape: str, how: Configuration, *, batch: float, seq: float) -> BlockCosts:
    device = DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")])
    group = TensorGroup(
        shape=SplitShape.of(Strategy.parse(shape)), ranks_per_node=8, device_link=SWITCH,
        node_link=INFINIBAND,
    )  # fmt: skip
    graph = load_workload(model).passes[0].graph
    return block_costs(graph, how, device, Points.of([batch], seq=seq), group)


def total(state: TrainingState) -> TrainingState:
    return TrainingState(state.values.sum(axis=(1, 2)))


def messages(
    model: str, shape: str, how: Configuration, *, batch: float, seq: float
) -> dict[str, float]:
    """Bytes of all messages of a pass by collective."""
    graph = load_workload(model).passes[0].graph
    part = split(graph, SplitShape.of(Strategy.parse(shape)))
    calls = calls_that_run(part.graph, with_weight_format(graph, how), part.calls)
    width = np.where(np.isnan(calls.element_bytes), BF16, calls.element_bytes)
    num_bytes = calls.elements @ monomials(batch, seq)[0] * width
    sums = np.bincount(calls.name, num_bytes, len(COLLECTIVES))
    return {name: size for name, size in zip(COLLECTIVES, sums.tolist(), strict=True) if size}


def layers_of(costs: BlockCosts) -> np.ndarray:
    return np.array([name[-1:].isdigit() for name in costs.names])


def test_the_sizes_are_those_that_are_published() -> None:
    assert load_workload("gpt2").num_parameters == GPT2 == 124_439_808
    assert load_workload("llama-3-8b").num_parameters == LLAMA == 8_030_261_248
    whole = MIXTRAL_COMMON + MIXTRAL_EXPERTS
    assert load_workload("mixtral-8x7b").num_parameters == whole == 46_702_792_704


def test_gpt2_under_autocast_on_replicas() -> None:
    """Everything FP32 but narrow copies of matrices; gradients travel as they are kept."""
    state = total(rank("gpt2", "dp8", Configuration(), batch=1, seq=1024).state)
    assert (state.parameters, state.trained) == (GPT2, GPT2)
    assert (state.weight, state.gradient, state.reduced) == (FP32 * GPT2,) * 3
    assert state.optimizer == MOMENTS * GPT2
    matrices = GPT2_LAYERS * 12 * GPT2_HIDDEN**2 + GPT2_WORDS * GPT2_HIDDEN
    biases = GPT2_LAYERS * 9 * GPT2_HIDDEN
    assert state.copy == BF16 * (matrices + biases)
    assert state.gathered == state.renewed == BF16 * GPT2


def test_gpt2_fully_sharded() -> None:
    """An eighth of all, and two gathered blocks of weights and copies."""
    links = {link.name: link for link in load_catalog().links}
    cluster = Cluster(
        device=find_device(load_catalog(), "H100 SXM5 80GB"), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
    )  # fmt: skip
    graph = load_workload("gpt2").passes[0].graph
    job = TracedJob(graph=graph, configuration=Configuration(), cluster=cluster, seq=1024)
    found = evaluated_steps(job, Strategy.parse("dp8+zero3"), microbatches=[1])
    copies = BF16 * (GPT2 - GPT2_LAYERS * 4 * GPT2_HIDDEN - (GPT2_POSITIONS + 2) * GPT2_HIDDEN)
    here = (1 / 8 + 2 / FSDP_BLOCKS) * (FP32 * GPT2 + copies)
    assert found.state_bytes[0] == pytest.approx(here + (FP32 + MOMENTS) * GPT2 / 8, rel=1e-9)


def test_llama_on_eight_tensor_ranks() -> None:
    """Norms are whole on every rank; 16-bit weights, FP32 gradients, moments and masters."""
    how = Configuration(training_format="half-weights", checkpointing="block")
    costs = rank("llama-3-8b", "tp8", how, batch=1, seq=8192)
    mine = (LAYERS * PRODUCTS + 2 * WORDS * HIDDEN) / 8 + LAYERS * NORMS + HIDDEN
    state = total(costs.state)
    assert (state.parameters, state.weight) == (mine, BF16 * mine)
    assert (state.gradient, state.optimizer) == (FP32 * mine, WITH_MASTER * mine)
    assert state.gathered == BF16 * mine
    layers = layers_of(costs)
    assert (costs.state.parameters[0, layers] == PRODUCTS / 8 + NORMS).all()
    kept, rotary = costs.saved_bytes[0, layers], 2 * BF16 * 8192 * HEAD
    assert kept[0] == BF16 * 8192 * HIDDEN + rotary, "the first keeps sines and cosines for all"
    assert (kept[1:] == BF16 * 8192 * HIDDEN).all()
    sent = messages("llama-3-8b", "tp8", how, batch=1, seq=8192)
    hidden = BF16 * 8192 * HIDDEN
    words, loss = hidden, 3 * FP32 * 8192
    assert sent == {"all_reduce": (4 * LAYERS + 1) * hidden + words + loss}


def test_llama_on_four_tensor_ranks_along_the_sequence() -> None:
    """Each sum becomes a scatter and a gather; inputs of columns are gathered again in backward."""
    how = Configuration(training_format="half-weights", checkpointing="block")
    costs = rank("llama-3-8b", "tp4+sp", how, batch=1, seq=8192)
    kept = costs.saved_bytes[0, layers_of(costs)]
    assert (kept[1:] == BF16 * 8192 * HIDDEN / 4).all()
    sent = messages("llama-3-8b", "tp4+sp", how, batch=1, seq=8192)
    hidden = BF16 * 8192 * HIDDEN
    assert sent["reduce_scatter"] == (4 * LAYERS + 2) * hidden
    assert sent["all_gather"] == (4 * LAYERS + 2) * hidden + (2 * LAYERS + 1) * hidden
    assert sent["all_reduce"] == 3 * FP32 * 8192


def test_llama_with_adapters_on_four_bits_on_eight_tensor_ranks() -> None:
    """The products' weights in 4 bits, adapters trained; where a weight is split, one side is."""
    rank_of_adapters = 16
    how = Configuration(
        training_format="half-weights", lora_rank=rank_of_adapters, frozen_weights="int4"
    )
    state = total(rank("llama-3-8b", "tp8", how, batch=1, seq=8192).state)
    columns = HIDDEN + HIDDEN / 8 + 2 * (HIDDEN + KEYS / 8) + 2 * (HIDDEN + WIDE / 8)
    rows = HIDDEN / 8 + HIDDEN + WIDE / 8 + HIDDEN
    adapters = LAYERS * rank_of_adapters * (columns + rows)
    rest = 2 * WORDS * HIDDEN / 8 + LAYERS * NORMS + HIDDEN
    assert state.trained == adapters
    assert state.weight == INT4 * LAYERS * PRODUCTS / 8 + BF16 * (rest + adapters)
    assert (state.gradient, state.reduced) == (FP32 * adapters, FP32 * adapters)
    assert state.optimizer == WITH_MASTER * adapters
    assert state.renewed == BF16 * adapters


def test_mixtral_on_eight_expert_ranks() -> None:
    """One expert of each layer, and all that is no expert; each has replicas of its own."""
    how = Configuration(training_format="half-weights")
    state = rank("mixtral-8x7b", "dp1.ep8", how, batch=1, seq=4096).state
    common, experts = (TrainingState(state.values[:, part].sum(axis=1)) for part in (0, 1))
    for part, count in ((common, MIXTRAL_COMMON), (experts, MIXTRAL_EXPERTS / 8)):
        assert (part.parameters, part.weight) == (count, BF16 * count)
        assert (part.gradient, part.optimizer) == (FP32 * count, WITH_MASTER * count)
    sent = messages("mixtral-8x7b", "dp1.ep8", how, batch=1, seq=4096)
    of_two = 2 * BF16 * 4096 * HIDDEN
    assert sent == {"all_to_all": pytest.approx(LAYERS * 2 * 2 * of_two)}


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(
    ("model", "mesh", "common", "experts", "expert_ranks"),
    [
        ("mixtral-8x7b", "dp2.ep8+zero3", MIXTRAL_COMMON, MIXTRAL_EXPERTS, 8),
        (SMALL, "dp4.ep2+zero3", SMALL_COMMON, SMALL_EXPERTS, 2),
    ],
)
def test_experts_that_replicas_shard_or_keep_whole(
    model: str, mesh: str, common: int, experts: int, expert_ranks: int, keeps: bool
) -> None:
    """All ranks share what is no expert; replicas of an expert rank its experts, or none of it."""
    links = {link.name: link for link in load_catalog().links}
    strategy = Strategy.parse(mesh)
    graph = load_workload(model).passes[0].graph
    how = Configuration(training_format="half-weights")
    job = Job(
        workload=load_workload(model), configuration=how, strategy=strategy, seq=64,
        habits=("kept-experts",) if keeps else (),
    )  # fmt: skip
    cluster = Cluster(
        device=find_device(load_catalog(), "H100 SXM5 80GB"), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
    )  # fmt: skip
    traced = TracedJob(
        graph=graph, configuration=how, cluster=behaving(cluster, job), seq=64
    )  # fmt: skip
    found = evaluated_steps(traced, strategy, microbatches=[1]).state_bytes[0]
    ranks, here = strategy.num_ranks, experts / expert_ranks
    replicas = 1 if keeps else ranks / expert_ranks
    gathered = 2 / FSDP_BLOCKS
    assert found == pytest.approx(
        common * (BF16 * (1 / ranks + gathered) + (FP32 + WITH_MASTER) / ranks)
        + here * (BF16 * min(1.0, 1 / replicas + gathered) + (FP32 + WITH_MASTER) / replicas),
        rel=1e-9,
    )


def test_stages_of_llama_keep_what_lies_in_them() -> None:
    """Every layer of a stage as many bytes as every other, and no byte twice."""
    state = rank("llama-3-8b", "pp2", Configuration(), batch=1, seq=8192).state
    assert total(state).parameters == LLAMA
    own = state.weight + state.gradient + state.optimizer
    layers = own[0][own[0] == own[0][2]]
    assert len(layers) == LAYERS
    assert (layers == (BF16 + FP32 + WITH_MASTER) * (PRODUCTS + NORMS)).all()
