"""Blocks cut into stages: nothing is lost; a stage holds and sends what its blocks do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.parallelism.links_of_tests import make_link

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.memory.sharded_memory import PeakMoments
from paceline.parallelism.memory.training_state import Part, TiedState, TrainingState
from paceline.parallelism.schedule.blocks import BlockCosts
from paceline.parallelism.schedule.layouts import Layout, layout
from paceline.parallelism.schedule.pipeline_timing import distinct_pipelines
from paceline.parallelism.schedule.stages import balanced_cuts
from paceline.parallelism.schedule.table import KINDS, ClusterLinks, StrategyTable, Variant
from paceline.parallelism.split import SplitShape
from paceline.prediction.prediction import Points

#: Of what is alive at a moment.
MOMENTS = ("whole", "states", "update", "gradients", "parameters")
#: Of a batch of one: saved activations, and those alive for a moment.
HELD = st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=4, max_size=12)


def tied_to_ends(num_blocks: int) -> npt.NDArray[np.bool_]:
    """One parameter that the first and the last block read."""
    ends = np.zeros((1, num_blocks), dtype=np.bool_)
    ends[0, [0, -1]] = True
    return ends


def variant(
    saved: FloatArray, transient: FloatArray, *, tensor_degree: int = 1, boundary: float = 1e6,
    is_split: bool = False,
) -> Variant:  # fmt: skip
    """Blocks of rising cost."""
    num_blocks = len(saved)
    rising = np.arange(1.0, num_blocks + 1.0)
    costs = BlockCosts(
        names=tuple(f"layers.{number}" for number in range(num_blocks)),
        points=Points(batch=np.ones(1), seq=np.ones(1)),
        forward_s=rising[None],
        backward_s=2 * rising[None],
        forward_host_s=np.zeros((1, num_blocks)),
        backward_host_s=np.zeros((1, num_blocks)),
        update_host_s=0.0,
        update_late_s=0.0,
        update_bytes_per_s=np.inf,
        weight_s=rising[None],
        tensor_s=0.1 * rising[None],
        state=TrainingState(1e6 * np.tile(rising, (len(Part), 2, 1))),
        tied=TiedState(
            values=np.full((len(Part), 2, 1), 1e5),
            reads=tied_to_ends(num_blocks),
            home=np.zeros(1, dtype=np.int64),
        ),
        saved_bytes=np.asarray(saved)[None],
        put_off_bytes=1e3 * rising[None],
        boundary_bytes=boundary * rising[None],
        handed_bytes=boundary * rising[None],
        transient_bytes=np.asarray(transient)[None],
        adding_bytes=np.asarray(transient)[None],
        largest_bytes=np.asarray(transient)[None],
        moments=PeakMoments(**dict.fromkeys(MOMENTS, np.zeros((1, 1)))),
        moment_block=np.zeros(1, dtype=np.int64),
        num_allocations=np.zeros(1),
        traits=(),
    )
    return Variant(
        shape=SplitShape(tensor=tensor_degree, sequence_parallel=is_split),
        checkpointing="none",
        costs=costs,
    )


def cut(held: list[tuple[float, float]], num_stages: int) -> tuple[Variant, Layout]:
    one = variant(*np.array(held).T)
    return one, layout(one, num_stages, 0, is_even=False)


@given(held=HELD, num_stages=st.integers(1, 4))
def test_cutting_loses_nothing(held: list[tuple[float, float]], num_stages: int) -> None:
    one, found = cut(held, num_stages)
    costs = one.costs
    for stages, blocks in (
        (found.forward_s, costs.forward_s), (found.backward_s, costs.backward_s),
        (found.weight_s, costs.weight_s), (found.tensor_s, costs.tensor_s),
        (found.saved_bytes, costs.saved_bytes),
        (found.put_off_bytes, costs.put_off_bytes),
    ):  # fmt: skip
        assert len(stages) == num_stages
        assert stages.sum() == pytest.approx(blocks.sum())


@given(held=HELD, num_stages=st.integers(1, 4))
def test_both_ends_keep_what_both_read(held: list[tuple[float, float]], num_stages: int) -> None:
    """A tied embedding is there twice, on the last stage too, unless one stage has both ends."""
    one, found = cut(held, num_stages)
    more = found.state.parameters[0] - np.add.reduceat(
        one.costs.state.parameters[0], np.flatnonzero(starts(one, num_stages))
    )
    expected = np.zeros(num_stages)
    expected[-1] = one.costs.tied.values[Part.PARAMETERS, 0, 0] if num_stages > 1 else 0.0
    assert more == pytest.approx(expected)


def starts(one: Variant, num_stages: int) -> npt.NDArray[np.bool_]:
    """Blocks that begin a stage, as work is balanced."""
    work = one.costs.forward_s[0] + one.costs.backward_s[0]
    return np.isin(np.arange(len(work)), balanced_cuts(work, num_stages))


@given(held=HELD)
def test_a_stage_peaks_where_its_backward_does(held: list[tuple[float, float]]) -> None:
    """Blocks run backward from the last; what they had saved is free once they are done."""
    _, found = cut(held, 1)
    kept = sum(saved for saved, _ in held)
    peak = 0.0
    for saved, transient in reversed(held):
        peak = max(peak, kept + transient)
        kept -= saved
    assert found.saved_bytes[0] + found.transient_bytes[0] == pytest.approx(peak)


@given(held=HELD, num_stages=st.integers(1, 4))
def test_the_largest_tensor_of_a_stage_is_that_of_its_blocks(
    held: list[tuple[float, float]], num_stages: int
) -> None:
    one, found = cut(held, num_stages)
    assert found.largest_bytes.max() == one.costs.largest_bytes.max()


def test_tensor_ranks_send_a_part_of_the_message_each_unless_each_has_only_a_part() -> None:
    held = np.ones((2, 4))
    sent = {
        (degree, is_split): layout(
            variant(*held, tensor_degree=degree, is_split=is_split), 4, 0, is_even=True
        ).message_bytes
        for degree, is_split in ((1, False), (4, False), (4, True))
    }
    assert sent[1, False] == 3e6, "the last block's result goes nowhere"
    assert sent[4, False] == sent[1, False] / 4
    assert sent[4, True] == sent[1, False]


def test_ranks_of_a_node_share_its_network_when_stages_lie_in_several() -> None:
    """Over a link of a node that is as much faster as there are ranks, it makes no difference."""
    one = variant(*np.ones((2, 4)), boundary=1e9)

    def link(bytes_per_s: float) -> LinkTable:
        return LinkTable.from_links([make_link("any", kind="generic", bytes_per_s=bytes_per_s)])

    def seconds(devices_per_node: int, node_bytes_per_s: float) -> float:
        columns = {
            "variant": 0, "dp": 2, "pp": 4, "chunks": 1, "kind": KINDS.index("1f1b"),
            "microbatches": 8, "point": 0, "sharding": 0, "shards": 0,
        }  # fmt: skip
        fabric = ClusterLinks(
            devices_per_node=devices_per_node, device_link=link(1e9),
            node_link=link(node_bytes_per_s),
        )  # fmt: skip
        table = StrategyTable(**{name: np.array([value]) for name, value in columns.items()})
        return float(distinct_pipelines(table, [one], fabric).times().all_s[0])

    inside, between, narrow = seconds(8, 1e9), seconds(4, 4e9), seconds(4, 1e9)
    assert between == pytest.approx(inside, rel=1e-3)
    assert narrow > 1.5 * inside


def test_gradients_made_in_the_buffer_of_their_sum_are_held_once() -> None:
    """Elsewhere one more of the fullest block is there, until it is added."""
    one = variant(np.array([1e6, 1e6]), np.array([4e6, 4e6]))
    costs = replace(one.costs, adding_bytes=one.costs.transient_bytes + 3e6)
    one = replace(one, costs=costs)
    added, in_place = (
        layout(one, 1, 0, is_even=False, adds_in_place=how).transient_bytes for how in (False, True)
    )
    assert added - in_place == pytest.approx([3e6])
