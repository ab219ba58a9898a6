"""Calibration from the user's own measurements: weighed, traceable, and undone by dropping a line.

What a measured step teaches of others stands in `gaussian_process`: a little of any step
of its device, more of those of its setting, its workload and its kernels, most of itself.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError
from paceline.prediction.calibration.fitted import Calibration, Residual, Update
from paceline.prediction.calibration.gaussian_process import Spreads, learn
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.reading import MAX_LOG_BYTES, read_text
from paceline.writing import make_folder, write_whole

_FORMAT_VERSION = 2
#: Files of the first format name the workload alone.
_READABLE_VERSIONS = (1, 2)
#: Ratios outside are mistakes (a wrong unit, a wrong device), not calibration.
_LARGEST_LOG_RATIO = math.log(10.0)


def residual(
    *, device_name: str, step: StepFeatures, measured_s: float, predicted_s: float
) -> Residual:
    """How far one measurement is from its prediction.

    Raises:
        InvalidInputError: Not positive, or more than ten times off.
    """
    if not (measured_s > 0 and predicted_s > 0):
        raise InvalidInputError(
            f"a step of {step.workload} on {device_name} took {measured_s:g} s, predicted "
            f"{predicted_s:g} s: both must be above zero",
            hint="remove the record, or predict the same workload, batch and precision",
        )
    log_ratio = math.log(measured_s / predicted_s)
    if abs(log_ratio) > _LARGEST_LOG_RATIO:
        raise InvalidInputError(
            f"{step.workload} on {device_name} measured {measured_s:g} s against {predicted_s:g} s "
            "predicted: more than ten times apart",
            hint="check the device, the batch and the unit of that record",
        )
    return Residual(device_name=device_name, step=step, log_ratio=log_ratio)


def calibrate(
    calibration: Calibration, residuals: Iterable[Residual], *, label: str
) -> Calibration:
    """``calibration`` moved by measurements; those that it has learned already move nothing.

    Args:
        calibration: What to start from.
        residuals: Measured over predicted, where predicted is that of the *built-in* calibration.
        label: Date and origin of the measurements, kept as provenance.

    Raises:
        InvalidInputError: No residuals.
    """
    given = tuple(residuals)
    if not given:
        raise InvalidInputError(
            "there is nothing to calibrate with", hint="measure first: `paceline measure resnet50`"
        )
    if any(update.residuals == given for update in calibration.updates):
        return calibration
    return _with_updates(calibration, (*calibration.updates, Update(label=label, residuals=given)))


def undo(calibration: Calibration, label: str | None = None) -> Calibration:
    """``calibration`` as if one update had never been made.

    Args:
        calibration: With updates.
        label: Of the update; the newest of that name where several have it, and the last of all
            if None.

    Raises:
        InvalidInputError: There is none, or none of that name.
    """
    updates = calibration.updates
    if not updates:
        raise InvalidInputError("there is no calibration to undo", hint="nothing was calibrated")
    labels = [update.label for update in updates]
    if label is not None and label not in labels:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(labels))
        raise InvalidInputError(f"no update is called `{label}`", hint=f"there are {names}")
    gone = max(n for n, name in enumerate(labels) if label in (None, name))
    return _with_updates(calibration, (*updates[:gone], *updates[gone + 1 :]))


def write_updates(calibration: Calibration, path: Path) -> None:
    """Keep the updates, and nothing of the built-in coefficients, as JSON.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    updates = [dataclasses.asdict(update) for update in calibration.updates]
    content = {"format_version": _FORMAT_VERSION, "updates": updates}
    make_folder(path.parent)
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False))


def read_updates(calibration: Calibration, path: Path) -> Calibration:
    """``calibration`` with the updates of a file that `write_updates` wrote.

    Raises:
        InvalidInputError: Not such a file.
    """
    text = read_text(
        path,
        what="calibration",
        most_bytes=MAX_LOG_BYTES,
        hint="write one with `paceline calibrate rows.csv`",
    )
    try:
        content = json.loads(text)
        if content["format_version"] not in _READABLE_VERSIONS:
            raise ValueError(f"format version {content['format_version']}")
        updates = tuple(_update(item) for item in content["updates"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(
            f"`{path}` is not a calibration that can be used: {error}",
            hint="delete it and calibrate again",
        ) from None
    return _with_updates(calibration, updates)


def _update(item: Mapping[str, Any]) -> Update:
    return Update(
        label=str(item["label"]), residuals=tuple(_residual(one) for one in item["residuals"])
    )


def _residual(item: Mapping[str, Any]) -> Residual:
    return Residual(
        device_name=str(item["device_name"]),
        step=step_of(item.get("step", item)),
        log_ratio=_checked(float(item["log_ratio"])),
    )


def step_of(item: Mapping[str, Any]) -> StepFeatures:
    """Traits that were written as plain data.

    Raises:
        ValueError, KeyError, TypeError: They were not.
    """
    kernels = tuple((int(one), float(share)) for one, share in item.get("kernels", ()))
    if not all(one >= 0 and 0 < share <= 1 for one, share in kernels):
        raise ValueError("a kernel without its share of the time")
    return StepFeatures(
        workload=str(item["workload"]), setting=str(item.get("setting", "")), kernels=kernels
    )


def _checked(log_ratio: float) -> float:
    if not abs(log_ratio) <= _LARGEST_LOG_RATIO:
        raise ValueError(f"a log ratio of {log_ratio}")
    return log_ratio


def _with_updates(calibration: Calibration, updates: tuple[Update, ...]) -> Calibration:
    spreads = Spreads.of(calibration.constants["calibrate"])
    measured: dict[str, list[tuple[StepFeatures, float]]] = defaultdict(list)
    for one in (one for update in updates for one in update.residuals):
        measured[one.device_name].append((one.step, one.log_ratio))
    lessons = {name: learn(measured[name], spreads) for name in sorted(measured)}
    return dataclasses.replace(calibration, updates=updates, lessons=lessons)
