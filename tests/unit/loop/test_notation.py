"""The loop reads what the planner prints, without the planner."""

import itertools

import pytest

from paceline.loop.errors import LoopError
from paceline.loop.parallel.notation import parse, refusals
from paceline.parallelism.strategy.strategy import MeshAxis, Schedule, Strategy

_MESHES = (
    (), ("dp",), ("fsdp",), ("tp",), ("pp",), ("dp", "fsdp"), ("dp", "tp"), ("pp", "dp"),
    ("fsdp", "tp"), ("pp", "dp", "tp"), ("dp", "cp"), ("dp", "ep"), ("pp", "dp", "fsdp", "tp"),
    ("cfg",), ("dp", "ep", "tp"),
)  # fmt: skip
_SCHEDULES = (("gpipe", 1), ("1f1b", 1), ("interleaved", 3), ("zbh1", 1))


def _strategies():
    """Every mesh with every option that it can have."""
    levels, shardings = ("auto", "device", "node"), ("none", "zero1", "zero2", "zero3")
    recompute = ("none", "selective", "experts", "block", "full")
    for names, level, zero, again in itertools.product(_MESHES, levels, shardings, recompute):
        if zero != "none" and ("fsdp" in names or not {"dp", "cp", "ep"} & set(names)):
            continue
        mesh = tuple(MeshAxis(name=one, size=k + 2, level=level) for k, one in enumerate(names))
        orders = _SCHEDULES if "pp" in names else (("plain", 1),)
        for (kind, chunks), count in itertools.product(orders, (1, 8)):
            schedule = Schedule(kind=kind, num_microbatches=count, num_chunks=chunks)
            yield Strategy(
                mesh=mesh, schedule=schedule, sharding=zero, recompute=again,
                sequence_parallel="tp" in names and count == 8,
                offloads_optimizer=count == 8 and "dp" in names,
            )  # fmt: skip


def test_every_string_of_the_planner_is_read_alike():
    for strategy in _strategies():
        read, order = parse(str(strategy)), strategy.schedule
        assert read.axes == tuple((axis.name, axis.size) for axis in strategy.mesh)
        assert (read.schedule, read.microbatches, read.chunks) == (
            order.kind, order.num_microbatches, order.num_chunks,
        )  # fmt: skip
        assert (read.sharding, read.recompute) == (strategy.sharding, strategy.recompute)
        told = " ".join(refusals(read))
        for word, is_asked in (
            ("`sp`", strategy.sequence_parallel), ("`offload`", strategy.offloads_optimizer),
            ("context", strategy.size("cp") > 1), ("expert", strategy.size("ep") > 1),
            ("guidance", strategy.size("cfg") > 1), ("`zbh1`", read.schedule == "zbh1"),
            (
                "`interleaved`",
                read.schedule == "interleaved" and read.microbatches % strategy.size("pp") > 0,
            ),
        ):  # fmt: skip
            assert (word in told) == is_asked, str(strategy)


def test_defaults_are_the_planners():
    for text in ("pp4", "pp2.dp2@gpipe", "pp2@interleaved", "dp1", "dp2/mb3", "dp1.tp2"):
        read, wanted = parse(text), Strategy.parse(text)
        assert read.axes == tuple((axis.name, axis.size) for axis in wanted.mesh)
        assert read.microbatches == wanted.schedule.num_microbatches
        assert (read.schedule, read.chunks) == (wanted.schedule.kind, wanted.schedule.num_chunks)


@pytest.mark.parametrize(
    "text", ["dp4+single-process", "dp2+parameter-server", "dp2;layers.*=dp:shard0", "cp4+ulysses2"]
)
def test_what_has_no_engine_is_refused_by_name(text):
    Strategy.parse(text)
    assert refusals(parse(text))


@pytest.mark.parametrize("text", ["", "dp", "4dp", "dp0", "xy4", "dp4+zero9", "dp4+zero1+zero2"])
def test_nonsense_is_refused(text):
    with pytest.raises(LoopError):
        parse(text)
