"""Fit all efficiency networks together: op rows by themselves, convolutions through whole steps.

A step's time is the larger of its device time (sum over ops of bound × 10^network × the effect of
the device + launch gap) and its host time (kernels × dispatch). The loss is the absolute log error
of steps plus that of op rows, so that kinds with op rows of their own stay where those put them.

It is a mixed model: every device has effects of its own and every table one, both shrunk towards
none, so that the networks need not explain the habits of one card or one author by features that
other cards share. A prediction leaves out those of tables; that of a device is there where some of
its steps were fitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fit.steps import FRAMEWORKS, Steps
from paceline.predict.calibration import EfficiencyModel
from paceline.predict.device_effects import EFFECT_OF_MODEL, NUM_LAWS, Effect
from paceline.predict.features import ATTENTION_FEATURES, PRODUCT_FEATURES, STREAM_FEATURES
from paceline.predict.sustained import power_budget

_FLOOR, _CEILING = -0.5, 2.5
#: Slowdown of a model of which a fold has seen nothing.
_UNSEEN = torch.tensor(0.3)
#: Seconds per kernel before anything is learned: an eager framework, and what has no rows of its
#: own or dispatches compiled code. From 6 µs the fit of an eager framework found no way up.
_EAGER_DISPATCH_S, _OTHER_DISPATCH_S = 20e-6, 6e-6
_EAGER = ("torch", "tensorflow", "mxnet")
#: Dispatch times are few, and learn faster than weights.
_DISPATCH_RATE = 5.0
#: Fixed seconds of a step before anything is learned.
_LOG_STEP_S = float(np.log(5e-5))
#: Share of the noise: streams have few features that tell a card, and sizes that must stay sharp.
_NOISE_OF = {"stream": 0.2}
#: Columns of the features of ops that compute, and of streams.
_INTENSITY = PRODUCT_FEATURES.index("log_intensity_over_ridge")
_OVER_L2 = PRODUCT_FEATURES.index("log_bytes_over_l2")
_STREAM_OVER_L2 = STREAM_FEATURES.index("log_bytes_over_l2")
#: What grows with the elements of a stream, all else equal, and by how much from one size to the
#: next: the root of two.
_GROWING = [
    STREAM_FEATURES.index(n) for n in ("log_bound_us", "log_bytes_over_l2", "log_rows_per_sm")
]
_GROWTH = float(np.log10(2.0)) / 2
#: Sizes that the law of growth is asked for: the rows' own, over or times so many decades.
_REACH = 2.0
#: Weight of the law, and the least and most growth of time that cost nothing, over that of the
#: elements.
_GROWTH_WEIGHT, _LEAST_GROWTH, _MOST_GROWTH = 30.0, 0.05, 1.1
#: Log10 of bytes over the last-level cache between which streams leave it and may slow down.
_LEAVES_CACHE = (-0.5, 0.0)
#: Weight of op rows beside steps; their loss is in log10, that of steps in natural logs.
_OPERATOR_WEIGHT = 0.5 * 2.3
#: Streams more: in steps, what small ones take is lost beside the rest and beside dispatch.
_WEIGHT_OF = {"stream": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operators:
    """Measured op rows of one model: features, log10 slowdown, weight, device names."""

    features: np.ndarray
    log10_slowdown: np.ndarray
    weight: np.ndarray
    device: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How a fit is run; the same options and rows give the same coefficients to the bit.

    Attributes:
        epochs: Passes over the steps.
        members: Networks per model, whose mean is the answer.
        hidden: Hidden layers of each.
        batch_steps: Steps per update.
        operator_rows: Op rows per model and update.
        rate: Peak learning rate.
        decay: Weight decay.
        noise: Standard deviation of noise on standardised features, so that no network leans on
            the exact value that tells a device.
        device_penalty: On the squared log effects of devices.
        source_penalty: On the squared log effects of tables.
        fixed_penalty: On the squared log of the fixed time of a step over its start: next to
            nothing tells it from the time of kernels where all steps are long.
        is_power_limited: Whether matrix units in steps run at the clock that the board's power
            sustains (`paceline.predict.sustained`). Op rows are bursts.
        gap_s: Launch gap of a kernel on the device.
        seed: Of the initial weights, the order and the noise.
    """

    epochs: int = 20
    members: int = 3
    hidden: tuple[int, ...] = (40, 40)
    batch_steps: int = 128
    operator_rows: int = 768
    rate: float = 4e-3
    decay: float = 1e-4
    noise: float = 0.2
    device_penalty: float = 0.01
    source_penalty: float = 0.01
    fixed_penalty: float = 0.01
    is_power_limited: bool = True
    gap_s: float = 1.5e-6
    seed: int = 0


class Network(nn.Module):
    """Clamped, standardised features through hidden layers, several networks side by side.

    Args:
        x: Features, which set the clamps and the scale.
        options: How the fit is run.
        onto: Column whose value is added to the answer, such as that of the tile model; None.
    """

    def __init__(self, x: np.ndarray, options: FitOptions, onto: int | None = None):
        super().__init__()
        self.onto = onto
        low, high = np.quantile(x, 0.0005, axis=0), np.quantile(x, 0.9995, axis=0)
        seen = np.clip(x, low, high)
        facts = (low, high, seen.mean(0), np.maximum(seen.std(0), 0.2))
        for name, value in zip(("low", "high", "mean", "scale"), facts, strict=True):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.noise = options.noise
        sizes = (len(low), *options.hidden, 1)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in pairwise(sizes):
            reach = a**-0.5
            self.weights.append(torch.empty(options.members, a, b).uniform_(-reach, reach))
            self.biases.append(torch.empty(options.members, 1, b).uniform_(-reach, reach))
        with torch.no_grad():
            self.weights[-1] *= 0.1
            self.biases[-1].fill_(0.25 if onto is None else 0.0)

    def forward(self, x):
        """Log10 slowdowns, (members, rows)."""
        x = torch.clamp(x, self.low, self.high)
        start = 0.0 if self.onto is None else x[:, self.onto]
        x = (x - self.mean) / self.scale
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        x = x.expand(len(self.weights[0]), *x.shape)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = torch.relu(torch.baddbmm(bias, x, weight))
        y = start + torch.baddbmm(self.biases[-1], x, self.weights[-1])[..., 0]
        return torch.clamp(y, _FLOOR, _CEILING) + 0.01 * (y - y.detach())

    def export(self) -> EfficiencyModel:
        weights = [w.detach().double().numpy() for w in self.weights]
        biases = [b.detach().double().numpy() for b in self.biases]
        mean, scale = self.mean.double().numpy(), self.scale.double().numpy()
        weights[0] = weights[0] / scale[:, None]
        biases[0] = biases[0] - mean @ weights[0][:, None]
        if self.onto is not None:
            weights, biases = _passed_through(weights, biases, self.onto)
        return EfficiencyModel(
            low=self.low.numpy().copy(), high=self.high.numpy().copy(),
            weights=tuple(w.astype(np.float32) for w in weights),
            biases=tuple(b.astype(np.float32) for b in biases),
            floor=_FLOOR, ceiling=_CEILING,
        )  # fmt: skip


def _passed_through(weights, biases, column):
    """The same layers with two units more, which carry one feature unchanged to the answer."""
    signs = np.array([1.0, -1.0])
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        members, inputs, outputs = weight.shape
        is_first, is_last = layer == 0, layer == len(weights) - 1
        more_in, more_out = 0 if is_first else 2, 0 if is_last else 2
        wide = np.zeros((members, inputs + more_in, outputs + more_out))
        wide[:, :inputs, :outputs] = weight
        if is_first:
            wide[:, column, outputs:] = signs
        elif is_last:
            wide[:, inputs:, 0] = signs
        else:
            wide[:, inputs:, outputs:] = np.eye(2)
        weights[layer] = wide
        biases[layer] = np.concatenate([bias, np.zeros((members, 1, more_out))], axis=2)
    return weights, biases


#: Models whose network corrects the tile model, which is this feature.
_ONTO = {
    "product_tensor": PRODUCT_FEATURES.index("log_tiled_over_bound"),
    "attention": ATTENTION_FEATURES.index("log_tiled_over_bound"),
}


class Tiled(nn.Module):
    """No network: the tile model, which is the last feature, is the answer.

    Free coefficients on FP32 products and on decode attention carry worse to other GPUs than the
    tile model alone: in folds over the GPUs of the training side.
    """

    def __init__(self, num_features: int):
        super().__init__()
        self.num_features = num_features

    def forward(self, x):
        return torch.clamp(x[None, :, -1], _FLOOR, _CEILING)

    def export(self) -> EfficiencyModel:
        pick = np.zeros((1, self.num_features, 1), np.float32)
        pick[0, -1] = 1.0
        wide = np.full(self.num_features, 9.0, np.float32)
        return EfficiencyModel(
            low=-wide, high=wide, weights=(pick,), biases=(np.zeros((1, 1, 1), np.float32),),
            floor=_FLOOR, ceiling=_CEILING,
        )  # fmt: skip


#: Models that the tile model answers alone.
TILED = frozenset({"product_vector", "attention_decode"})


def _compute_frac(model, x):
    """Share of arithmetic in the bounds, as `Bounds.compute_frac`, from the features."""
    if model == "stream":
        return 1.0
    ratio = 10.0 ** x[:, _INTENSITY]
    return ratio / (1.0 + ratio)


def _uncached(model, x):
    """`Bounds.uncached_s` over the roofline, from the features."""
    is_stream = model == "stream"
    memory = 1.0 if is_stream else 1.0 / torch.clamp(10.0 ** x[:, _INTENSITY], min=1.0)
    over_l2 = 10.0 ** x[:, _STREAM_OVER_L2 if is_stream else _OVER_L2]
    return memory * (1.0 - 1.0 / torch.clamp(over_l2, min=1.0))


class Predictor(nn.Module):
    """Networks by model, effects of devices and tables, and host dispatch."""

    def __init__(self, networks, options: FitOptions, devices: list[str], steps: Steps):
        super().__init__()
        self.networks = nn.ModuleDict(networks)
        self.gap_s = options.gap_s
        self.power_exponent = power_budget().exponent if options.is_power_limited else None
        self.devices = devices
        self.has_steps = np.isin(devices, steps.device)
        self.slope = nn.Parameter(torch.zeros(NUM_LAWS, len(Effect)))
        # Benchmarks of operators have habits of their own, which steps of that device do not show.
        self.own = nn.Parameter(torch.zeros(len(devices), len(Effect)))
        self.own_in_operators = nn.Parameter(torch.zeros(len(devices), len(Effect)))
        self.table = nn.Parameter(torch.zeros(len(np.unique(_tables(steps)))))
        start = [[_EAGER_DISPATCH_S if f in _EAGER else _OTHER_DISPATCH_S] * 2 for f in FRAMEWORKS]
        seconds = torch.tensor([[eager, [_OTHER_DISPATCH_S] * 2] for eager in start])
        # log of seconds per kernel: (framework, eager or compiled, forward or backward)
        self.log_dispatch_s = nn.Parameter(torch.log(seconds))
        self.log_step_s = nn.Parameter(torch.full((len(FRAMEWORKS),), _LOG_STEP_S))

    def log_effect(self, model, x, traits, own=None):
        """Log effect of the device on each row; without ``own`` effects the laws alone."""
        if model not in EFFECT_OF_MODEL:
            return torch.zeros(())
        effect = EFFECT_OF_MODEL[model]
        law = (self.slope[:, effect] * traits[..., effect]).sum(1)
        return _compute_frac(model, x) * (law if own is None else law + own[:, effect])

    def slowdown(self, model, x):
        """Log10 slowdowns, (members, rows); the mean alone when not training."""
        if model not in self.networks:
            return _UNSEEN.expand(1, len(x))
        y = self.networks[model](x)
        return y if self.training else y.mean(0, keepdim=True)

    def sustained(self, time, power):
        """Time of launches in steady work, of which the board's power serves so many."""
        if self.power_exponent is None:
            return time
        return torch.maximum(time, time ** (1 - self.power_exponent) * power**self.power_exponent)

    def forward(self, batch):
        """Log of step time, (members, steps)."""
        total = batch["kernels"].sum(1)[None] * self.gap_s
        for model, (x, bound, power, launches, step) in batch["rows"].items():
            own = nn.functional.pad(self.own, (0, 0, 0, 1))[batch["device"][step]]
            effect = torch.exp(self.log_effect(model, x, batch["traits"][step], own))
            learned = effect * 10.0 ** self.slowdown(model, x)
            burst = bound * torch.maximum(learned, _uncached(model, x))
            time = launches * self.sustained(burst, power)
            sums = torch.zeros(len(time), len(batch["target"])).index_add(1, step, time)
            total = total + sums
        dispatch = torch.exp(self.log_dispatch_s[batch["framework"], batch["compiled"]])
        host = (batch["kernels"] * dispatch).sum(1)
        fixed = torch.exp(self.log_step_s[batch["framework"]])
        # A smooth maximum, so that both sides learn near the crossing.
        answer = torch.log((total**8 + host**8) ** 0.125 + fixed)
        return answer + self.table[batch["table"]] if self.training else answer


def make_networks(steps: Steps, operators: Mapping[str, Operators], options: FitOptions):
    """Networks whose clamps span what was seen in steps and op rows."""
    networks = {}
    for model in sorted(set(steps.rows) | set(operators)):
        parts = [p.features for p in (steps.rows.get(model), operators.get(model)) if p is not None]
        x = np.concatenate(parts).astype(np.float64)
        noise = options.noise * _NOISE_OF.get(model, 1.0)
        own = dataclasses.replace(options, noise=noise)
        networks[model] = Tiled(x.shape[1]) if model in TILED else Network(x, own, _ONTO.get(model))
    return networks


def step_batch(
    steps: Steps, chosen: np.ndarray, traits: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict:
    """Tensors of some steps.

    Args:
        steps: All steps.
        chosen: Which.
        traits: Log traits of each device, (number of laws, number of effects).
        names: Devices that were fitted, in order; others have no effect of their own.
    """
    number = np.full(len(steps.step_s), -1)
    number[chosen] = np.arange(len(chosen))
    rows = {}
    for model, r in steps.rows.items():
        keep = number[r.step] >= 0
        if keep.any():
            rows[model] = (
                torch.from_numpy(np.ascontiguousarray(r.features[keep], dtype=np.float32)),
                torch.from_numpy((r.bound_s[keep]).astype(np.float32)),
                torch.from_numpy((r.power_s[keep]).astype(np.float32)),
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
        "traits": _traits(steps.device[chosen], traits),
        "device": _places(steps.device[chosen], names),
    }


def _places(asked: np.ndarray, names: Sequence[str]) -> torch.Tensor:
    """Place of each among sorted names, -1 where it is none of them."""
    place = np.minimum(np.searchsorted(names, asked), len(names) - 1)
    return torch.from_numpy(np.where(np.asarray(names)[place] == asked, place, -1))


def _traits(names: np.ndarray, traits: Mapping[str, np.ndarray]) -> torch.Tensor:
    unique, code = np.unique(names, return_inverse=True)
    values = np.array([traits[name] for name in unique], dtype=np.float32)
    return torch.from_numpy(values.reshape(-1, NUM_LAWS, len(Effect))[code])


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
    networks = make_networks(steps, operators, options)
    operators = {m: o for m, o in operators.items() if m not in TILED}
    names = sorted(set(steps.device).union(*(o.device for o in operators.values())))
    table = np.unique(_tables(steps), return_inverse=True)[1]
    predictor = Predictor(networks, options, names, steps)
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
                    loss = loss + growth_loss(predictor.networks[model], x)
            loss.backward()
            optimizer.step()
            schedule.step()
            errors.append(float(error.detach()))
        if epoch % 5 == 4 or epoch == options.epochs - 1:
            log(f"epoch {epoch + 1}: mean abs log error of steps {np.mean(errors):.3f}")
    return predictor.eval()


def _tables(steps: Steps) -> np.ndarray:
    """What shares one author's habits: table, framework and task."""
    parts = zip(steps.source, steps.framework, steps.task, strict=True)
    return np.array([f"{source}/{framework}/{task}" for source, framework, task in parts])


def _training_batch(steps, part, traits, weight, names, table):
    return {
        **step_batch(steps, part, traits, names),
        "weight": torch.from_numpy(weight[part].astype(np.float32)),
        "table": torch.from_numpy(table[part]),
    }


def _operator_tensors(operators: Operators, traits, names) -> tuple[torch.Tensor, ...]:
    return (
        torch.from_numpy(operators.features.astype(np.float32)),
        torch.from_numpy(operators.log10_slowdown.astype(np.float32)),
        torch.from_numpy(operators.weight.astype(np.float32)),
        torch.from_numpy(np.searchsorted(names, operators.device)),
        _traits(operators.device, traits),
    )


def _optimizer(predictor: Predictor, options: FitOptions, num_updates: int):
    groups = [
        {"params": predictor.networks.parameters(), "weight_decay": options.decay},
        {"params": [predictor.slope, predictor.own, predictor.own_in_operators, predictor.table]},
        {"params": [predictor.log_dispatch_s, predictor.log_step_s]},
    ]
    rate = options.rate
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.0)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [rate, rate, rate * _DISPATCH_RATE], total_steps=num_updates
    )


def _step_loss(predictor, batch):
    error = (predictor(batch) - batch["target"]).abs().mean(0)
    return (error * batch["weight"]).sum() / batch["weight"].sum()


def _penalty(predictor, options):
    own = (predictor.own**2).sum() + (predictor.own_in_operators**2).sum()
    fixed = ((predictor.log_step_s - _LOG_STEP_S) ** 2).sum()
    return (
        options.device_penalty * own
        + options.source_penalty * (predictor.table**2).sum()
        + options.fixed_penalty * fixed
    )


def _operator_loss(predictor, model, drawn):
    x, target, weight, device, traits = drawn
    own = predictor.own_in_operators[device]
    effect = predictor.log_effect(model, x, traits, own) / np.log(10.0)
    miss = (predictor.slowdown(model, x) + effect - target).abs().mean(0)
    share = _OPERATOR_WEIGHT * _WEIGHT_OF.get(model, 1.0)
    return share * (miss * weight).sum() / weight.sum()


def _with_rows(x, batch, rng):
    """Features of streams of op rows, and as many of steps where a batch has them."""
    if "stream" not in batch["rows"]:
        return x
    in_steps = batch["rows"]["stream"][0]
    return torch.cat([x, in_steps[torch.from_numpy(rng.integers(0, len(in_steps), len(x)))]])


def growth_loss(network: Network, x):
    """Penalty on streams that would be faster with more elements, or much slower per element.

    No kernel is, but that one which leaves the cache loses its speed.

    Args:
        network: Of streams.
        x: Features, (rows, features); each is asked for at another size, drawn anew.
    """
    along = torch.zeros(x.shape[1])
    along[_GROWING] = 1.0
    x = x + along * _REACH * (2 * torch.rand(len(x), 1) - 1)
    is_training = network.training
    network.eval()
    more = x + _GROWTH * along
    least = _GROWTH + network(more) - network(x)
    most = _GROWTH + _slowed(network, more) - _slowed(network, x)
    network.train(is_training)
    low, high = _LEAVES_CACHE
    is_kept = (x[:, _STREAM_OVER_L2] < low) | (x[:, _STREAM_OVER_L2] > high)
    excess = torch.relu(most - _MOST_GROWTH * _GROWTH) * is_kept
    lack = torch.relu(_LEAST_GROWTH * _GROWTH - least)
    return _GROWTH_WEIGHT * (lack + excess).mean() / _GROWTH


def _slowed(network, x):
    """Log10 slowdown of streams, no less than what the cache cannot hold takes."""
    return torch.maximum(network(x), torch.log10(torch.clamp(_uncached("stream", x), min=1e-3)))


def predict_steps(
    predictor: Predictor, steps: Steps, chosen: np.ndarray, traits: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Log of predicted step time of some steps; devices that were fitted have their effects."""
    parts = np.array_split(chosen, max(1, len(chosen) // 2000))
    with torch.no_grad():
        answers = [
            predictor(step_batch(steps, part, traits, predictor.devices))[0].numpy()
            for part in parts
        ]
    return np.concatenate(answers)


def fit_alone(
    operators: Operators, *, updates: int = 3000, options: FitOptions | None = None,
    batch_rows: int = 2048, model: str = "",
) -> EfficiencyModel:  # fmt: skip
    """Fit one model to op rows only; the same rows give the same coefficients to the bit."""
    options = options or FitOptions(members=1, noise=0.0)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    network = Network(operators.features.astype(np.float64), options, _ONTO.get(model))
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
