"""Fit all efficiency networks together: op rows by themselves, convolutions through whole steps.

A step's time is the larger of its device time (sum over ops of bound × 10^network × the effect of
the device + launch gap) and its host time (kernels × dispatch). The loss is the absolute log error
of steps plus that of op rows, so that kinds with op rows of their own stay where those put them.

It is a mixed model: every device has effects of its own and every table one, both shrunk towards
none, so that the networks need not explain the habits of one card or one author by features that
other cards share. That of a device is there where some of its steps were fitted; those of tables
are there for the devices, frameworks and tasks that they measured, as their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from fit.growth import growth_loss
from fit.networks import ONTO, TILED, Network, make_networks
from fit.operators import Operators
from fit.options import FitOptions
from fit.step_model import (
    LOG_STEP_S,
    Batch,
    Predictor,
    asked_of,
    step_batch,
    table_levels,
    tables_of,
    traits_of,
)
from fit.steps import Steps, select
from paceline.prediction.calibration.fitted import EfficiencyModel

#: Dispatch times are few, and learn faster than weights.
_DISPATCH_RATE = 5.0
#: Weight of op rows beside steps; their loss is in log10, that of steps in natural logs.
_OPERATOR_WEIGHT = 0.5 * 2.3
#: Streams more: in steps, what small ones take is lost beside the rest and beside dispatch.
_WEIGHT_OF = {"stream": 2.0}


def fit_jointly(
    steps: Steps, operators: Mapping[str, Operators], weight: np.ndarray,
    traits: Mapping[str, np.ndarray], options: FitOptions, *,
    log: Callable[[str], None] = lambda _: None,
) -> Predictor:  # fmt: skip
    """Deterministic joint fit.

    Args:
        steps: Whole steps.
        operators: Op rows by model.
        weight: Weight of each step.
        traits: Log traits of each device, (number of laws, number of effects).
        options: How it is run.
        log: Called with one line per few epochs.
    """
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    networks = make_networks(_features(steps, operators), options)
    multiplied = {name for m, o in operators.items() if m != "stream" for name in o.device}
    operators = {m: o for m, o in operators.items() if m not in TILED}
    names = sorted(set(steps.device).union(*(o.device for o in operators.values())))
    table = np.unique(tables_of(steps), return_inverse=True)[1]
    predictor = Predictor(networks, options, names, steps, frozenset(multiplied))
    order = np.array_split(rng.permutation(len(weight)), max(1, len(weight) // options.batch_steps))
    batches = [_training_batch(steps, part, traits, weight, names, table) for part in order]
    tensors = {m: _operator_tensors(o, traits, names) for m, o in operators.items()}
    optimizer, schedule = _optimizer(predictor, options, options.epochs * len(batches))
    predictor.train()
    for epoch in range(options.epochs):
        errors = []
        for number in rng.permutation(len(batches)):
            optimizer.zero_grad()
            error = _step_loss(predictor, batches[number])
            loss = error + _penalty(predictor, options)
            for model, one in tensors.items():
                drawn = torch.from_numpy(rng.integers(0, len(one[1]), options.operator_rows))
                loss = loss + _operator_loss(predictor, model, [t[drawn] for t in one])
                if model == "stream":
                    x = _with_rows(one[0][drawn], batches[number], rng)
                    loss = loss + growth_loss(cast(Network, predictor.networks[model]), x)
            loss.backward()
            optimizer.step()
            schedule.step()
            errors.append(float(error.detach()))
        if epoch % 5 == 4 or epoch == options.epochs - 1:
            log(f"epoch {epoch + 1}: mean abs log error of steps {np.mean(errors):.3f}")
    predictor.levels = table_levels(predictor, steps)
    return predictor.eval()


def _features(steps: Steps, operators: Mapping[str, Operators]) -> dict[str, np.ndarray]:
    """Features of all rows of each model, those of steps before those of benchmarks."""
    parts = [
        {name: part.features for name, part in rows.items()} for rows in (steps.rows, operators)
    ]
    models = set(steps.rows) | set(operators)
    return {m: np.concatenate([part[m] for part in parts if m in part]) for m in models}


def _training_batch(
    steps: Steps,
    part: np.ndarray,
    traits: Mapping[str, np.ndarray],
    weight: np.ndarray,
    names: list[str],
    table: np.ndarray,
) -> Batch:
    return {
        **step_batch(steps, part, traits, names),
        "weight": torch.from_numpy(weight[part].astype(np.float32)),
        "table": torch.from_numpy(table[part]),
    }


def _operator_tensors(
    operators: Operators, traits: Mapping[str, np.ndarray], names: list[str]
) -> tuple[torch.Tensor, ...]:
    return (
        torch.from_numpy(operators.features.astype(np.float32)),
        torch.from_numpy(operators.log10_slowdown.astype(np.float32)),
        torch.from_numpy(operators.weight.astype(np.float32)),
        torch.from_numpy(np.searchsorted(names, operators.device)),
        traits_of(operators.device, traits),
    )


def _optimizer(
    predictor: Predictor, options: FitOptions, num_updates: int
) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.OneCycleLR]:
    groups: list[dict[str, Any]] = [
        {"params": predictor.networks.parameters(), "weight_decay": options.decay},
        {
            "params": [
                predictor.slope,
                predictor.product_log_per_year,
                predictor.table,
                predictor.asked,
            ]
        },
        {"params": [predictor.own, predictor.own_in_operators]},
        {"params": [predictor.log_dispatch_s, predictor.log_step_s, predictor.host_log_per_year]},
    ]
    rate = options.rate
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.0)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [rate, rate, rate, rate * _DISPATCH_RATE], total_steps=num_updates
    )


def _step_loss(predictor: Predictor, batch: Batch) -> torch.Tensor:
    error = (predictor(batch) - batch["target"]).abs().mean(0)
    return (error * batch["weight"]).sum() / batch["weight"].sum()


def _penalty(predictor: Predictor, options: FitOptions) -> torch.Tensor:
    own = (predictor.own**2).sum() + (predictor.own_in_operators**2).sum()
    fixed = ((predictor.log_step_s - LOG_STEP_S) ** 2).sum()
    fixed = fixed + ((predictor.log_dispatch_s - predictor.log_dispatch_start) ** 2).sum()
    return (
        options.device_penalty * own
        + options.source_penalty * (predictor.table**2).sum()
        + options.fixed_penalty * fixed
    )


def _operator_loss(predictor: Predictor, model: str, drawn: Sequence[torch.Tensor]) -> torch.Tensor:
    x, target, weight, device, traits = drawn
    own = predictor.own_in_operators[device]
    effect = predictor.log_effect(model, x, traits, own) / np.log(10.0)
    miss = (predictor.slowdown(model, x) + effect - target).abs().mean(0)
    share = _OPERATOR_WEIGHT * _WEIGHT_OF.get(model, 1.0)
    return share * (miss * weight).sum() / weight.sum()


def _with_rows(x: torch.Tensor, batch: Batch, rng: np.random.Generator) -> torch.Tensor:
    """Features of streams of op rows, and as many of steps where a batch has them."""
    if "stream" not in batch["rows"]:
        return x
    in_steps = batch["rows"]["stream"][0]
    return torch.cat([x, in_steps[torch.from_numpy(rng.integers(0, len(in_steps), len(x)))]])


def predict_steps(
    predictor: Predictor, steps: Steps, chosen: np.ndarray, traits: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Log of predicted step time of some steps.

    Devices that were fitted have their effects, and the level of their framework and task.
    """
    parts = np.array_split(chosen, max(1, len(chosen) // 2000))
    with torch.no_grad():
        answers = [
            predictor(step_batch(steps, part, traits, predictor.devices))[0].numpy()
            for part in parts
        ]
    some = select(steps, chosen)
    known = (predictor.levels.get(str(device), {}) for device in some.device)
    levels = [one.get(asked, 0.0) for one, asked in zip(known, asked_of(some), strict=True)]
    return np.concatenate(answers) + np.array(levels)


def fit_alone(
    operators: Operators, *, updates: int = 3000, options: FitOptions | None = None,
    batch_rows: int = 2048, model: str = "",
) -> EfficiencyModel:  # fmt: skip
    """Fit one model to op rows only; the same rows give the same coefficients to the bit."""
    options = options or FitOptions(members=1, noise=0.0)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    network = Network(operators.features.astype(np.float64), options, ONTO.get(model))
    features = torch.from_numpy(operators.features.astype(np.float32))
    target = torch.from_numpy(operators.log10_slowdown.astype(np.float32))
    weight = torch.from_numpy(operators.weight.astype(np.float32))
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.rate, weight_decay=options.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, total_steps=updates)
    for _ in range(updates):
        rows = torch.from_numpy(rng.integers(0, len(target), batch_rows))
        optimizer.zero_grad()
        loss = ((network(features[rows]) - target[rows]).abs() * weight[rows]).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network.export()
