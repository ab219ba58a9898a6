from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.parallelism.strategy.strategy import (
    AXIS_NAMES,
    AxisPlacement,
    MeshAxis,
    Placement,
    Schedule,
    Strategy,
)


@st.composite
def schedules(draw, *, has_stages: bool) -> Schedule:
    microbatches = draw(st.integers(1, 5000))
    if not has_stages:
        return Schedule(num_microbatches=microbatches)
    kind = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zbh1"]))
    chunks = draw(st.integers(2, 99)) if kind == "interleaved" else 1
    return Schedule(kind=kind, num_microbatches=microbatches, num_chunks=chunks)


@st.composite
def placements(draw, axes: list[str]) -> tuple[Placement, ...]:
    letters = st.text(st.sampled_from("abz019_.*?[]-!:"), min_size=1, max_size=12)
    patterns = draw(st.lists(letters, unique=True, max_size=3)) if axes else []
    dims = st.one_of(st.none(), st.integers(0, 9))
    return tuple(
        Placement(
            pattern=pattern,
            by_axis=tuple(
                AxisPlacement(axis=axis, shard_dim=draw(dims))
                for axis in draw(st.lists(st.sampled_from(axes), min_size=1, unique=True))
            ),
        )
        for pattern in patterns
    )


@st.composite
def strategies(draw) -> Strategy:
    names = draw(st.lists(st.sampled_from(AXIS_NAMES), unique=True))
    levels = st.sampled_from(["auto", "device", "node"])
    sync = st.sampled_from(["all_reduce", "single_process", "parameter_server"])
    mesh = tuple(
        MeshAxis(name=name, size=draw(st.integers(2, 20_000)), level=draw(levels)) for name in names
    )
    context = next((axis.size for axis in mesh if axis.name == "cp"), 1)
    ulysses = draw(st.sampled_from([n for n in (1, 2, 3, context) if context % n == 0]))
    return Strategy(
        mesh=mesh,
        ulysses=ulysses,
        gathers_keys=ulysses < context and draw(st.booleans()),
        schedule=draw(schedules(has_stages="pp" in names)),
        sharding=draw(st.sampled_from(["none", "zero1", "zero2", "zero3"]))
        if {"dp", "cp", "ep"} & set(names) and "fsdp" not in names
        else "none",
        recompute=draw(st.sampled_from(["none", "selective", "experts", "block", "full"])),
        sequence_parallel="tp" in names and draw(st.booleans()),
        offloads_optimizer=names != ["dp"] and draw(st.booleans()),
        gradient_sync=draw(sync) if names == ["dp"] else "all_reduce",
        placements=draw(placements(names)),
    )


@given(strategies())
def test_every_strategy_reads_back_from_its_string(strategy: Strategy) -> None:
    assert Strategy.parse(str(strategy)) == strategy


@given(strategies(), strategies())
def test_the_string_is_a_key(one: Strategy, other: Strategy) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(st.text(max_size=60))
def test_any_text_is_a_strategy_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        strategy = Strategy.parse(text)
        assert Strategy.parse(str(strategy)) == strategy


def test_the_shorthand_of_the_design() -> None:
    strategy = Strategy.parse("dp4.tp2.pp2@1f1b/mb8")
    assert str(strategy) == "dp4.tp2.pp2@1f1b/mb8"
    assert strategy.num_ranks == 16
    assert (strategy.size("dp"), strategy.size("tp"), strategy.size("ep")) == (4, 2, 1)
    assert strategy.schedule == Schedule(kind="1f1b", num_microbatches=8)


def test_strides_follow_the_order_outermost_first() -> None:
    strategy = Strategy.from_degrees(dp=4, tp=8, pp=2)
    assert str(strategy).startswith("pp2.dp4.tp8@1f1b")
    assert [strategy.stride(axis) for axis in ("pp", "dp", "tp")] == [32, 8, 1]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("pp16", "pp16@1f1b/mb32"),
        ("pp4/mb12", "pp4@1f1b/mb12"),
        ("pp4@gpipe", "pp4@gpipe/mb8"),
        ("pp4.dp2.tp2+sp", "pp4.dp2.tp2@1f1b/mb8+sp"),
        ("pp4@1f1b/mb1", "pp4@1f1b/mb1"),
        ("dp8", "dp8"),
    ],
)
def test_stages_run_1f1b_with_two_microbatches_each_unless_stated(text: str, meant: str) -> None:
    assert str(Strategy.parse(text)) == meant
    assert Strategy.parse("pp16") == Strategy.from_degrees(pp=16)


def test_stages_need_a_schedule_in_code() -> None:
    with pytest.raises(InvalidInputError, match="needs a pipeline schedule"):
        Strategy(mesh=(MeshAxis(name="pp", size=4),))


@pytest.mark.parametrize("text", ["dp1", "dp1.tp1"])
def test_one_device_is_an_empty_mesh(text: str) -> None:
    assert Strategy.parse(text) == Strategy()
    assert str(Strategy()) == "dp1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a strategy"),
        ("dp0", "no axis `dp0`"),
        ("dp-4", "not a strategy"),
        ("dp4.dp2", "at most once"),
        ("xx4", "no axis `xx4`"),
        ("dp4@1f1b/mb8", "`@1f1b` orders pipeline stages, and this mesh has no `pp` axis"),
        ("tp4+zero1", "which this mesh lacks"),
        ("dp4+sp", "which this mesh lacks"),
        ("dp4+zero1+zero2", "both"),
        ("dp4+magic", "no option `magic`"),
        ("dp4.tp2+single-process", "plain data parallel"),
        ("pp2@1f1b7/mb4", "has no chunks"),
        ("pp2@interleaved1/mb4", "2 or more chunks"),
        ("dp4/mb0", "at least one"),
        ("dp4;fc=tp:shard0", "which this mesh lacks"),
        ("dp4;fc=dp:shard", "no placement"),
        ("dp4;a=dp:shard0;a=dp:shard1", "same pattern"),
        ("dp4:moon", "no axis"),
    ],
)
def test_what_is_not_a_strategy_says_why(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        Strategy.parse(text)
    assert caught.value.hint


def test_degrees_below_one_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="below 1"):
        Strategy.from_degrees(dp=0)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("cp4+ulysses", "cp4+ulysses4"), ("cp4+ulysses2", "cp4+ulysses2"), ("cp4+ulysses1", "cp4")],
)
def test_ranks_of_ulysses_are_ranks_of_cp(text: str, canonical: str) -> None:
    assert str(Strategy.parse(text)) == canonical
    with pytest.raises(InvalidInputError, match="3 ranks of Ulysses do not divide the 4 of `cp`"):
        Strategy.parse("cp4+ulysses3")


@pytest.mark.parametrize("text", ["dp4+gather", "cp4+ulysses4+gather"])
def test_keys_are_gathered_among_ranks_of_cp_that_share_no_heads(text: str) -> None:
    assert str(Strategy.parse("cp4+gather+ulysses2")) == "cp4+ulysses2+gather"
    with pytest.raises(InvalidInputError, match="ranks of `cp`"):
        Strategy.parse(text)
