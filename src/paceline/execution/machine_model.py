"""A predictor for the machine at hand: its own ceilings, corrected by its own measurements.

One rate per kind of `Work`, each a thing of this machine. Micro-benchmarks give where to begin,
measured steps move it; with no step measured it already answers, and says that it is not
calibrated. See docs/explanation/local-model.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt

from paceline.execution.ceilings import Ceiling, CeilingKind
from paceline.execution.machine_work import StepWork, Work, amounts_of, cpu_frameworks, loop_ops
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.values import dataclass

FloatArray = npt.NDArray[np.float64]

#: Ceilings that give the rate of each kind of work, and the share of it that models reach.
_FROM_CEILINGS: Mapping[Work, tuple[CeilingKind, float]] = {
    Work.CONVOLUTION: ("convolution", 1.0),
    Work.INPUT_GRADIENT: ("gradient of inputs", 1.0),
    Work.WEIGHT_GRADIENT: ("gradient of weights", 1.0),
    Work.POINTWISE: ("pointwise convolution", 1.0),
    Work.DEPTHWISE: ("depthwise convolution", 1.0),
    Work.PRODUCT: ("product", 1.0),
    Work.ATTENTION: ("attention", 1.0),
    Work.RECURRENCE: ("recurrence", 1.0),
    Work.OPERANDS: ("operands", 1.0),
    Work.FILTERS: ("filters", 1.0),
    Work.VECTOR: ("product with a vector", 1.0),
    Work.CACHED: ("cached memory", 1.0),
    Work.STREAM: ("memory", 0.8),
    Work.UPDATE: ("update", 1.0),
    Work.POOL: ("pooling", 1.0),
    Work.POOL_GRADIENT: ("gradient of pooling", 1.0),
    Work.PAGES: ("fresh memory", 1.0),
    Work.DISPATCH: ("layer", 1.0),
    Work.LOOP: ("loop", 1.0),
    Work.CALL: ("call", 1.0),
}
#: Pairs of ceilings that tell two rates, of arithmetic and of laying out operands, and ceilings
#: that compute likewise. The second of a pair has little to compute with what it lays out.
_PAIRS: Mapping[tuple[CeilingKind, CeilingKind], tuple[CeilingKind, ...]] = {
    ("product", "operands"): ("attention",),
    ("convolution", "filters"): (
        "gradient of inputs", "gradient of weights", "pointwise convolution",
    ),
}  # fmt: skip
#: Ceilings that only some frameworks have.
_OF_HOSTS: tuple[CeilingKind, ...] = ("loop", "call", "recurrence")
#: What rates of models differ from ceilings, by kind of work, and steps from what rates say.
_PRIOR_LOG_SIGMA = 0.25
#: Likewise where the kernels are another library's than those that the ceilings measured.
_OTHER_LOG_SIGMA = 1.0
_LEAST_NOISE_LOG_SIGMA = 0.05
_LEAST_LOG_SIGMA = 0.08
_NUM_FIT_STEPS, _NUM_NOISE_STEPS = 15, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """Step times of this machine.

    Attributes:
        rates: FLOP, bytes or ops per second of each kind of `Work`, (len(Work),).
        shared_frac: Speed of one process while others run beside it, by number of processes.
        all_reduce_bytes_per_s: Bus bandwidth between processes, by number of them.
        rate_covariance: Of the log rates, (len(Work), len(Work)).
        log_sigma: Standard deviation of log step time where the rates are right.
        num_records: Measured steps that it was fitted to.
    """

    rates: FloatArray
    shared_frac: Mapping[int, float]
    all_reduce_bytes_per_s: Mapping[int, float]
    rate_covariance: FloatArray = field(
        default_factory=lambda: _PRIOR_LOG_SIGMA**2 * np.eye(len(Work))
    )
    log_sigma: float = _LEAST_LOG_SIGMA
    num_records: int = 0

    @property
    def name(self) -> str:
        """As printed beside its predictions."""
        if self.num_records:
            return f"this machine, {self.num_records} measured steps"
        return "this machine's ceilings, no measured step"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStep:
    """A predicted step.

    Attributes:
        low_s: Lower end of the 80 % interval.
        mid_s: Median.
        high_s: Upper end.
    """

    low_s: float
    mid_s: float
    high_s: float


def start_model(ceilings: Sequence[Ceiling], framework: str = "torch") -> LocalModel | None:
    """A model from micro-benchmarks alone; None if they lack what it needs.

    Args:
        ceilings: Of this machine, through any framework.
        framework: Whose steps are asked about.
    """
    own = _alone(ceilings, framework)
    kernels = _alone(ceilings, cpu_frameworks().get(framework, {}).get("kernels", framework))
    known = kernels | own
    if not known.keys() >= {kind for kind, _ in _FROM_CEILINGS.values()} - set(_OF_HOSTS):
        return None
    rates = {kind: ceiling.per_s for kind, ceiling in known.items()}
    rates.setdefault("recurrence", rates["product"])
    rates |= _without_operands(known) | _host_rates(kernels, own, framework)
    plain = [ceiling for ceiling in ceilings if _is_plain(ceiling, framework)]
    return LocalModel(
        rates=amounts_of(
            {work: frac * rates[kind] for work, (kind, frac) in _FROM_CEILINGS.items()}
        ),
        shared_frac=_shared_fracs(plain, rates["product"]),
        all_reduce_bytes_per_s={
            ceiling.record.num_devices: ceiling.rate
            for ceiling in plain
            if ceiling.kind == "all-reduce"
        },
    )


def _alone(ceilings: Sequence[Ceiling], framework: str) -> dict[CeilingKind, Ceiling]:
    """Ceilings of one process through a framework."""
    plain = (ceiling for ceiling in ceilings if _is_plain(ceiling, framework))
    return {ceiling.kind: ceiling for ceiling in plain if ceiling.record.num_devices == 1}


def _host_rates(
    kernels: Mapping[CeilingKind, Ceiling], own: Mapping[CeilingKind, Ceiling], framework: str
) -> dict[CeilingKind, float]:
    """Ops of loops and calls a second.

    A loop of a framework without one to measure dispatches as its layers do. The ceilings of layers
    and of the loop of a compiled step contain its call. Where kernels are another framework's, a
    layer takes what its op takes there, and the call from Python besides.
    """
    of_layer = kernels["layer"].per_s
    rates: dict[CeilingKind, float] = {"loop": of_layer, "call": of_layer}
    if "loop" in own:
        called_s = own["call"].seconds if "call" in own else 0.0
        loop_s = max(own["loop"].seconds - called_s, own["loop"].seconds / 2)
        rates["loop"] = loop_ops(framework) * own["loop"].record.shape[0] / loop_s
    if own["layer"] is kernels["layer"] and "call" in own:
        layers = own["layer"]
        called_s = min(own["call"].rate, layers.seconds / 2)
        layer_s = (layers.seconds - called_s) / layers.record.shape[0]
        rates |= {"call": 1 / called_s, "layer": 1 / layer_s}
    elif "layer" in own and own["layer"] is not kernels["layer"]:
        called_s = max(own["layer"].rate - kernels["layer"].rate, own["layer"].rate / 2)
        rates |= {"call": 1 / called_s, "layer": of_layer}
    return rates


def _without_operands(ceilings: Mapping[CeilingKind, Ceiling]) -> dict[CeilingKind, float]:
    """Rates of what computes, and of operands, at which each ceiling takes what it took.

    A ceiling is a step, too: it packs operands and then computes. Two of a kind tell both rates;
    none is told where the one of few rows or pixels computes all of its time.
    """
    rates: dict[CeilingKind, float] = {}
    for (large, small), others in _PAIRS.items():
        pair = [ceilings[large], ceilings[small]]
        asked = np.array([[one.flop, one.operand_bytes] for one in pair])
        flop_s, byte_s = np.linalg.solve(asked, [one.seconds for one in pair])
        if min(flop_s, byte_s) <= 0:
            continue
        rates |= {large: 1 / flop_s, small: 1 / byte_s}
        for kind in others:
            one = ceilings[kind]
            rates[kind] = one.flop / max(one.seconds - one.operand_bytes * byte_s, one.seconds / 2)
    return rates


def with_other_kernels(model: LocalModel) -> LocalModel:
    """A model of kernels that no ceiling measured: its rates are known to a factor of e."""
    return replace(model, rate_covariance=_OTHER_LOG_SIGMA**2 * np.eye(len(Work)))


def predict_local(model: LocalModel, work: StepWork, *, num_devices: int = 1) -> LocalStep | None:
    """Step time of ``work`` on so many processes; None for a number that was never measured."""
    alone_s = float(work.amounts @ (1 / model.rates))
    if num_devices > 1:
        together_s = _together_s(model, work, alone_s, num_devices)
        if together_s is None:
            return None
        alone_s = together_s
    shares = work.amounts / model.rates
    shares = shares / shares.sum()
    rates_sigma = math.sqrt(float(shares @ model.rate_covariance @ shares))
    width = math.exp(Z_80 * math.hypot(model.log_sigma, rates_sigma))
    return LocalStep(low_s=alone_s / width, mid_s=alone_s, high_s=alone_s * width)


def fit_local(model: LocalModel, pairs: Sequence[tuple[StepWork, float]]) -> LocalModel:
    """Move the rates to measured steps, as far as they outweigh the ceilings.

    Maximum a posteriori under log-normal errors, by Gauss–Newton; the prior is the model given.
    How far steps are from what rates say is learned from the steps themselves.

    Args:
        model: Where to begin.
        pairs: Work and measured median of single-process steps.

    Source:
        Variance of the errors over what the parameters leave free: MacKay, "Bayesian
        interpolation", Neural Computation 4(3), 1992, section 4.
    """
    if not pairs:
        return model
    start = np.log(model.rates)
    theta, noise = start, _LEAST_NOISE_LOG_SIGMA
    amounts = np.stack([work.amounts for work, _ in pairs])
    measured = np.log([seconds for _, seconds in pairs])
    precision = np.asarray(np.linalg.inv(model.rate_covariance), dtype=np.float64)
    for _ in range(_NUM_NOISE_STEPS):
        theta = _likeliest(theta, start, precision, amounts, measured, noise)
        residual, slope = _linearize(theta, amounts, measured)
        known = slope.T @ slope / noise**2
        covariance = np.linalg.inv(known + precision)
        num_free = len(pairs) - float(np.trace(covariance @ known))
        noise = max(_LEAST_NOISE_LOG_SIGMA, math.sqrt(residual @ residual / max(num_free, 1.0)))
    return replace(
        model,
        rates=np.exp(theta),
        rate_covariance=np.asarray(covariance, dtype=np.float64),
        log_sigma=max(_LEAST_LOG_SIGMA, 1.5 * float(np.sqrt(np.mean(residual**2)))),
        num_records=len(pairs),
    )


def _likeliest(
    theta: FloatArray, start: FloatArray, precision: FloatArray, amounts: FloatArray,
    measured: FloatArray, noise: float,
) -> FloatArray:  # fmt: skip
    """Log rates under a prior around ``start``, by Gauss–Newton from ``theta``."""
    root = np.linalg.cholesky(precision).T
    for _ in range(_NUM_FIT_STEPS):
        residual, slope = _linearize(theta, amounts, measured)
        system = np.vstack([slope / noise, root])
        target = np.concatenate([residual / noise, root @ (start - theta)])
        theta = theta + np.clip(np.linalg.lstsq(system, target, rcond=None)[0], -0.5, 0.5)
    return theta


def _linearize(
    theta: FloatArray, amounts: FloatArray, measured: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log residuals and the slope of log time in the log rates: minus the shares of time."""
    parts_s = amounts * np.exp(-theta)
    step_s = parts_s.sum(axis=1)
    return measured - np.log(step_s), -parts_s / step_s[:, None]


def _together_s(
    model: LocalModel, work: StepWork, alone_s: float, num_devices: int
) -> float | None:
    """Slower by the company, then a ring all-reduce that nothing hides on a CPU.

    Source:
        Bus bandwidth of 2 (n - 1) / n of the message: Patarasuk, Yuan, "Bandwidth optimal
        all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
    """
    shared = model.shared_frac.get(num_devices)
    if shared is None:
        return None
    if not work.gradient_bytes:
        return alone_s / shared
    bus = model.all_reduce_bytes_per_s.get(num_devices)
    if bus is None:
        return None
    exchanged = 2 * (num_devices - 1) / num_devices * work.gradient_bytes
    # Gradients are copied into the exchange's buckets and back: each a read and a write.
    copied_s = 4 * work.gradient_bytes / float(model.rates[Work.STREAM])
    return (alone_s + copied_s) / shared + exchanged / bus


def _is_plain(ceiling: Ceiling, framework: str) -> bool:
    return (ceiling.record.framework, ceiling.record.precision) == (framework, "fp32")


def _shared_fracs(ceilings: Sequence[Ceiling], alone: float) -> dict[int, float]:
    return {
        ceiling.record.num_devices: min(1.0, ceiling.rate / alone)
        for ceiling in ceilings
        if ceiling.kind == "product" and ceiling.record.num_devices > 1
    }
