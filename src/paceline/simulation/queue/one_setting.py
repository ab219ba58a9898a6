"""Which one setting of a service to change: each is changed alone, and what is gained compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from paceline.dtypes import find_precision
from paceline.errors import PacelineError
from paceline.model.graph.engine_features import MOST_TOKENS
from paceline.model.graph.workload import Workload
from paceline.model.served_items import with_num_guesses
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.figures import Replicas, tables_of
from paceline.simulation.queue.load import Load
from paceline.simulation.queue.service import Bounded, Limit, rate_within
from paceline.stack.engines import StepLimits
from paceline.units import format_percent, format_significant
from paceline.values import dataclass

#: Chunks and numbers of sequences that are tried, over what stands.
_FACTORS = (0.25, 0.5, 2.0, 4.0)
#: Of a device's memory an engine is given at most so much: the rest is for what others hold there.
_MOST_MEMORY_FRAC = 0.95
#: Narrower formats; the first in which the device multiplies is tried.
_NARROWER: Mapping[str, tuple[str, ...]] = {
    "fp32": ("bf16", "fp16"),
    "fp16": ("fp8", "int8-full"),
    "bf16": ("fp8", "int8-full"),
}
#: Less is no gain: rates are found to a hundredth.
_LEAST_GAIN = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting changed.

    Attributes:
        words: What it is changed to, as a sentence begins.
        keeps_answers: Whether answers stay what they are; a narrower format may change them.
    """

    words: str
    service: Replicas
    keeps_answers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a setting gains.

    Attributes:
        setting: What is changed.
        before_per_s: Requests that the service completes within its limits as it stands.
    """

    setting: Setting
    before_per_s: float
    after_per_s: float

    @property
    def frac(self) -> float:
        """How much more, over what stands; infinite where that completes nothing."""
        return self.after_per_s / self.before_per_s - 1.0 if self.before_per_s else math.inf

    def text(self, *, is_limited: bool) -> str:
        """As a sentence of what the service then completes."""
        within = " within the goal" if is_limited else " at most"
        more = f" (+{format_percent(self.frac)})" if self.before_per_s else ""
        return (
            f"{self.setting.words}: {format_significant(self.after_per_s)} requests/s{within} "
            f"instead of {format_significant(self.before_per_s)}{more}"
        )


def settings_of(service: Replicas) -> tuple[Setting, ...]:
    """Every setting that can be changed alone: chunks, sequences, cache, ranks, guesses, format."""
    limits = service.step_limits
    if limits is None:
        return ()
    return (
        *_limits_changed(service, limits),
        *_ranks_changed(service),
        *_guesses_changed(service),
        *_adapters_changed(service),
        *_formats(service),
    )


def gains_of(
    service: Replicas, load: Load, limits: Mapping[Bounded, Limit], *,
    calibration: Calibration | None = None,
) -> tuple[Gain, ...]:  # fmt: skip
    """Settings that gain, the most first; none where nothing does.

    Args:
        service: As it stands.
        load: Lengths of its requests.
        limits: That what is completed must keep; without any all that the service can do counts.
        calibration: Of the predictor.
    """
    settings = settings_of(service)
    services = [service, *(one.service for one in settings)]
    tables = tables_of(services, calibration=calibration)
    before_per_s = _rate(service, tables[0], load, limits)
    least_per_s = before_per_s * (1.0 + _LEAST_GAIN)
    found = [
        Gain(
            setting=setting,
            before_per_s=before_per_s,
            after_per_s=_rate(setting.service, table, load, limits, beyond_per_s=least_per_s),
        )
        for setting, table in zip(settings, tables[1:], strict=True)
    ]
    gaining = [one for one in found if one.frac >= _LEAST_GAIN]
    return tuple(sorted(gaining, key=lambda one: -one.after_per_s))


def best_gains(gains: Sequence[Gain]) -> tuple[Gain, ...]:
    """The setting that gains most and keeps the answers, and a format that gains more than it."""
    keeping = next((one for one in gains if one.setting.keeps_answers), None)
    first = next(iter(gains), None)
    if first is None or first is keeping:
        return () if first is None else (first,)
    return (first,) if keeping is None else (keeping, first)


def _rate(
    service: Replicas, table: EngineTable | PacelineError, load: Load,
    limits: Mapping[Bounded, Limit], *, beyond_per_s: float = 0.0,
) -> float:  # fmt: skip
    """Of all replicas; 0 of what cannot run, and of what does not go beyond such a rate."""
    if isinstance(table, PacelineError) or not table.fits:
        return 0.0
    try:
        each_per_s = beyond_per_s / service.num_replicas
        rate_per_s = rate_within(table, load, limits, beyond_per_s=each_per_s)
    except PacelineError:
        return 0.0
    return rate_per_s * service.num_replicas


def _limits_changed(service: Replicas, limits: StepLimits) -> Iterator[Setting]:
    for factor in _FACTORS:
        chunk = int(limits.chunk_tokens * factor)
        if 256 <= chunk <= 32_768:
            told = replace(limits, chunk_tokens=chunk)
            yield Setting(
                words=f"{chunk:,} tokens a step (now {limits.chunk_tokens:,})",
                service=replace(service, limits=told),
            )
        count = int(limits.max_requests * factor)
        if 8 <= count <= 4096:
            told = replace(limits, max_requests=count)
            yield Setting(
                words=f"{count:,} sequences a step (now {limits.max_requests:,})",
                service=replace(service, limits=told),
            )
    if limits.memory_frac < _MOST_MEMORY_FRAC:
        told = replace(limits, memory_frac=_MOST_MEMORY_FRAC)
        share, now = format_percent(_MOST_MEMORY_FRAC), format_percent(limits.memory_frac)
        yield Setting(
            words=f"{share} of the memory for weights and cache (now {now})",
            service=replace(service, limits=told),
        )


def _ranks_changed(service: Replicas) -> Iterator[Setting]:
    """The same devices as more replicas of fewer ranks, or fewer of more within a machine."""
    num_ranks, count = service.machine.num_devices, service.num_replicas
    if num_ranks > service.job.strategy.size("tp"):
        return
    now = f"now {count} of {num_ranks}"
    if num_ranks % 2 == 0:
        yield Setting(
            words=f"{2 * count} replicas of {num_ranks // 2} ({now})",
            service=_on(service, num_ranks // 2, 2 * count),
        )
    if count % 2 == 0 and 2 * num_ranks <= service.most_ranks:
        fewer = count // 2
        yield Setting(
            words=f"{fewer} {'replica' if fewer == 1 else 'replicas'} of {2 * num_ranks} ({now})",
            service=_on(service, 2 * num_ranks, fewer),
        )


def _guesses_changed(service: Replicas) -> Iterator[Setting]:
    """Fewer guesses in a step, or more, each kept at the same chance; and none."""
    workload = service.job.workload
    now = workload.tokens_checked - 1
    for count in sorted({0, now // 2, min(now * 2, MOST_TOKENS)} - {now}):
        several = f"{count} token{'s' * (count > 1)}" if count else "no tokens"
        yield Setting(
            words=f"{several} guessed in a step (now {now})",
            service=_of(service, with_num_guesses(workload, count)),
        )


def _adapters_changed(service: Replicas) -> Iterator[Setting]:
    """More adapters on a device at once, where it does not hold all."""
    workload = service.job.workload
    adapters = workload.adapters
    if adapters is None or not adapters.loaded:
        return
    for held in sorted({min(adapters.loaded * 4, adapters.count), adapters.count}):
        told = replace(adapters, loaded=held)
        if held > adapters.loaded:
            yield Setting(
                words=f"{held:,} adapters on a device at once (now {adapters.loaded:,})",
                service=_of(service, replace(workload, adapters=told)),
            )


def _of(service: Replicas, workload: Workload) -> Replicas:
    return replace(service, job=replace(service.job, workload=workload))


def _on(service: Replicas, num_ranks: int, num_replicas: int) -> Replicas:
    group = replace(service.machine.groups[0], count=num_ranks, devices_per_node=num_ranks)
    strategy = Strategy.parse(f"tp{num_ranks}" if num_ranks > 1 else "dp1")
    return replace(
        service,
        job=replace(service.job, strategy=strategy),
        machine=replace(service.machine, groups=(group,)),
        num_replicas=num_replicas,
    )


def _formats(service: Replicas) -> Iterator[Setting]:
    """The first narrower format in which the device multiplies."""
    how, device = service.job.configuration, service.machine.device
    for name in _NARROWER.get(how.precision, ()):
        if device.dense_peak_flop_per_s(find_precision(name)) is not None:
            job = replace(service.job, configuration=replace(how, precision=name))
            yield Setting(
                words=f"{name.upper()} instead of {how.precision.upper()}, if its answers will do",
                service=replace(service, job=job),
                keeps_answers=False,
            )
            return
