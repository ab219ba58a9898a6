from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_actions import actions_of_rank
from tests.unit.parallelism.simulation import simulate_pipeline_s

from paceline.errors import InvalidInputError
from paceline.parallelism.schedule.bubbles import in_flight, pipeline_s
from paceline.parallelism.strategy.strategy import Schedule


@st.composite
def pipelines(draw):
    kind = draw(st.sampled_from(["gpipe", "1f1b", "interleaved"]))
    num_ranks = draw(st.integers(2, 8))
    chunks = draw(st.integers(2, 3)) if kind == "interleaved" else 1
    rounds = draw(st.integers(1, 9))
    count = rounds * num_ranks if chunks > 1 else draw(st.integers(1, 9 * num_ranks))
    cost = st.lists(st.floats(0.5, 2.0), min_size=num_ranks * chunks, max_size=num_ranks * chunks)
    schedule = Schedule(kind=kind, num_microbatches=count, num_chunks=chunks)
    return schedule, tuple(draw(cost)), tuple(draw(cost))


@given(pipelines())
@settings(max_examples=150, deadline=None)
def test_arrays_agree_with_the_event_simulation(case) -> None:
    schedule, forward, backward = case
    found = pipeline_s(schedule, np.array([forward]), np.array([backward]))
    assert found[0] == pytest.approx(simulate_pipeline_s(schedule, forward, backward), rel=0.02)


def test_short_pipelines_agree_exactly() -> None:
    rng = np.random.default_rng(1)
    for kind, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
        schedule = Schedule(kind=kind, num_microbatches=8, num_chunks=chunks)
        forward, backward = rng.uniform(0.5, 2.0, (2, 5, 4 * chunks))
        found = pipeline_s(schedule, forward, backward)
        played = [
            simulate_pipeline_s(schedule, tuple(f), tuple(b))
            for f, b in zip(forward, backward, strict=True)
        ]
        assert found == pytest.approx(played)


@pytest.mark.parametrize(("kind", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
@pytest.mark.parametrize("count", [4, 8, 64, 512])
def test_equal_stages_lose_the_published_bubble(kind, chunks, count) -> None:
    """``(p - 1) / (v m)`` of the ideal time: Narayanan et al., SC 2021, section 2.2."""
    schedule = Schedule(kind=kind, num_microbatches=count, num_chunks=chunks)
    stages = np.ones((1, 4 * chunks)) / chunks
    ideal = count * 3.0
    found = pipeline_s(schedule, stages, 2 * stages)[0]
    assert found == pytest.approx(ideal * (1 + (4 - 1) / (count * chunks)))


def test_the_slowest_stage_sets_the_pace() -> None:
    forward = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.5, 1.0, 1.0]])
    schedule = Schedule(kind="1f1b", num_microbatches=10_000)
    found = pipeline_s(schedule, forward, 2 * forward)
    assert found[1] / found[0] == pytest.approx(1.5, rel=1e-2)


@pytest.mark.parametrize(("kind", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 3)])
def test_in_flight_is_what_the_order_of_actions_holds(kind, chunks) -> None:
    schedule = Schedule(kind=kind, num_microbatches=16, num_chunks=chunks)
    for rank, expected in enumerate(in_flight(schedule, num_ranks=4)):
        held = np.cumsum([1 if a.kind == "F" else -1 for a in actions_of_rank(schedule, 4, rank)])
        assert held.max() / chunks == pytest.approx(expected)


def test_microbatches_that_do_not_interleave_say_so() -> None:
    schedule = Schedule(kind="interleaved", num_microbatches=6, num_chunks=2)
    with pytest.raises(InvalidInputError, match="multiple of 4") as caught:
        pipeline_s(schedule, np.ones((1, 8)), np.ones((1, 8)))
    assert "8" in caught.value.hint


def test_candidates_with_other_counts_share_one_play() -> None:
    rng = np.random.default_rng(2)
    forward, backward = rng.uniform(0.5, 2.0, (2, 3, 4))
    counts = np.array([16, 20, 64])
    together = pipeline_s(
        Schedule(kind="1f1b", num_microbatches=16), forward, backward, num_microbatches=counts
    )
    for row, count in enumerate(counts.tolist()):
        alone = pipeline_s(
            Schedule(kind="1f1b", num_microbatches=count), forward[[row]], backward[[row]]
        )
        assert together[row] == alone[0]
