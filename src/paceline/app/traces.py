"""What a user asks of the tracer, made into a breakdown of every pass."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.app.inquiry import read_compiler
from paceline.catalog import find_device, load_catalog
from paceline.dtypes import find_precision
from paceline.errors import InvalidInputError
from paceline.plan.support import platform_of
from paceline.predict import DeviceTable
from paceline.predict.breakdown import PassBreakdown, break_down
from paceline.stack import newest_stack, why_unsupported
from paceline.trace import Configuration, Workload, lower


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A traced model, pass by pass.

    Attributes:
        model: As typed.
        title: As printed.
        task: ``train`` or ``infer``.
        sample_unit: What throughput counts.
        source: Where the architecture comes from.
        precision: Of the passes as they are shown.
        compiler: Likewise.
        passes: One breakdown each.
    """

    model: str
    title: str
    task: str
    sample_unit: str
    source: str
    precision: str
    compiler: str
    passes: tuple[PassBreakdown, ...]


def break_down_workload(
    workload: Workload,
    *,
    device: str | None,
    batch: int,
    seq: int | None,
    precision: str,
    compiler: str,
    top: int,
) -> Trace:
    """Take every pass of a workload apart.

    Raises:
        InvalidInputError: A batch or number of ops below one.
        UnknownNameError: No such device, precision or compiler.
    """
    for name, number in (("batch", batch), ("number of ops", top), ("length", seq or 1)):
        if number < 1:
            raise InvalidInputError(f"a {name} of {number} cannot be", hint="give at least 1")
    configuration, table = _configured(device, precision, compiler)
    passes = tuple(
        break_down(
            lower(one.graph, configuration),
            table,
            batch=batch,
            seq=seq or workload.default_seq,
            num_ops=top,
        )
        for one in workload.passes
    )
    return Trace(
        model=workload.name,
        title=workload.title,
        task=workload.task,
        sample_unit=workload.sample_unit,
        source=workload.source,
        precision=precision,
        compiler=compiler,
        passes=passes,
    )


def _configured(
    name: str | None, precision: str, compiler: str
) -> tuple[Configuration, DeviceTable | None]:
    find_precision(precision)
    mode = read_compiler(compiler)
    if name is None:
        return Configuration(precision=precision, compiler=mode), None
    device = find_device(load_catalog(), name)
    stack = newest_stack(device)
    platform = platform_of(stack) if stack else None
    if platform is None:
        raise InvalidInputError(
            f"no framework runs on {device.name}: {why_unsupported(device) or 'none is known'}",
            hint="leave --device out, or name another",
        )
    configuration = Configuration(precision=precision, compiler=mode, platform=platform)
    return configuration, DeviceTable.from_devices((device,))
