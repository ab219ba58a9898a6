"""The time of a step as a differentiable function of networks, device effects and host dispatch.

A step takes the larger of its device time (sum over ops of bound × 10^network × the effect of the
device + launch gap) and its host time (kernels × dispatch), and a fixed time of its framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from fit.networks import Network, Tiled
from fit.options import FitOptions
from fit.steps import FRAMEWORKS, Steps, select
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.features import PRODUCT_FEATURES, STREAM_FEATURES
from paceline.prediction.kernels.device_effects import EFFECT_OF_MODEL, NUM_LAWS, Effect
from paceline.prediction.kernels.sustained_rate import power_budget

#: Tensors of some steps by name, see `step_batch`.
Batch = dict[str, Any]
#: Slowdown of a model of which a fold has seen nothing.
_UNSEEN = torch.tensor(0.3)
#: Seconds per kernel before anything is learned: an eager framework, and what has no rows of its
#: own or dispatches compiled code. From 6 µs the fit of an eager framework found no way up.
_EAGER_DISPATCH_S, _OTHER_DISPATCH_S = 20e-6, 6e-6
_EAGER = ("torch", "tensorflow", "mxnet")
#: Fixed seconds of a step before anything is learned.
LOG_STEP_S = float(np.log(5e-5))
#: Columns of the features of ops that compute, and of streams.
_INTENSITY = PRODUCT_FEATURES.index("log_intensity_over_ridge")
_OVER_L2 = PRODUCT_FEATURES.index("log_bytes_over_l2")
STREAM_OVER_L2 = STREAM_FEATURES.index("log_bytes_over_l2")


def _compute_frac(model: str, x: torch.Tensor) -> torch.Tensor | float:
    """Share of arithmetic in the bounds, as `Bounds.compute_frac`, from the features."""
    if model == "stream":
        return 1.0
    ratio = 10.0 ** x[:, _INTENSITY]
    return ratio / (1.0 + ratio)


def uncached(model: str, x: torch.Tensor) -> torch.Tensor:
    """`Bounds.uncached_s` over the roofline, from the features."""
    is_stream = model == "stream"
    memory = 1.0 if is_stream else 1.0 / torch.clamp(10.0 ** x[:, _INTENSITY], min=1.0)
    over_l2 = 10.0 ** x[:, STREAM_OVER_L2 if is_stream else _OVER_L2]
    return memory * (1.0 - 1.0 / torch.clamp(over_l2, min=1.0))


TASKS = ("infer", "train")
#: Log level of a measured device by framework and task.
Levels = dict[str, dict[str, float]]


class Predictor(nn.Module):
    """Networks by model, effects of devices and tables, and host dispatch.

    Args:
        networks: By model.
        options: How the fit is run.
        devices: All that some row is of, in order.
        steps: What is fitted.
        multiplied: Devices with op rows that compute: streams alone do not make one known.
    """

    def __init__(
        self, networks: Mapping[str, Network | Tiled], options: FitOptions,
        devices: list[str], steps: Steps,
        multiplied: frozenset[str] = frozenset(),
    ):  # fmt: skip
        super().__init__()
        self.networks = nn.ModuleDict(networks)
        self.gap_s = options.gap_s
        law = power_budget(builtin_calibration())
        self.power_exponent = law.exponent if options.is_power_limited else None
        self.devices = devices
        self.has_steps = np.isin(devices, steps.device)
        self.measured = multiplied.union(steps.device)
        self.slope = nn.Parameter(torch.zeros(NUM_LAWS, len(Effect)))
        self.product_log_per_year = nn.Parameter(torch.zeros(()))
        # Benchmarks of operators have habits of their own, which steps of that device do not show.
        self.own = nn.Parameter(torch.zeros(len(devices), len(Effect)))
        self.own_in_operators = nn.Parameter(torch.zeros(len(devices), len(Effect)))
        self.table = nn.Parameter(torch.zeros(len(np.unique(tables_of(steps)))))
        # What frameworks have in common in training and in inference, whoever measured.
        self.asked = nn.Parameter(torch.zeros(len(FRAMEWORKS), len(TASKS)))
        self.levels: Levels = {}
        start = [[_EAGER_DISPATCH_S if f in _EAGER else _OTHER_DISPATCH_S] * 2 for f in FRAMEWORKS]
        seconds = torch.tensor([[eager, [_OTHER_DISPATCH_S] * 2] for eager in start])
        # log of seconds per kernel: (framework, eager or compiled, forward or backward)
        self.log_dispatch_start = torch.log(seconds)
        self.log_dispatch_s = nn.Parameter(self.log_dispatch_start.clone())
        self.log_step_s = nn.Parameter(torch.full((len(FRAMEWORKS),), LOG_STEP_S))
        self.host_log_per_year = nn.Parameter(torch.zeros(len(FRAMEWORKS)))

    def log_effect(
        self, model: str, x: torch.Tensor, traits: torch.Tensor, own: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Log effect of the device on each row; without ``own`` effects the laws alone."""
        if model not in EFFECT_OF_MODEL:
            return torch.zeros(())
        effect = EFFECT_OF_MODEL[model]
        law = (self.slope[:, effect] * traits[..., effect]).sum(1)
        return _compute_frac(model, x) * (law if own is None else law + own[:, effect])

    def slowdown(self, model: str, x: torch.Tensor) -> torch.Tensor:
        """Log10 slowdowns, (members, rows); the mean alone when not training."""
        if model not in self.networks:
            return _UNSEEN.expand(1, len(x))
        y = self.networks[model](x)
        return y if self.training else y.mean(0, keepdim=True)

    def sustained(self, time: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
        """Time of launches in steady work, of which the board's power serves so many."""
        if self.power_exponent is None:
            return time
        return torch.maximum(time, time ** (1 - self.power_exponent) * power**self.power_exponent)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Log of step time, (members, steps)."""
        total = batch["kernels"].sum(1)[None] * self.gap_s
        for model, (x, bound, power, launches, step) in batch["rows"].items():
            own = nn.functional.pad(self.own, (0, 0, 0, 1))[batch["device"][step]]
            if EFFECT_OF_MODEL.get(model) == Effect.PRODUCT:
                own = own + batch["ripeness"][step, None] * self.product_log_per_year
            effect = torch.exp(self.log_effect(model, x, batch["traits"][step], own))
            learned = effect * 10.0 ** self.slowdown(model, x)
            burst = bound * torch.maximum(learned, uncached(model, x))
            time = launches * self.sustained(burst, power)
            sums = torch.zeros(len(time), len(batch["target"])).index_add(1, step, time)
            total = total + sums
        dispatch = torch.exp(self.log_dispatch_s[batch["framework"], batch["compiled"]])
        pace = torch.exp(batch["host_years"] * self.host_log_per_year[batch["framework"]])
        host = (batch["kernels"] * dispatch).sum(1) * pace
        fixed = torch.exp(self.log_step_s[batch["framework"]])
        # A smooth maximum, so that both sides learn near the crossing.
        total = total * torch.exp(self.asked[batch["framework"], batch["task"]])
        answer = torch.log((total**8 + host**8) ** 0.125 + fixed)
        return answer + self.table[batch["table"]] if self.training else answer


def step_batch(
    steps: Steps, chosen: np.ndarray, traits: Mapping[str, np.ndarray], names: Sequence[str]
) -> Batch:
    """Tensors of some steps.

    Args:
        steps: All steps.
        chosen: Which.
        traits: Log traits of each device, (number of laws, number of effects).
        names: Devices that were fitted, in order; others have no effect of their own.
    """
    some = select(steps, chosen)
    rows = {
        model: (
            torch.from_numpy(np.ascontiguousarray(r.features, dtype=np.float32)),
            torch.from_numpy(r.bound_s.astype(np.float32)),
            torch.from_numpy(r.power_s.astype(np.float32)),
            torch.from_numpy(r.launches.astype(np.float32)),
            torch.from_numpy(r.step.astype(np.int64)),
        )
        for model, r in some.rows.items()
    }
    kernels = np.stack([some.forward_kernels, some.backward_kernels], 1)
    return {
        "rows": rows,
        "kernels": torch.from_numpy(kernels.astype(np.float32)),
        "framework": torch.from_numpy(some.framework.astype(np.int64)),
        "compiled": torch.from_numpy(some.is_compiled.astype(np.int64)),
        "task": torch.from_numpy((some.task == TASKS[1]).astype(np.int64)),
        "target": torch.from_numpy(np.log(some.step_s).astype(np.float32)),
        "traits": traits_of(some.device, traits),
        "device": _places(some.device, names),
        "ripeness": torch.from_numpy(some.maturity_years.astype(np.float32)),
        "host_years": torch.from_numpy(some.host_years.astype(np.float32)),
    }


def _places(asked: np.ndarray, names: Sequence[str]) -> torch.Tensor:
    """Place of each among sorted names, -1 where it is none of them."""
    place = np.minimum(np.searchsorted(names, asked), len(names) - 1)
    return torch.from_numpy(np.where(np.asarray(names)[place] == asked, place, -1))


def traits_of(names: np.ndarray, traits: Mapping[str, np.ndarray]) -> torch.Tensor:
    unique, code = np.unique(names, return_inverse=True)
    values = np.array([traits[name] for name in unique], dtype=np.float32)
    return torch.from_numpy(values.reshape(-1, NUM_LAWS, len(Effect))[code])


def tables_of(steps: Steps) -> np.ndarray:
    """What shares one author's habits: table, framework and task."""
    parts = zip(steps.source, steps.framework, steps.task, strict=True)
    return np.array([f"{source}/{framework}/{task}" for source, framework, task in parts])


def table_levels(predictor: Predictor, steps: Steps) -> Levels:
    """Mean effect of the tables in which each device was measured, by framework and task.

    Args:
        predictor: Fitted.
        steps: What it was fitted to.
    """
    effects = predictor.table.detach().numpy()[np.unique(tables_of(steps), return_inverse=True)[1]]
    return mean_levels(zip(steps.device, asked_of(steps), effects, strict=True))


def mean_levels(found: Iterable[tuple[str, str, float]]) -> Levels:
    """Means of levels with the same name, framework and task."""
    frame = pd.DataFrame(found, columns=["name", "asked", "level"])
    means = frame.groupby(["name", "asked"])["level"].mean()
    return {
        str(name): {asked: float(level) for (_, asked), level in some.items()}
        for name, some in means.groupby("name")
    }


def asked_of(steps: Steps) -> list[str]:
    """Framework and task of each step, as levels are keyed."""
    parts = zip(steps.framework, steps.task, strict=True)
    return [f"{FRAMEWORKS[int(framework)]}/{task}" for framework, task in parts]
