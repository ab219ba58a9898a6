"""Fit all efficiency networks together: op rows by themselves, convolutions through whole steps.

A step's time is the larger of its device time (sum over ops of bound × 10^network + launch gap)
and its host time (kernels × dispatch). The loss is the absolute log error of steps plus that of op
rows, so that kinds with op rows of their own stay where those put them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fit.steps import FRAMEWORKS, Steps
from paceline.predict.calibration import EfficiencyModel

_FLOOR, _CEILING = -0.5, 2.5
#: Slowdown of a model of which a fold has seen nothing.
_UNSEEN = torch.tensor(0.3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operators:
    """Measured op rows of one model: features, log10 slowdown, weight."""

    features: np.ndarray
    log10_slowdown: np.ndarray
    weight: np.ndarray


class Network(nn.Module):
    """Clamped, standardised features through two hidden layers."""

    def __init__(self, low, high, mean, scale, hidden):
        super().__init__()
        for name, value in (("low", low), ("high", high), ("mean", mean), ("scale", scale)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        sizes = (len(low), *hidden, 1)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        with torch.no_grad():
            self.layers[-1].weight *= 0.1
            self.layers[-1].bias.fill_(0.25)

    def forward(self, x):
        x = (torch.clamp(x, self.low, self.high) - self.mean) / self.scale
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        y = self.layers[-1](x)[:, 0]
        return torch.clamp(y, _FLOOR, _CEILING) + 0.01 * (y - y.detach())

    def export(self) -> EfficiencyModel:
        weights = [layer.weight.detach().double().numpy().T for layer in self.layers]
        biases = [layer.bias.detach().double().numpy() for layer in self.layers]
        mean, scale = self.mean.double().numpy(), self.scale.double().numpy()
        weights[0] = weights[0] / scale[:, None]
        biases[0] = biases[0] - mean @ weights[0]
        return EfficiencyModel(
            low=self.low.numpy().copy(), high=self.high.numpy().copy(),
            weights=tuple(w.astype(np.float32) for w in weights),
            biases=tuple(b.astype(np.float32) for b in biases),
            floor=_FLOOR, ceiling=_CEILING,
        )  # fmt: skip


class Tiled(nn.Module):
    """No network: the tile model, which is the last feature, is the answer.

    Free coefficients on FP32 products carry worse to other GPUs than the tile model alone.
    """

    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x):
        return torch.clamp(x[:, -1], _FLOOR, _CEILING)

    def export(self) -> EfficiencyModel:
        pick = np.zeros((len(self.low), 1), np.float32)
        pick[-1] = 1.0
        return EfficiencyModel(
            low=self.low.astype(np.float32), high=self.high.astype(np.float32), weights=(pick,),
            biases=(np.zeros(1, np.float32),), floor=_FLOOR, ceiling=_CEILING,
        )  # fmt: skip


#: Models that the tile model answers alone.
TILED = frozenset({"product_vector"})


class Predictor(nn.Module):
    """Networks by model, and host dispatch by framework and compiler."""

    def __init__(self, networks, gap_s):
        super().__init__()
        self.networks = nn.ModuleDict(networks)
        self.gap_s = gap_s
        # log of seconds per kernel: (framework, eager or compiled, forward or backward)
        self.log_dispatch_s = nn.Parameter(torch.full((len(FRAMEWORKS), 2, 2), np.log(6e-6)))
        self.log_step_s = nn.Parameter(torch.full((len(FRAMEWORKS),), np.log(5e-5)))

    def forward(self, batch):
        device = batch["kernels"].sum(1) * self.gap_s
        for model, (x, bound, launches, step) in batch["rows"].items():
            slowdown = self.networks[model](x) if model in self.networks else _UNSEEN
            time = bound * launches * 10.0**slowdown
            device = device.index_add(0, step, time)
        dispatch = torch.exp(self.log_dispatch_s[batch["framework"], batch["compiled"]])
        host = (batch["kernels"] * dispatch).sum(1)
        fixed = torch.exp(self.log_step_s[batch["framework"]])
        # A smooth maximum, so that both sides learn near the crossing.
        return torch.log((device**8 + host**8) ** 0.125 + fixed)


def make_networks(steps: Steps, operators: dict[str, Operators], hidden=(24, 24)):
    """Networks whose clamps span what was seen in steps and op rows."""
    networks = {}
    for model in sorted(set(steps.rows) | set(operators)):
        parts = [p.features for p in (steps.rows.get(model), operators.get(model)) if p is not None]
        x = np.concatenate(parts).astype(np.float64)
        if model in TILED:
            networks[model] = Tiled(np.full(x.shape[1], -9.0), np.full(x.shape[1], 9.0))
            continue
        low, high = np.quantile(x, 0.0005, axis=0), np.quantile(x, 0.9995, axis=0)
        x = np.clip(x, low, high)
        networks[model] = Network(low, high, x.mean(0), np.maximum(x.std(0), 0.2), hidden)
    return networks


def step_batch(steps: Steps, chosen: np.ndarray) -> dict:
    """Tensors of some steps."""
    number = np.full(len(steps.step_s), -1)
    number[chosen] = np.arange(len(chosen))
    rows = {}
    for model, r in steps.rows.items():
        keep = number[r.step] >= 0
        if keep.any():
            rows[model] = (
                torch.from_numpy(np.ascontiguousarray(r.features[keep], dtype=np.float32)),
                torch.from_numpy((r.bound_s[keep]).astype(np.float32)),
                torch.from_numpy(r.launches[keep].astype(np.float32)),
                torch.from_numpy(number[r.step[keep]].astype(np.int64)),
            )
    kernels = np.stack([steps.forward_kernels, steps.backward_kernels], 1)[chosen]
    return {
        "rows": rows,
        "kernels": torch.from_numpy(kernels.astype(np.float32)),
        "framework": torch.from_numpy(steps.framework[chosen].astype(np.int64)),
        "compiled": torch.from_numpy(steps.is_compiled[chosen].astype(np.int64)),
        "target": torch.from_numpy(np.log(steps.step_s[chosen]).astype(np.float32)),
    }


def fit_jointly(
    steps: Steps, operators: dict[str, Operators], weight: np.ndarray, *, epochs: int,
    seed: int = 0,
    hidden=(24, 24), gap_s: float = 1.5e-6, batch_steps: int = 256, rate: float = 4e-3,
    operator_rows: int = 2048, decay: float = 1e-4, log=lambda _: None,
) -> Predictor:  # fmt: skip
    """Deterministic joint fit.

    Args:
        steps: Whole steps.
        operators: Op rows by model.
        weight: Weight of each step; zero leaves it out.
        epochs: Passes over the steps.
        seed: Of the initial weights and the order.
        hidden: Hidden layers.
        gap_s: Launch gap of a kernel on the device.
        batch_steps: Steps per update.
        rate: Peak learning rate.
        operator_rows: Op rows per model and update.
        decay: Weight decay.
        log: Called with one line per few epochs.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    predictor = Predictor(make_networks(steps, operators, hidden), gap_s)
    used = np.flatnonzero(weight > 0)
    batches = [
        (step_batch(steps, part), torch.from_numpy(weight[part].astype(np.float32)))
        for part in np.array_split(rng.permutation(used), max(1, len(used) // batch_steps))
    ]
    optimizer = torch.optim.AdamW(predictor.parameters(), lr=rate, weight_decay=decay)
    total = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=total)
    tensors = {
        m: (torch.from_numpy(o.features.astype(np.float32)),
            torch.from_numpy(o.log10_slowdown.astype(np.float32)),
            torch.from_numpy(o.weight.astype(np.float32)))
        for m, o in operators.items() if m not in TILED
    }  # fmt: skip
    for epoch in range(epochs):
        errors = []
        for number in rng.permutation(len(batches)):
            batch, w = batches[number]
            optimizer.zero_grad()
            error = (predictor(batch) - batch["target"]).abs()
            loss = (error * w).sum() / w.sum()
            for model, (x, y, wo) in tensors.items():
                i = torch.from_numpy(rng.integers(0, len(y), operator_rows))
                miss = (predictor.networks[model](x[i]) - y[i]).abs()
                loss = loss + 0.5 * 2.3 * (miss * wo[i]).sum() / wo[i].sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            errors.append(float(error.detach().mean()))
        if epoch % 5 == 4 or epoch == epochs - 1:
            log(f"epoch {epoch + 1}: mean abs log error of steps {np.mean(errors):.3f}")
    return predictor


def predict_steps(predictor: Predictor, steps: Steps, chosen: np.ndarray) -> np.ndarray:
    """Log of predicted step time of some steps."""
    parts = np.array_split(chosen, max(1, len(chosen) // 2000))
    with torch.no_grad():
        return np.concatenate([predictor(step_batch(steps, part)).numpy() for part in parts])


def fit_alone(
    operators: Operators, *, hidden=(24, 24), updates: int = 3000, seed: int = 0, rate: float = 4e-3
) -> EfficiencyModel:
    """Fit one network to op rows only; the same rows give the same coefficients to the bit."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x = operators.features.astype(np.float64)
    low, high = np.quantile(x, 0.0005, axis=0), np.quantile(x, 0.9995, axis=0)
    x = np.clip(x, low, high)
    network = Network(low, high, x.mean(0), np.maximum(x.std(0), 0.2), hidden)
    features = torch.from_numpy(operators.features.astype(np.float32))
    target = torch.from_numpy(operators.log10_slowdown.astype(np.float32))
    weight = torch.from_numpy(operators.weight.astype(np.float32))
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=updates)
    for _ in range(updates):
        rows = torch.from_numpy(rng.integers(0, len(target), 2048))
        optimizer.zero_grad()
        loss = ((network(features[rows]) - target[rows]).abs() * weight[rows]).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network.export()
