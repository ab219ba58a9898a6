"""Which configurations of a model are worth predicting on which devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from paceline.catalog.entities import Device
from paceline.dtypes import ELEMENT_BYTES, DType, find_precision, usual_spelling
from paceline.model.graph.costs import Checkpointing, Compiler, Configuration, Platform
from paceline.model.graph.workload import Task, Workload
from paceline.model.settings import read_settings
from paceline.parallelism.strategy.strategy import Schedule, Sharding, Strategy
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.service import Service
from paceline.stack.devices import compiler_elsewhere
from paceline.stack.engines import USUAL_LOOP, EngineProfile
from paceline.values import dataclass

#: Half-width precisions that keep the usual quality of training and inference, best first, and
#: full-width ones.
_HALF_PRECISIONS = ("bf16", "fp16")
_FULL_PRECISIONS = ("tf32", "fp32")

_FASTEST_FIRST: tuple[Compiler, ...] = ("compiled", "xla", "eager")

#: Below so many parameters autocast's extra casts can cost more than narrow arithmetic saves, so
#: full width competes.
_SMALL_MODEL_PARAMETERS = 5_000_000


#: Precisions whose weights eager kernels widen themselves. Source: torch._weight_int4pack_mm;
#: bitsandbytes, functional.gemv_4bit; Frantar et al., "Marlin", PPoPP 2025 (recalled).
WIDENED_IN_KERNELS = frozenset({"int4", "mxfp4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSupport:
    """What software a device can use.

    Attributes:
        platform: Whose kernels it runs.
        precisions: Usable with the newest framework release.
        compilers: Likewise.
        assumption: What is taken for granted of its software, one sentence; empty for a release.
    """

    device: Device
    platform: Platform
    precisions: frozenset[str]
    compilers: frozenset[str]
    assumption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredDevices:
    """A configuration with the devices on which it is predicted.

    Attributes:
        configuration: How the model is run.
        rows: Indices into the list of devices, rising.
        tensor_degree: Devices that share each layer, and a batch.
        stages: Groups of those that have the layers of an engine one after the other.
        experts: Groups of those that have requests of their own and share the experts of an engine.
        sharding: What the devices of a training job split.
        shares_tables: Whether they share tables of embeddings, each with items of its own.
        host: Whose dispatch applies where no engine serves.
        engine: What serves; None of a plain loop.
    """

    configuration: Configuration
    rows: tuple[int, ...]
    tensor_degree: int = 1
    stages: int = 1
    experts: int = 1
    sharding: Sharding = "none"
    shares_tables: bool = False
    host: str = USUAL_LOOP
    engine: EngineProfile | None = None

    @property
    def num_sharing(self) -> int:
        """Devices that hold a model together."""
        return self.tensor_degree * self.stages * self.experts

    @property
    def of_one_model(self) -> Strategy:
        """How those do so beside the layers that they share, a batch in each stage."""
        return Strategy.from_degrees(
            pp=self.stages, ep=self.experts, schedule=Schedule.filled(self.stages)
        )

    @property
    def profile(self) -> str:
        """The engine of what is served, with its release; else whose dispatch a plain loop has."""
        return self.host if self.engine is None else str(self.engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """What a device does not run.

    Attributes:
        wanted: Precisions or compilers, commas between.
        choices: The options that name what it runs, and who else runs what was wanted.
    """

    wanted: str
    choices: str


def choose_configurations(
    supports: Sequence[DeviceSupport],
    goal: Goal,
    *,
    num_parameters: int,
    checkpointing: Checkpointing = "none",
    rewrite: str = "",
    service: Service | None = None,
    preferred: Sequence[str] = (),
    released: Sequence[str] = (),
    is_quantised_whole: bool = False,
    writes: bool = False,
) -> tuple[ConfiguredDevices, ...]:
    """Configurations in a stable order, each with the devices that can use it.

    Args:
        supports: Devices in the order of the forecast's rows.
        goal: Its precisions, compilers and pins narrow the choice.
        num_parameters: Small models also compete in full width.
        checkpointing: What is recomputed, for all of them.
        rewrite: Further settings for all of them, as `read_settings` reads them.
        service: The engines that serve, where one has kernels for a device.
        preferred: Compilers wanted where the goal names none and the device has them; else it runs
            its own fastest.
        released: Precisions that the weights are released in, in which engines serve them where
            the goal names none.
        is_quantised_whole: Whether INT8 is of products and what they hand on, not of weights
            alone: `quantises_whole`.
        writes: Whether answers are written token by token.

    Raises:
        PacelineError: The settings cannot be read.
    """

    @cache
    def plain(precision: str, platform: Platform) -> Configuration:
        one = Configuration(
            precision=precision, checkpointing=checkpointing, platform=platform,
            widens_in_kernels=precision in WIDENED_IN_KERNELS,
        )  # fmt: skip
        return read_settings(rewrite, one)

    @cache
    def compiled(precision: str, platform: Platform, compiler: Compiler) -> Configuration:
        return replace(plain(precision, platform), compiler=compiler)

    rows: dict[tuple[Configuration, EngineProfile | None], list[int]] = {}
    loop = goal.engine
    host = USUAL_LOOP if loop is None or loop.serves else loop.host
    for row, support in enumerate(supports):
        platform, is_small = support.platform, num_parameters < _SMALL_MODEL_PARAMETERS
        if service is not None and service.excludes(support.device, platform):
            continue
        engine = None if service is None else service.on(support.device, platform)
        formats = () if engine is None else released
        for precision in _precisions(support, goal, engine, is_small=is_small, released=formats):
            if precision == "int8" and is_quantised_whole and "int8-full" in support.precisions:
                precision = "int8-full"
            is_whole = precision == "int8-full" and is_quantised_whole
            if engine is not None:
                ways = [_served(plain(precision, platform), engine)]
            else:
                compilers = _compilers(support, goal, preferred, writes=writes, is_whole=is_whole)
                ways = [compiled(precision, platform, one) for one in compilers]
            for configuration in ways:
                rows.setdefault((configuration, engine), []).append(row)
    return tuple(
        ConfiguredDevices(
            configuration=configuration, rows=tuple(indices), host=host, engine=engine
        )
        for (configuration, engine), indices in rows.items()
    )


def _served(configuration: Configuration, engine: EngineProfile) -> Configuration:
    """The configuration as the engine runs it."""
    compiler = engine.compiler or configuration.compiler
    return replace(configuration, is_served=True, compiler=compiler)


def quantises_whole(workload: Workload, goal: Goal) -> bool:
    """Whether people mean products in INT8 by INT8, not narrow weights alone.

    They do of what writes no answers where most arithmetic is in convolutions, or where software
    runs it that quantises graphs. Source: NVIDIA, "TensorRT Developer Guide", working with
    quantized types; ONNX Runtime and OpenVINO, pages on quantization (recalled).
    """
    loop = goal.engine
    is_own = loop is not None and loop.is_own
    return not workload.generates and (is_own or workload.convolves)


def usual_precisions(support: DeviceSupport) -> tuple[str, ...]:
    """What a job runs in unless stated: half width where there are units for it, then full."""
    halves = tuple(name for name in _HALF_PRECISIONS if _has_units(support.device, name))
    widths = (halves, _FULL_PRECISIONS)
    return tuple(p for width in widths for p in [w for w in width if w in support.precisions][:1])


def _trains_in(device: Device, precision: str) -> bool:
    """Whether a device multiplies in a precision, and does not only widen weights that have it."""
    kept = find_precision(precision)
    is_narrow = ELEMENT_BYTES[kept.matmul_dtype] < ELEMENT_BYTES[DType.BF16]
    return kept.is_trainable and not (is_narrow and kept.peak_key not in device.peak_flop_per_s)


def _has_units(device: Device, precision: str) -> bool:
    """Whether the device multiplies in a precision at least as fast as in FP32."""
    rate = device.peak_flop_per_s.get(find_precision(precision).peak_key)
    return rate is not None and rate >= device.peak_flop_per_s.get("fp32", 0.0)


def _accepted(goal: Goal) -> tuple[str, ...]:
    """Precisions that are pinned or asked for; none where they are free."""
    pinned = goal.pins.get("precision")
    return (usual_spelling(pinned),) if pinned else goal.widths


def widens_fp8(one: ConfiguredDevices, device: Device, goal: Goal) -> bool:
    """Whether weights were asked for in FP8, which the engine widens for want of units."""
    accepted, precision = _accepted(goal), one.configuration.precision
    if one.engine is None or "fp8" not in accepted or precision in accepted:
        return False
    return one.engine.kept_precision("fp8", device) == precision


def as_run(precision: str, support: DeviceSupport, engine: EngineProfile | None) -> str:
    """What a precision is where an engine serves on a device, or a loop if there is none."""
    return precision if engine is None else engine.kept_precision(precision, support.device)


def why_unusable(
    support: DeviceSupport,
    *,
    precisions: Sequence[str] = (),
    compilers: Sequence[str] = (),
    task: Task = "infer",
) -> Unusable | None:
    """What the device does not run of what is wanted; None where it runs one of each.

    ``precisions``: wanted, any of them; empty wants none in particular, as below. ``task``: for
    which others are named.
    """
    able = {p for p in support.precisions if task == "infer" or _trains_in(support.device, p)}
    for option, wanted, runs in (
        ("precision", precisions, able),
        ("compiler", compilers, support.compilers),
    ):
        if wanted and not set(wanted) & runs:
            choices = " or ".join(f"--{option} {name}" for name in sorted(runs))
            others = (compiler_elsewhere(name, support.device) for name in wanted)
            told = [one for one in others if one] if option == "compiler" else []
            return Unusable(wanted=", ".join(wanted), choices="; ".join((choices, *told)))
    return None


def with_common(
    configured: Sequence[ConfiguredDevices],
    supports: Sequence[DeviceSupport],
    pairs: Iterable[tuple[int, int]],
) -> tuple[ConfiguredDevices, ...]:
    """The configurations, with one more for each pair of devices that work together and have none.

    That is one of either device, which the other can use too: the narrower precision first.

    Args:
        configured: What each device would best run.
        supports: Devices in the order of the forecast's rows.
        pairs: Rows of devices that share every batch.
    """
    rows = [set(one.rows) for one in configured]
    for pair in pairs:
        if any(set(pair) <= those for those in rows):
            continue
        common = [number for number, those in enumerate(rows) if those & set(pair)]
        common = [n for n in common if all(_can_use(supports[row], configured[n]) for row in pair)]
        if common:
            rows[min(common, key=lambda n: _width(configured[n].configuration))] |= set(pair)
    together = zip(configured, rows, strict=True)
    return tuple(replace(one, rows=tuple(sorted(those))) for one, those in together)


def _can_use(support: DeviceSupport, configured: ConfiguredDevices) -> bool:
    configuration, engine = configured.configuration, configured.engine
    return (
        configuration.platform == support.platform
        and configuration.precision in support.precisions
        and configuration.compiler in support.compilers
        and (engine is None or engine.serves_on(support.device, support.platform))
    )


def _width(configuration: Configuration) -> int:
    return (*_HALF_PRECISIONS, *_FULL_PRECISIONS, configuration.precision).index(
        configuration.precision
    )


def _precisions(
    support: DeviceSupport, goal: Goal, engine: EngineProfile | None, *, is_small: bool,
    released: Sequence[str],
) -> tuple[str, ...]:  # fmt: skip
    if accepted := _accepted(goal):
        run = [as_run(name, support, engine) for name in accepted]
        return tuple(dict.fromkeys(p for p in run if p in support.precisions))
    if kept := [p for p in released if p in support.precisions]:
        return (kept[0],)
    usual = usual_precisions(support)
    return usual if is_small else usual[:1]


def _compilers(
    support: DeviceSupport, goal: Goal, preferred: Sequence[str], *, writes: bool, is_whole: bool
) -> tuple[Compiler, ...]:
    """Accepted compilers; unless stated, one only, since no prediction is slower compiled.

    Convolutions in 8 bits are kernels of compiled engines: where PyTorch compiles none, as on
    NVIDIA's boards, TensorRT's.
    """
    loop = goal.engine
    if loop is not None and loop.compiler is not None:
        return ("eager",) if writes and loop.writes_by_op else (loop.compiler,)
    accepted = (goal.pins["compiler"],) if "compiler" in goal.pins else goal.compilers
    usable = tuple(c for c in _FASTEST_FIRST if c in support.compilers)
    if accepted:
        return tuple(c for c in usable if c in accepted)
    if is_whole:
        return ("tensorrt",) if usable == ("eager",) and support.platform == "cuda" else usable[:1]
    return tuple(c for c in usable if c in preferred) or usable[:1]
