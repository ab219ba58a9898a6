"""Few layers that stand for all cost a rank what the whole model does."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache

import numpy as np
import pytest
from links_of_tests import make_link
from tests.sampled import sampled
from tests.unit.parallelism.test_every_setting_acts import SETTINGS

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model import lowering
from paceline.model.fewer_layers import fewer_layers, whole_graph
from paceline.model.graph.block_names import block_names
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import Graph
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.memory.sharded_memory import PeakMoments
from paceline.parallelism.schedule import rank_work
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.split import SplitShape
from paceline.prediction.devices import DeviceTable
from paceline.prediction.memory.peak import live_at_peak
from paceline.prediction.prediction import Points

#: Models, how many groups of their layers one stands for, and the layers of a group.
MODELS = (("gpt2", 6, 1), ("llama-3-8b", 26, 1), ("mixtral-8x7b", 26, 1), ("gemma-2-9b", 16, 2))
HOW = Configuration(precision="bf16", compiler="compiled")
WAYS = (
    HOW,
    replace(HOW, checkpointing="block"),
    replace(HOW, compiler="eager", update="in-backward"),
    replace(HOW, lora_rank=16),
)
#: What treats some layers in another way than others.
UNEVEN = (
    replace(HOW, checkpointing="block", checkpoint_blocks="2"),
    replace(HOW, checkpointing="block", checkpoint_blocks="2/4"),
    replace(HOW, frozen=("layers.7",)),
)
SHAPES = (
    SplitShape(),
    SplitShape(tensor=2, sequence_parallel=True),
    SplitShape(tensor=2, sequence_parallel=True, ring=2),
)


@cache
def graph(name: str) -> Graph:
    return load_workload(name).passes[0].graph


@pytest.mark.parametrize(("name", "copies", "period"), MODELS)
def test_layers_that_are_alike_stand_for_each_other(name: str, copies: int, period: int) -> None:
    found = fewer_layers(graph(name), HOW)
    assert (found.copies, found.period) == (copies, period)
    assert found.whole_names == block_names(graph(name))
    assert len(found.of_block) == len(found.whole_names)
    assert len(found.names) == len(found.whole_names) - (copies - 1) * period


def test_what_has_few_equal_layers_stays_as_it_is() -> None:
    """Blocks of a ResNet grow, and no six of them in a row are equal."""
    assert fewer_layers(graph("resnet50"), HOW).graph is graph("resnet50")


#: Every value of every setting, as it is and with recomputation.
EVERY = [Configuration(**one) for values in SETTINGS.values() for one in values]  # type: ignore[arg-type]
LAST = [Configuration(**values[-1]) for values in SETTINGS.values()]  # type: ignore[arg-type]
TRAINED = [one for one in EVERY if not one.is_served]
RECOMPUTED = [replace(one, checkpointing="block") for one in EVERY if one.checkpointing == "none"]


@pytest.mark.parametrize(
    ("name", "hows"),
    [
        ("gpt2", [*WAYS, *UNEVEN, *LAST]), ("bert-base", WAYS),
        pytest.param("gpt2", EVERY, marks=pytest.mark.slow),
        pytest.param("bert-base", [*UNEVEN, *EVERY], marks=pytest.mark.slow),
        pytest.param("gpt2", RECOMPUTED, marks=pytest.mark.slow),
        pytest.param("t5-base", EVERY, marks=pytest.mark.slow),
        pytest.param("mixtral-8x7b", [*EVERY, *RECOMPUTED], marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_pass_is_lowered_as_by_all_layers(
    name: str, hows: list[Configuration], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ops in their order, gradients as they come, and the peak, to the bit."""
    again = replace(graph(name))
    for how in hows:
        few = lowered_or_refused(graph(name), how)
        with monkeypatch.context() as patched:
            patched.setattr(lowering, "fewer_layers", lambda one, _: whole_graph(one))
            whole = lowered_or_refused(again, how)
        if isinstance(few, str) or isinstance(whole, str):
            assert few == whole, how
        else:
            assert_lowered_alike(few, whole, how)


def lowered_or_refused(asked: Graph, how: Configuration) -> LoweredPass | str:
    try:
        return lower(asked, how)
    except InvalidInputError as refused:
        return str(refused)


def assert_lowered_alike(few: LoweredPass, whole: LoweredPass, how: Configuration) -> None:
    for column in ("order", "count", "flop", "read_bytes", "write_bytes", "dims", "num_kernels"):
        assert np.array_equal(getattr(few.costs, column), getattr(whole.costs, column)), (
            column,
            how,
        )
    modules = [[one.costs.modules[row] for row in one.costs.module] for one in (few, whole)]
    assert modules[0] == modules[1], how
    assert np.array_equal(few.gradient_ready, whole.gradient_ready), how
    assert few.num_trainable_parameters == whole.num_trainable_parameters
    points = Points.of([1.0, 4.0, 64.0], seq=512.0)
    for mine, its in zip(
        live_at_peak(few.memory, points), live_at_peak(whole.memory, points), strict=True
    ):
        np.testing.assert_allclose(mine, its, rtol=1e-12, err_msg=str(how))


def costs_of(name: str, how: Configuration, shape: SplitShape) -> BlockCosts | str:
    link = LinkTable.from_links([make_link()])
    group = TensorGroup(shape=shape, ranks_per_node=8, device_link=link, node_link=link)
    device = DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")])
    points = Points.of([1.0, 4.0], seq=2048.0)
    try:
        return block_costs(replace(graph(name)), how, device, points, group)
    except InvalidInputError as refused:
        return str(refused)


def fullest(moments: PeakMoments) -> np.ndarray:
    """Most that is alive where shares of states, gradients or parameters are split away."""
    kept = [
        moments.whole - states * moments.states - gradients * moments.gradients
        for states in (0.0, 0.5, 0.99)
        for gradients in (0.0, 0.9)
    ]
    kept += [moments.whole - part * moments.parameters for part in (0.5, 0.99)]
    weights, gradients = moments.whole_shares(wraps_each=True)
    kept.append(moments.whole - (1.0 - weights) * moments.parameters)
    kept.append(moments.whole - (1.0 - gradients) * moments.gradients)
    return np.array([one.max(axis=0) for one in kept])


def assert_alike(one: object, other: object) -> None:
    """Every number, but moments, of which the fullest alone matter."""
    if isinstance(one, PeakMoments) and isinstance(other, PeakMoments):
        np.testing.assert_allclose(fullest(one), fullest(other), rtol=1e-12)
        assert one.all_gradients == pytest.approx(other.all_gradients, rel=1e-12)
    elif is_dataclass(one):
        for field in fields(one):
            if field.name != "moment_block":
                assert_alike(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, float | np.ndarray):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    else:
        assert one == other


#: What once differed between few layers and all.
ONCE_APART = (
    replace(HOW, offload="activations"), replace(HOW, offload="optimizer"),
    replace(HOW, checkpointing="block", checkpoint_inputs="kept"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "how", "shape"),
    sampled(
        [
            (name, how, shape)
            for name, *_ in MODELS
            for how in WAYS
            for shape in SHAPES[: 2 if name == "gemma-2-9b" else 3]
        ]
        + [("gpt2", how, SHAPES[0]) for how in UNEVEN]
        + [("mixtral-8x7b", how, SHAPES[1]) for how in ONCE_APART]
        + [(name, how, SHAPES[1]) for name in ("gpt2", "mixtral-8x7b") for how in TRAINED],
        ("gpt2", WAYS[1], SHAPES[1]),
        ("llama-3-8b", WAYS[3], SHAPES[0]),
        ("llama-3-8b", WAYS[2], SHAPES[1]),
        ("gemma-2-9b", WAYS[0], SHAPES[1]),
        ("gpt2", UNEVEN[0], SHAPES[0]),
        *(("mixtral-8x7b", how, SHAPES[1]) for how in ONCE_APART),
    ),
)
def test_ranks_have_the_costs_of_the_whole(
    name: str, how: Configuration, shape: SplitShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = costs_of(name, how, shape)
    monkeypatch.setattr(rank_work, "fewer_layers", lambda one, _: whole_graph(one))
    assert_alike(few, costs_of(name, how, shape))
