"""What a user asks of the tracer, made into a breakdown of every pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.app.output import to_json
from paceline.app.requests.plan_request import read_calibration, read_compiler
from paceline.catalog.entities import Device
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.dtypes import find_precision, read_precision
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.model.settings import read_settings
from paceline.planning.places.support import checked_on, configuration_on, source_words
from paceline.prediction.comparison import compare_passes
from paceline.prediction.devices import DeviceTable
from paceline.prediction.memory.remedies import memory_remedies
from paceline.simulation.observed import ObservedPass, Trace


def break_down_workload(
    workload: Workload,
    *,
    device: str | None,
    batch: int,
    seq: int | None,
    precision: str | None,
    compiler: str,
    top: int,
    rewrite: str = "",
    compare: str = "",
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
) -> Trace:
    """Take every pass of a workload apart.

    Raises:
        InvalidInputError: A batch or number of ops below one, settings that cannot be read, or a
            device that does not run them.
        UnknownNameError: No such device, precision, compiler or setting.
    """
    _check_counts(batch=batch, ops=top, length=1 if seq is None else seq)
    if device is None and (facts or calibration):
        option = "--facts" if facts else "--calibration"
        raise InvalidInputError(
            f"`{option}` says nothing without a device", hint="name one with --device"
        )
    found = None if device is None else find_device(load_catalog(tuple(facts)), device)
    base = _configured(found, precision, compiler, rewrite)
    table = None if found is None else DeviceTable.from_devices((found,))
    known = read_calibration(calibration)
    length = workload.default_seq if seq is None else seq

    def shown_in(settings: Configuration) -> list[ObservedPass]:
        """Each pass as it runs with some settings."""
        return [
            ObservedPass.of(one, settings, table, batch=batch, seq=length, calibration=known)
            for one in workload.passes
        ]

    shown = shown_in(base)
    for setting in filter(None, rewrite.split(",")):
        rest = ",".join(one for one in rewrite.split(",") if one != setting)
        try:
            without = shown_in(_configured(found, precision, compiler, rest))
        except InvalidInputError:
            continue  # Another setting cannot be without it.
        if all(_is_same(one, two) for one, two in zip(shown, without, strict=True)):
            raise InvalidInputError(
                f"`--rewrite {setting}` changes nothing for {workload.title} here",
                hint="leave it out",
            )
    others = shown_in(_checked(found, read_settings(compare, base))) if compare else []
    return Trace(
        model=workload.name,
        title=workload.title,
        task=workload.task,
        sample_unit=workload.sample_unit,
        source=workload.source,
        precision=base.precision,
        compiler=base.compiler,
        rewrite=rewrite,
        assumption="" if found is None else source_words(found),
        passes=tuple(replace(one.whole, ops=one.whole.ops[:top]) for one in shown),
        memory_courses=tuple(one.course for one in shown),
        remedies=tuple(
            memory_remedies(one.graph, two.lowered, task=workload.task, batch=batch, seq=length)
            for one, two in zip(workload.passes, shown, strict=True)
        ),
        positions=tuple(one.position for one in shown if one.position is not None),
        compared_with=compare,
        comparisons=tuple(
            compare_passes(one.whole, two.whole) for one, two in zip(shown, others, strict=False)
        ),
    )


def _is_same(one: ObservedPass, two: ObservedPass) -> bool:
    """Whether a pass runs the same ops and keeps the same memory."""
    return to_json((one.whole, one.course)) == to_json((two.whole, two.course))


def _check_counts(*, batch: int, ops: int, length: int) -> None:
    for name, number in (("batch", batch), ("number of ops", ops), ("length", length)):
        if number < 1:
            raise InvalidInputError(f"a {name} of {number} cannot be", hint="give at least 1")


def _configured(
    device: Device | None, precision: str | None, compiler: str, rewrite: str
) -> Configuration:
    mode = read_compiler(compiler)
    if device is not None:
        return configuration_on(device, precision=precision, compiler=mode, rewrite=rewrite)
    plain = Configuration(precision=read_precision(precision or "bf16"), compiler=mode)
    return _checked(None, read_settings(rewrite, plain))


def _checked(device: Device | None, configuration: Configuration) -> Configuration:
    find_precision(configuration.precision)
    return configuration if device is None else checked_on(device, configuration)
