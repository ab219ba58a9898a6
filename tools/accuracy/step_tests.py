"""Whole published steps, each predicted by a fit that never saw its device, or its family."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from fit.options import FitOptions
from fit.steps import Measured, Steps

from accuracy.figures import Figure, errors, figure
from accuracy.folds import device_folds, predict_held_out

#: Sets of the scoreboard: name, source tables, task or both.
SETS: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("timm inference", ("timm",), "infer"),
    ("timm training", ("timm",), "train"),
    ("Lambda TensorFlow", ("lambda_tensorflow_benchmark",), None),
    (
        "Lambda PyTorch",
        ("lambda_deeplearning_benchmark", "lambda_deeplearning_benchmark_v0"),
        None,
    ),
    ("DeepLearningExamples", ("nvidia_deeplearningexamples",), None),
    ("convnet-benchmarks", ("convnet_benchmarks",), None),
    ("MXNet page", ("mxnet_perf",), None),
)
#: Groups in which whole families are held out: a fifth of them at a time.
_FAMILY_GROUPS = 5
_PREFIX = re.compile(r"^timm:(?:tf_|legacy_|gluon_)?([a-z]+)")


def frame_of(steps: Steps) -> pd.DataFrame:
    """One line per step: what it is, what was measured, the plain roofline."""
    roofline = np.zeros(len(steps.step_s))
    for rows in steps.rows.values():
        roofline += np.bincount(rows.step, rows.bound_s * rows.launches, len(roofline))
    return pd.DataFrame({
        "source": steps.source, "device": steps.device, "entry": steps.entry, "task": steps.task,
        "index": steps.index, "measured_log": np.log(steps.step_s),
        "roofline_log": np.log(np.maximum(roofline, 1e-9)), "is_open": steps.is_open,
        "predicted_log": np.nan, "fold": "",
    })  # fmt: skip


def predict_devices(
    steps: Steps, frames: Mapping[str, pd.DataFrame], traits: Mapping[str, np.ndarray],
    options: FitOptions, log: Callable[[str], None],
) -> pd.DataFrame:  # fmt: skip
    """Every step predicted with its device and that device's siblings held out."""
    lines = frame_of(steps)
    for fold, devices in device_folds().items():
        held = lines.device.isin(devices).to_numpy()
        if held.any():
            lines.loc[held, "predicted_log"] = predict_held_out(
                steps, frames, devices, held, traits, options, log
            )
            lines.loc[held, "fold"] = fold
            log(f"held out {fold}: {held.sum()} steps")
    return lines


def predict_families(
    steps: Steps, frames: Mapping[str, pd.DataFrame], traits: Mapping[str, np.ndarray],
    options: FitOptions, log: Callable[[str], None],
) -> pd.DataFrame:  # fmt: skip
    """timm training on the RTX 3090, whole families of models held out in groups."""
    lines = frame_of(steps)
    is_timm = (lines.source == "timm").to_numpy()
    family = lines.entry.str.extract(_PREFIX)[0].fillna("").to_numpy()
    names = np.random.default_rng(0).permutation(np.unique(family[is_timm]))
    for number, group in enumerate(np.array_split(names, _FAMILY_GROUPS)):
        held = is_timm & np.isin(family, group)
        lines.loc[held, "predicted_log"] = predict_held_out(
            steps, frames, (), held, traits, options, log
        )
        log(f"held out families {number + 1} of {_FAMILY_GROUPS}: {held.sum()} steps")
    return lines[is_timm & (lines.task == "train")]


def predict_zero_shot(
    steps: Steps, frames: Mapping[str, pd.DataFrame], traits: Mapping[str, np.ndarray],
    options: FitOptions, log: Callable[[str], None],
) -> pd.DataFrame:  # fmt: skip
    """timm training with no timm training row used."""
    lines = frame_of(steps)
    held = ((lines.source == "timm") & (lines.task == "train")).to_numpy()
    lines.loc[held, "predicted_log"] = predict_held_out(
        steps, frames, (), held, traits, options, log
    )
    log("held out timm training")
    return lines[held]


def set_figures(lines: pd.DataFrame, asked: dict[str, int]) -> list[Figure]:
    """One line per set, devices held out, with its coverage.

    Rows that leave open what ran are scored in a line of their own.

    Args:
        lines: Predicted steps.
        asked: Quality-A single-device rows of each set, predicted or not.
    """
    figures, others = [], []
    for name, sources, task in SETS:
        seen = lines[lines.source.isin(sources) & lines.predicted_log.notna()]
        seen = seen if task is None else seen[seen.task == task]
        if not len(seen) or name == "timm training":
            continue
        count, target = asked.get(name, 0), 12.0 if name == "timm inference" else 15.0
        told = _set_figure(f"{name}, devices held out", seen[~seen.is_open], count, target)
        figures.append(told)
        if seen.is_open.any():
            figures.append(_set_figure(f"{name}, with rows that leave open what ran", seen, count))
        if "timm" not in sources:
            others.append(told.median)
    if others:
        figures.append(
            figure("steps", "mean of the sets other than timm", np.array(others), target=15.0)
        )
    timm = lines[(lines.source == "timm") & (lines.task == "infer")]
    for fold, g in timm.groupby("fold"):
        roofline = errors(g.roofline_log.to_numpy(), g.measured_log.to_numpy())
        figures.append(
            figure("steps", f"timm inference, {fold} held out", _error(g), scored="median",
                   roofline=roofline, target=16.0)
        )  # fmt: skip
    return figures


def _set_figure(name: str, lines: pd.DataFrame, asked: int, target: float = np.nan) -> Figure:
    """The median error of some lines, of so many rows that could be asked for."""
    roofline = errors(lines.roofline_log.to_numpy(), lines.measured_log.to_numpy())
    return figure(
        "steps", name, _error(lines), scored="median", coverage=len(lines) / max(asked, 1),
        target=target, roofline=roofline,
    )  # fmt: skip


def training_figures(families: pd.DataFrame, zero_shot: pd.DataFrame) -> list[Figure]:
    """timm training: families held out, and zero-shot."""
    return [
        figure("steps", "timm training, families held out", _error(families), scored="median",
               target=10.0),
        figure("steps", "timm training, zero-shot", _error(zero_shot), scored="median",
               target=18.0),
    ]  # fmt: skip


def rank_figures(lines: pd.DataFrame, groups: list[str]) -> tuple[float, float]:
    """Least and median rank correlation within a device, precision, layout and version."""
    named = lines.assign(group=groups)
    timm = named[(named.source == "timm") & named.predicted_log.notna()]
    found = [
        g.predicted_log.rank().corr(g.measured_log.rank())
        for _, g in timm.groupby(["device", "group"])
        if len(g) >= 20
    ]
    return (float(min(found)), float(np.median(found))) if found else (np.nan, np.nan)


def worst(lines: pd.DataFrame, count: int = 15) -> pd.DataFrame:
    """Models that are worst on median, with their bias."""
    seen = lines[lines.predicted_log.notna() & ~lines.is_open]
    seen = seen.assign(log_error=seen.predicted_log - seen.measured_log)
    by_model = seen.groupby(["source", "task", "entry"]).log_error.agg(["median", "size"])
    order = by_model["median"].abs().sort_values(ascending=False).index
    return by_model.loc[order].head(count).reset_index()


def asked_of(measured: list[Measured]) -> dict[str, int]:
    """Rows of each set that could be asked for."""
    found = pd.Series([(m.source, m.row.task) for m in measured])
    return {
        name: sum(s in sources and task in (None, t) for s, t in found)
        for name, sources, task in SETS
    }


def _error(lines: pd.DataFrame) -> np.ndarray:
    return errors(lines.predicted_log.to_numpy(), lines.measured_log.to_numpy())
