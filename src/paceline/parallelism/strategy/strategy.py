"""A Strategy: how one job is spread over many devices, as one frozen value.

A mesh of named axes, outermost first as in PyTorch's ``DeviceMesh`` (the last axis joins
neighbouring ranks); a schedule; placements. Degrees are its shorthand; its canonical string is its
key in records, tables and files.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Checkpointing
from paceline.values import dataclass

AxisName = Literal["dp", "fsdp", "tp", "pp", "cp", "ep", "cfg"]
AxisLevel = Literal["auto", "device", "node"]
ScheduleKind = Literal["plain", "gpipe", "1f1b", "interleaved", "zbh1"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]
GradientSync = Literal["all_reduce", "single_process", "parameter_server"]

#: What a search lets data-parallel ranks split. ZeRO-1 communicates like ZeRO-2 and needs more
#: memory, so it never wins and is left out.
SEARCHED_SHARDINGS: tuple[Sharding, ...] = ("none", "zero2", "zero3")

AXIS_NAMES: tuple[AxisName, ...] = get_args(AxisName)

#: Usual rank order, outermost first: what talks most sits innermost, on the fastest link.
USUAL_ORDER: tuple[AxisName, ...] = ("pp", "dp", "fsdp", "cfg", "ep", "cp", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshAxis:
    """One axis of the mesh.

    Attributes:
        name: What the ranks along it share or split.
        size: Ranks along it; at least 2.
        level: Link level it must use. ``auto`` takes whatever its place in the order gives;
            ``device`` demands that its groups stay inside a node, ``node`` that they have one
            rank per node.
    """

    name: AxisName
    size: int
    level: AxisLevel = "auto"

    def __post_init__(self) -> None:
        if self.name not in AXIS_NAMES or self.level not in get_args(AxisLevel):
            raise _invalid(f"`{self.name}:{self.level}` is not an axis and a link level")
        if self.size < 2:
            raise _invalid(f"axis `{self.name}` has size {self.size}; an axis has at least 2 ranks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """In what order microbatches run.

    Attributes:
        kind: ``plain`` runs them one after the other (gradient accumulation); the others are
            pipeline schedules and need a ``pp`` axis. ``zbh1`` splits backward into gradients of
            inputs and of weights, and fills bubbles with the latter.
        num_microbatches: Microbatches per optimizer step.
        num_chunks: Model chunks per stage; above 1 only when interleaved.
    """

    kind: ScheduleKind = "plain"
    num_microbatches: int = 1
    num_chunks: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScheduleKind):
            raise _invalid(f"`{self.kind}` is not a schedule")
        if self.num_microbatches < 1:
            raise _invalid(f"{self.num_microbatches} microbatches; at least one is needed")
        if (self.kind == "interleaved") != (self.num_chunks > 1) or self.num_chunks < 1:
            raise _invalid("interleaved schedules, and no others, have 2 or more chunks per stage")

    @classmethod
    def default(cls, num_stages: int) -> Schedule:
        """What runs where none is stated: 1F1B with two microbatches per stage; else plain.

        >>> Schedule.default(4).num_microbatches
        8
        """
        if num_stages == 1:
            return cls()
        return cls(kind="1f1b", num_microbatches=2 * num_stages)

    @classmethod
    def filled(cls, num_stages: int) -> Schedule:
        """What serving runs: a batch in each stage; plain without others."""
        return cls() if num_stages == 1 else cls(kind="1f1b", num_microbatches=num_stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisPlacement:
    """What one axis does to the parameters of a module.

    Attributes:
        axis: Axis of the mesh.
        shard_dim: Tensor dim that is split; None replicates.
    """

    axis: AxisName
    shard_dim: int | None

    def __post_init__(self) -> None:
        if self.axis not in AXIS_NAMES:
            raise _invalid(f"`{self.axis}` is not an axis")
        if self.shard_dim is not None and not 0 <= self.shard_dim <= 9:
            raise _invalid(f"tensor dim {self.shard_dim} cannot be split; dims are 0 to 9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a mesh does to the modules whose path matches a pattern.

    Attributes:
        pattern: Module path pattern in the sense of ``fnmatch``; ``*`` is the default for all.
        by_axis: One entry per axis that differs from the axis's usual meaning.
    """

    pattern: str
    by_axis: tuple[AxisPlacement, ...]

    def __post_init__(self) -> None:
        if not self.pattern or set(self.pattern) & set(";=,+@/ \t\n"):
            raise _invalid(f"`{self.pattern}` is not a module pattern")
        axes = [p.axis for p in self.by_axis]
        if not axes or len(set(axes)) != len(axes):
            raise _invalid(f"placement of `{self.pattern}` must name each axis at most once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How a job is spread over devices.

    Without placements each axis has its usual meaning: ``dp`` and ``cp`` replicate parameters,
    ``fsdp`` splits every parameter, ``tp`` splits the column and row pairs found in the graph,
    ``ep`` splits experts and the batch, ``cp`` splits each sequence, ``cfg`` gives the guided and
    the free half of an inference a rank each, ``pp`` gives each stage its own layers. Placements
    are tried in order, the first match wins.

    Attributes:
        mesh: Axes, outermost first. Empty means one device.
        schedule: Order of microbatches.
        sharding: What ranks that hold the same parameters split: optimizer state, also gradients,
            also parameters.
        recompute: Activations recomputed in backward.
        sequence_parallel: Whether ``tp`` also splits what lies between its pairs along the
            sequence.
        ulysses: Of the ranks of ``cp``, how many hand each other tokens for heads in attention
            (DeepSpeed Ulysses); among groups of them keys and values go round.
        gathers_keys: Whether ranks of ``cp`` gather all keys and values before attention (as Llama
            3 was trained) instead of passing them round a ring while they work.
        gradient_sync: How gradients meet: all-reduce between processes, PyTorch's old
            single-process ``DataParallel``, or a parameter server.
        placements: Exceptions, first match wins.
        offloads_optimizer: Whether the optimizer and its states are on the host.

    >>> str(Strategy.parse("dp4.tp2.pp2@1f1b/mb8"))
    'dp4.tp2.pp2@1f1b/mb8'
    >>> Strategy.from_degrees(dp=4, tp=2).num_ranks
    8
    """

    mesh: tuple[MeshAxis, ...] = ()
    schedule: Schedule = Schedule()
    sharding: Sharding = "none"
    recompute: Checkpointing = "none"
    sequence_parallel: bool = False
    ulysses: int = 1
    gathers_keys: bool = False
    gradient_sync: GradientSync = "all_reduce"
    placements: tuple[Placement, ...] = ()
    offloads_optimizer: bool = False

    def __post_init__(self) -> None:
        _check_choices(self)
        _check_mesh(self)
        _check_placements(self)

    def __str__(self) -> str:
        """The canonical string, which `parse` reads back to an equal value."""
        from paceline.parallelism.strategy.notation import format_strategy

        return format_strategy(self)

    @classmethod
    def parse(cls, text: str) -> Strategy:
        """Read a strategy string; axes of size 1 are dropped.

        Raises:
            InvalidInputError: Not a strategy, or one that contradicts itself.
        """
        from paceline.parallelism.strategy.notation import parse_strategy

        return parse_strategy(text)

    @classmethod
    def from_degrees(
        cls,
        *,
        dp: int = 1,
        fsdp: int = 1,
        tp: int = 1,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        schedule: Schedule | None = None,
        sharding: Sharding = "none",
        recompute: Checkpointing = "none",
        sequence_parallel: bool = False,
        ulysses: int = 1,
        gathers_keys: bool = False,
    ) -> Strategy:
        """The strategy with these degrees in the usual rank order, `USUAL_ORDER`.

        Args:
            dp: Data parallel replicas.
            fsdp: Ranks that split every parameter.
            tp: Tensor parallel ranks.
            pp: Pipeline stages.
            cp: Context parallel ranks.
            ep: Expert parallel ranks.
            schedule: Order of microbatches; by default 1F1B with two microbatches per stage where
                there are stages, else plain.
            sharding: What ranks along ``dp`` split.
            recompute: Activations recomputed in backward.
            sequence_parallel: Whether ``tp`` splits the sequence between its pairs.
            ulysses: Context parallel ranks that hand each other tokens for heads.
            gathers_keys: Whether context parallel ranks gather keys and values before attention.
        """
        degrees = {"dp": dp, "fsdp": fsdp, "tp": tp, "pp": pp, "cp": cp, "ep": ep}
        for name, size in degrees.items():
            if size < 1:
                raise _invalid(f"{name} degree {size} is below 1")
        sizes = [(name, degrees.get(name, 1)) for name in USUAL_ORDER]
        mesh = tuple(MeshAxis(name=name, size=size) for name, size in sizes if size > 1)
        return cls(
            mesh=mesh,
            schedule=schedule or Schedule.default(pp),
            sharding=sharding,
            recompute=recompute,
            sequence_parallel=sequence_parallel,
            ulysses=ulysses,
            gathers_keys=gathers_keys,
        )

    @property
    def num_ranks(self) -> int:
        """World size: the product of all axes."""
        return math.prod(axis.size for axis in self.mesh)

    @property
    def num_batches(self) -> int:
        """Groups of ranks that each have items of their own."""
        return self.size("dp") * self.size("fsdp") * self.size("ep")

    @property
    def num_parts(self) -> int:
        """Microbatches of all such groups: equal parts of the items of a step."""
        return self.num_batches * self.schedule.num_microbatches

    def size(self, name: AxisName) -> int:
        """Ranks along an axis; 1 where the mesh has none."""
        return next((axis.size for axis in self.mesh if axis.name == name), 1)

    def stride(self, name: AxisName) -> int:
        """Distance in ranks between neighbours along an axis."""
        names = [axis.name for axis in self.mesh]
        inner = self.mesh[names.index(name) + 1 :] if name in names else ()
        return math.prod(axis.size for axis in inner)


def _check_choices(strategy: Strategy) -> None:
    allowed = (
        (strategy.sharding, get_args(Sharding)),
        (strategy.recompute, get_args(Checkpointing)),
        (strategy.gradient_sync, get_args(GradientSync)),
    )
    for value, choices in allowed:
        if value not in choices:
            raise _invalid(f"`{value}` is none of {', '.join(choices)}")


def _check_mesh(strategy: Strategy) -> None:
    names = [axis.name for axis in strategy.mesh]
    if len(set(names)) != len(names):
        raise _invalid("a mesh has each axis at most once")
    kind = strategy.schedule.kind
    if "pp" in names and kind == "plain":
        raise _invalid("a `pp` axis needs a pipeline schedule such as `@1f1b`")
    if "pp" not in names and kind != "plain":
        raise _invalid(f"`@{kind}` orders pipeline stages, and this mesh has no `pp` axis")
    if strategy.sharding != "none" and not {"dp", "cp", "ep"} & set(names):
        raise _invalid(f"`{strategy.sharding}` splits state along `dp`, which this mesh lacks")
    if strategy.sharding != "none" and "fsdp" in names:
        raise _invalid(f"`fsdp` splits all state already, which leaves `{strategy.sharding}` none")
    if strategy.sequence_parallel and "tp" not in names:
        raise _invalid("sequence parallel splits along `tp`, which this mesh lacks")
    if strategy.ulysses < 1 or strategy.size("cp") % strategy.ulysses:
        raise _invalid(
            f"{strategy.ulysses} ranks of Ulysses do not divide the {strategy.size('cp')} of `cp`"
        )
    if strategy.gathers_keys and strategy.size("cp") == strategy.ulysses:
        raise _invalid("`gather` is how ranks of `cp` get keys, and no two of this mesh do")
    if strategy.gradient_sync != "all_reduce" and names != ["dp"]:
        raise _invalid(f"`{strategy.gradient_sync}` is plain data parallel: a `dp` axis, no other")
    if strategy.gradient_sync != "all_reduce" and strategy.offloads_optimizer:
        raise _invalid("`offload` has an optimizer per rank, and gradients that are all-reduced")


def _check_placements(strategy: Strategy) -> None:
    names = {axis.name for axis in strategy.mesh}
    patterns = [placement.pattern for placement in strategy.placements]
    if len(set(patterns)) != len(patterns):
        raise _invalid("two placements have the same pattern; the second would never apply")
    for placement in strategy.placements:
        for entry in placement.by_axis:
            if entry.axis not in names:
                raise _invalid(
                    f"placement of `{placement.pattern}` names `{entry.axis}`, "
                    "which this mesh lacks"
                )


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError(
        message, hint="write strategies like `dp8`, `dp4+zero1` or `pp2.dp4.tp2@1f1b/mb8`"
    )
