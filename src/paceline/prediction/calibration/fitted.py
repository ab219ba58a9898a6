"""Everything fitted: efficiency models, host dispatch, clocks, power and intervals, as data.

The built-in calibration is made by ``tools/fit`` from published measurements; the user's own
records move it in `paceline.prediction.calibration.from_measurements`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np

from paceline.model.graph.graph import FloatArray, IntArray
from paceline.prediction.calibration.gaussian_process import Observations
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array
from paceline.shipped import shipped_path, shipped_rows
from paceline.stack.releases import ReleaseDates, shipped_release_dates
from paceline.values import dataclass

#: Rows per matrix product: few, since they stay in the nearest cache and most calls ask for few.
#: Those beyond whole blocks are filled up to one of few sizes, so that few kernels are reached.
_BLOCK, _LEAST = 256, 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EfficiencyModel:
    """The mean of small networks from features to log10 of (time over bound).

    Features are clamped to the range seen in fitting, so nothing is extrapolated; the answer is
    clamped too, so that no kernel beats physics by more than caches allow.

    Attributes:
        low: Smallest value of each feature seen, (num_features,).
        high: Largest value of each feature seen, (num_features,).
        weights: One stack of matrices per layer, (members, inputs, outputs); the first layer has
            the standardisation folded in.
        biases: One stack per layer, (members, 1, outputs).
        floor: Smallest log10 slowdown allowed.
        ceiling: Largest log10 slowdown allowed.
    """

    low: Array
    high: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    floor: float
    ceiling: float

    def log10_slowdown(self, features: Array, part: IntArray | None = None) -> Array:
        """Log10 of time over bound for features on the last axis.

        ``part`` says to which pass each row of the axis before it belongs, ascending: the answer is
        that of each alone. The last bits of a product of matrices follow the place of a row in it.
        """
        if part is not None and part[0] != part[-1]:
            parts = np.split(features, np.flatnonzero(np.diff(part)) + 1, axis=-2)
            return np.concatenate([self.log10_slowdown(one) for one in parts], axis=-1)
        rows = features.reshape(-1, features.shape[-1])
        rows = np.ascontiguousarray(np.clip(rows, self.low, self.high), dtype=np.float32)
        y = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            y[start : start + _BLOCK] = self._evaluate_block(block)[: len(block)]
        return np.clip(y.reshape(features.shape[:-1]), self.floor, self.ceiling)

    def _evaluate_block(self, rows: Array) -> Array:
        x = rows
        if len(rows) % _LEAST:
            x = np.zeros((len(rows) // _LEAST * _LEAST + _LEAST, rows.shape[1]), dtype=np.float32)
            x[: len(rows)] = rows
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.maximum(x, 0.0, out=x)
        y: Array = (x @ self.weights[-1] + self.biases[-1])[..., 0].mean(axis=0)
        return y


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One measurement against its prediction.

    Attributes:
        device_name: ``Device.name``.
        step: What ran.
        log_ratio: Log of measured over predicted time.
    """

    device_name: str
    step: StepFeatures
    log_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Measurements that were added together.

    Attributes:
        label: When and from where.
        residuals: What they showed.
    """

    label: str
    residuals: tuple[Residual, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLevels:
    """Log of the time that published tables of a device state over that of steps elsewhere.

    The tables that measured a device have habits of their own: what they time besides, how long
    they warm up. That is a property of those tables, not of a user's job.

    Attributes:
        device: By ``framework/task``, by ``Device.name``.
        family: The same by family, for devices that are in no table.
    """

    device: Mapping[str, Mapping[str, float]]
    family: Mapping[str, Mapping[str, float]]

    def logs(self, devices: DeviceTable, asked: str) -> FloatArray:
        """Of each device, (num_devices,)."""
        known = (
            self.device.get(name, self.family.get(family, {}))
            for name, family in zip(devices.names, devices.families, strict=True)
        )
        return np.array([one.get(asked, 0.0) for one in known])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Coefficients of the predictor.

    Attributes:
        name: Printed with every answer.
        models: Efficiency models by group.
        constants: Coefficients by topic, as read from the data files.
        measured_devices: ``Device.name`` of devices whose kernels were in the fit.
        measured_families: Their families.
        measured_architectures: Their architectures.
        device_log_shift: Log of a factor on the kernels' times by ``Device.name``, where a site is
            studied whose clock is known.
        provenance: What it was fitted from, newest last.
        updates: The user's own measurements, oldest first.
        lessons: What follows from them by ``Device.name``.
        releases: When libraries came out whose kernels ripen.
        source_levels: Of tables that are read as published; None for a user's own job.
    """

    name: str
    models: Mapping[str, EfficiencyModel]
    constants: Mapping[str, Any]
    measured_devices: frozenset[str]
    measured_families: frozenset[str]
    measured_architectures: frozenset[str]
    device_log_shift: Mapping[str, float]
    provenance: tuple[str, ...]
    releases: ReleaseDates
    updates: tuple[Update, ...] = ()
    lessons: Mapping[str, Observations] = field(default_factory=dict)
    source_levels: SourceLevels | None = None

    def constant(self, topic: str, name: str) -> float:
        """One scalar coefficient."""
        return float(self.constants[topic][name])


@cache
def builtin_calibration() -> Calibration:
    """The calibration that ships with paceline."""
    facts = _shipped_json("calibration.json")
    with np.load(shipped_path("prediction", "efficiency.npz")) as arrays:
        models = {group: _model(group, arrays) for group in facts["groups"]}
    return Calibration(
        name=facts["name"],
        models=models,
        constants=facts["constants"] | _tables(facts["constants"]),
        measured_devices=frozenset(facts["measured_devices"]),
        measured_families=frozenset(facts["measured_families"]),
        measured_architectures=frozenset(facts["measured_architectures"]),
        device_log_shift={},
        provenance=tuple(facts["provenance"]),
        releases=shipped_release_dates(),
    )


def _tables(constants: Mapping[str, Any]) -> dict[str, Any]:
    """Constants with a source each, from the tables beside the fitted ones."""
    limits = _numbers("attention_limits.csv", "name", "value")
    energy = _numbers("operation_energy.csv", "operand_bytes", "over_16_bits")
    return {
        "attention_tiles": {
            name: values | limits for name, values in constants["attention_tiles"].items()
        },
        "device_kinds": shipped_rows("prediction", "device_kinds.csv"),
        "early_products": shipped_rows("prediction", "early_products.csv"),
        "expert_kernels": shipped_rows("prediction", "expert_kernels.csv"),
        "expert_marlin": shipped_rows("prediction", "expert_marlin.csv"),
        "expert_tiles": shipped_rows("prediction", "expert_tiles.csv"),
        "frameworks": {r["framework"]: r for r in shipped_rows("prediction", "frameworks.csv")},
        "host_waits": _numbers("host_waits.csv", "name", "value"),
        "measured_casts": _numbers("measured_casts.csv", "name", "value"),
        "operation_energy": {float(width): share for width, share in energy.items()},
        "portable_products": shipped_rows("prediction", "portable_products.csv"),
        "power": _shipped_json("power.json")["power"],
        "process_memory": {
            row["platform"]: row for row in shipped_rows("prediction", "process_memory.csv")
        },
        "serial_accesses": shipped_rows("prediction", "serial_accesses.csv"),
        "unaligned_products": shipped_rows("prediction", "unaligned_products.csv"),
        "sustained_clock": _numbers("sustained_clock.csv", "name", "value"),
    }


def _shipped_json(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(shipped_path("prediction", name).read_text(encoding="utf-8"))
    return facts


def _numbers(table: str, key: str, value: str) -> dict[str, float]:
    return {row[key]: float(row[value]) for row in shipped_rows("prediction", table)}


def _model(group: str, arrays: Mapping[str, Any]) -> EfficiencyModel:
    num_layers = sum(key.startswith(f"{group}.weight") for key in arrays)
    floor, ceiling = arrays[f"{group}.range"]
    return EfficiencyModel(
        low=arrays[f"{group}.low"],
        high=arrays[f"{group}.high"],
        weights=tuple(arrays[f"{group}.weight{i}"] for i in range(num_layers)),
        biases=tuple(arrays[f"{group}.bias{i}"] for i in range(num_layers)),
        floor=float(floor),
        ceiling=float(ceiling),
    )
