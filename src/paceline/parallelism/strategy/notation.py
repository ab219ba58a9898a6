"""The canonical string of a Strategy, written and read.

::

    strategy  = mesh [ "@" schedule ] [ "/mb" microbatches ] { "+" option } { ";" placement }
    mesh      = axis { "." axis }            dp4.tp2:device.pp2:node     (one device: dp1)
    schedule  = gpipe | 1f1b | interleaved<chunks> | zbh1
    option    = zero1 | zero2 | zero3 | recompute-<what> | sp | ulysses<ranks> | gather | offload |
                single-process | parameter-server
    placement = pattern "=" axis ":" ( shard<dim> | replicate ) { "," ... }

Stages without a schedule run 1F1B, and without a number of microbatches two of them per stage:
``pp16`` reads as ``pp16@1f1b/mb32``. Without a number all ranks of ``cp`` are Ulysses'. Keys go
round a ring of the other ranks of ``cp``, or are gathered before attention (``gather``).
"""

from __future__ import annotations

import re
from typing import TypeVar, get_args

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Checkpointing
from paceline.parallelism.strategy.strategy import (
    AXIS_NAMES,
    AxisLevel,
    AxisPlacement,
    GradientSync,
    MeshAxis,
    Placement,
    Schedule,
    ScheduleKind,
    Sharding,
    Strategy,
)
from paceline.patterns import pattern
from paceline.values import dataclass

_HEAD = pattern(
    r"^(?P<mesh>[a-z0-9.:]+)(?:@(?P<kind>gpipe|1f1b|interleaved|zbh1)(?P<chunks>[0-9]{1,4})?)?"
    r"(?:/mb(?P<microbatches>[0-9]{1,7}))?(?P<options>(?:\+[a-z0-9-]+)*)$"
)
_AXIS = pattern(r"^(?P<name>[a-z]+)(?P<size>[0-9]{1,9})(?::(?P<level>auto|device|node))?$")
_PLACED = pattern(r"^(?P<axis>[a-z]+):(?:shard(?P<dim>[0-9])|replicate)$")
_SYNC: dict[str, GradientSync] = {
    "single-process": "single_process",
    "parameter-server": "parameter_server",
}
_ULYSSES = pattern(r"^ulysses(?P<ranks>[0-9]{1,6})?$")
_MAX_LENGTH = 4096
_Choice = TypeVar("_Choice")


def format_strategy(strategy: Strategy) -> str:
    """The canonical string of a strategy."""
    schedule = strategy.schedule
    chunks = schedule.num_chunks if schedule.kind == "interleaved" else ""
    is_counted = schedule.kind != "plain" or schedule.num_microbatches > 1
    parts = [
        ".".join(_format_axis(axis) for axis in strategy.mesh) or "dp1",
        "" if schedule.kind == "plain" else f"@{schedule.kind}{chunks}",
        f"/mb{schedule.num_microbatches}" if is_counted else "",
        *(f"+{option}" for option in _options(strategy)),
        *(f";{_format_placement(placement)}" for placement in strategy.placements),
    ]
    return "".join(parts)


def parse_strategy(text: str) -> Strategy:
    """Read a strategy string.

    Raises:
        InvalidInputError: Not in the notation, or it contradicts itself.
    """
    head, *placements = text.strip().split(";")
    match = _HEAD.match(head)
    if match is None or len(text) > _MAX_LENGTH:
        raise _unreadable(text)
    options = _Options.parse(match["options"].split("+")[1:], text)
    mesh = _parse_mesh(match["mesh"], text)
    return Strategy(
        mesh=mesh,
        schedule=_parse_schedule(match, mesh, text),
        sharding=options.sharding,
        recompute=options.recompute,
        sequence_parallel=options.sequence_parallel,
        ulysses=options.ulysses or next((axis.size for axis in mesh if axis.name == "cp"), 1),
        gathers_keys=options.gathers_keys,
        gradient_sync=options.gradient_sync,
        offloads_optimizer=options.offloads_optimizer,
        placements=tuple(_parse_placement(part, text) for part in placements),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    sharding: Sharding
    recompute: Checkpointing
    sequence_parallel: bool
    ulysses: int | None
    gathers_keys: bool
    gradient_sync: GradientSync
    offloads_optimizer: bool

    @classmethod
    def parse(cls, names: list[str], text: str) -> _Options:
        """Words after ``+``; ``text`` is the whole strategy, for the message.

        Raises:
            InvalidInputError: A word that says nothing, or two that contradict each other.
        """
        known = {*get_args(Sharding), *_SYNC, "sp", "gather", "offload"} | {
            f"recompute-{kind}" for kind in get_args(Checkpointing)
        }
        ulysses = [match for name in names if (match := _ULYSSES.match(name))]
        if unknown := [name for name in names if name not in known and not _ULYSSES.match(name)]:
            raise _unreadable(text, detail=f": no option `{unknown[0]}`")
        sharding: list[Sharding] = [s for s in get_args(Sharding) if s in names]
        recompute: list[Checkpointing] = [
            kind for kind in get_args(Checkpointing) if f"recompute-{kind}" in names
        ]
        sync = [_SYNC[name] for name in names if name in _SYNC]
        return cls(
            sharding=_only(sharding, "none", text),
            recompute=_only(recompute, "none", text),
            sequence_parallel="sp" in names,
            ulysses=_only([int(match["ranks"] or 0) or None for match in ulysses], 1, text),
            gathers_keys="gather" in names,
            gradient_sync=_only(sync, "all_reduce", text),
            offloads_optimizer="offload" in names,
        )


def _only(found: list[_Choice], default: _Choice, text: str) -> _Choice:
    if len(found) > 1:
        raise _unreadable(text, detail=f": both `{found[0]}` and `{found[1]}`")
    return found[0] if found else default


def _known(word: str | None, known: tuple[_Choice, ...]) -> _Choice | None:
    """The one of ``known`` that is written so; None if none is."""
    return next((one for one in known if one == word), None)


def _options(strategy: Strategy) -> list[str]:
    options: list[str] = [] if strategy.sharding == "none" else [strategy.sharding]
    if strategy.recompute != "none":
        options.append(f"recompute-{strategy.recompute}")
    if strategy.sequence_parallel:
        options.append("sp")
    if strategy.ulysses > 1:
        options.append(f"ulysses{strategy.ulysses}")
    if strategy.gathers_keys:
        options.append("gather")
    if strategy.offloads_optimizer:
        options.append("offload")
    names = {sync: name for name, sync in _SYNC.items()}
    return options + ([names[strategy.gradient_sync]] if strategy.gradient_sync in names else [])


def _format_axis(axis: MeshAxis) -> str:
    return f"{axis.name}{axis.size}" + ("" if axis.level == "auto" else f":{axis.level}")


def _format_placement(placement: Placement) -> str:
    entries = (
        f"{e.axis}:replicate" if e.shard_dim is None else f"{e.axis}:shard{e.shard_dim}"
        for e in placement.by_axis
    )
    return f"{placement.pattern}={','.join(entries)}"


def _parse_mesh(mesh: str, text: str) -> tuple[MeshAxis, ...]:
    axes: list[MeshAxis] = []
    for part in mesh.split("."):
        match = _AXIS.match(part)
        name = _known(match["name"], AXIS_NAMES) if match else None
        if match is None or name is None or int(match["size"]) < 1:
            raise _unreadable(text, detail=f": no axis `{part}`")
        level: AxisLevel = _known(match["level"], get_args(AxisLevel)) or "auto"
        if int(match["size"]) > 1:
            axes.append(MeshAxis(name=name, size=int(match["size"]), level=level))
    return tuple(axes)


def _parse_schedule(match: re.Match[str], mesh: tuple[MeshAxis, ...], text: str) -> Schedule:
    usual = Schedule.default(next((axis.size for axis in mesh if axis.name == "pp"), 1))
    kind: ScheduleKind = _known(match["kind"], get_args(ScheduleKind)) or usual.kind
    if match["chunks"] and kind != "interleaved":
        raise _unreadable(text, detail=f": `{kind}` has no chunks")
    return Schedule(
        kind=kind,
        num_microbatches=int(match["microbatches"] or usual.num_microbatches),
        num_chunks=int(match["chunks"] or 2) if kind == "interleaved" else 1,
    )


def _parse_placement(part: str, text: str) -> Placement:
    pattern, _, entries = part.partition("=")
    by_axis = []
    for entry in entries.split(","):
        match = _PLACED.match(entry)
        axis = _known(match["axis"], AXIS_NAMES) if match else None
        if match is None or axis is None:
            raise _unreadable(text, detail=f": no placement `{entry}`")
        dim = None if match["dim"] is None else int(match["dim"])
        by_axis.append(AxisPlacement(axis=axis, shard_dim=dim))
    return Placement(pattern=pattern, by_axis=tuple(by_axis))


def _unreadable(text: str, *, detail: str = "") -> InvalidInputError:
    return InvalidInputError(
        f"`{text[:80]}` is not a strategy{detail}",
        hint="write strategies like `dp8`, `dp4+zero1` or `pp2.dp4.tp2@1f1b/mb8`",
    )
