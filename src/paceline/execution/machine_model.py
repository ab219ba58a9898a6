"""A predictor for the machine at hand: its own ceilings, corrected by its own measurements.

Six coefficients, each a thing of this machine: how fast it convolves, multiplies matrices, moves
memory, streams the operands of a product, hands out fresh pages, and dispatches an op.
Micro-benchmarks give where to begin, measured steps move it; with no step measured it already
answers, and says that it is not calibrated.
See docs/explanation/local-model.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paceline.execution.ceilings import Ceiling, CeilingKind
from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.ops.registry import kinds_where
from paceline.prediction.uncertainty.intervals import Z_80

FloatArray = npt.NDArray[np.float64]

_CONVOLUTIONS = kinds_where(lambda facts: facts.efficiency == "convolution")
#: Where coefficients begin, as shares of the ceilings: library products pack their operands
#: (a third of the bandwidth is left), and an op of a real model costs some four bare dispatches.
_CONV_FRAC, _MATMUL_FRAC, _MEMORY_FRAC, _OPERAND_FRAC = 0.6, 0.8, 0.8, 0.33
_DISPATCHES_PER_OP = 4.0
#: glibc maps allocations above this anew every time (mallopt(3), M_MMAP_THRESHOLD_MAX).
_FRESH_BYTES = 32 * 2**20
_PRIOR_LOG_SIGMA = 0.6
_NOISE_LOG_SIGMA = 0.05
_UNCALIBRATED_LOG_SIGMA = 0.4
_LEAST_LOG_SIGMA = 0.08
_NEEDED: frozenset[CeilingKind] = frozenset({"product", "memory", "fresh memory", "dispatch"})


_COEFFICIENTS = (
    "conv_flop_per_s", "matmul_flop_per_s", "memory_bytes_per_s", "operand_bytes_per_s",
    "fresh_bytes_per_s", "dispatch_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What one step asks of the machine, as `LocalModel` sees it.

    Attributes:
        conv_flop: FLOP of each distinct convolution times its count, (num_rows,).
        moved_bytes: Bytes of each distinct op that is no other product, times count, (num_rows,).
        matmul_flop: FLOP of all other products.
        operand_bytes: Bytes that those read and write.
        fresh_bytes: Bytes of results so large that their pages are handed out anew.
        num_ops: Ops that are dispatched.
        gradient_bytes: Of all gradients, as they are exchanged.
    """

    conv_flop: FloatArray
    moved_bytes: FloatArray
    matmul_flop: float
    operand_bytes: float
    fresh_bytes: float
    num_ops: float
    gradient_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """Step times of this machine.

    Attributes:
        conv_flop_per_s: Rate of convolutions.
        matmul_flop_per_s: Rate of other products.
        memory_bytes_per_s: Rate of everything that is bound by memory.
        operand_bytes_per_s: Rate at which products take their operands.
        fresh_bytes_per_s: Rate at which fresh pages are handed out and filled.
        dispatch_s: Time to dispatch one op.
        shared_frac: Speed of one process while others run beside it, by number of processes.
        all_reduce_bytes_per_s: Bus bandwidth between processes, by number of them.
        log_sigma: Standard deviation of log step time.
        num_records: Measured steps that it was fitted to.
    """

    conv_flop_per_s: float
    matmul_flop_per_s: float
    memory_bytes_per_s: float
    operand_bytes_per_s: float
    fresh_bytes_per_s: float
    dispatch_s: float
    shared_frac: Mapping[int, float]
    all_reduce_bytes_per_s: Mapping[int, float]
    log_sigma: float = _UNCALIBRATED_LOG_SIGMA
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


def step_work(lowered: LoweredPass, *, batch: int, seq: int = 1) -> StepWork:
    """What a lowered pass asks for at one batch."""
    costs = lowered.costs
    powers = monomials(batch, seq)[0]
    flop = costs.count * (costs.flop @ powers)
    written = costs.write_bytes @ powers
    moved = costs.count * (costs.read_bytes @ powers + written)
    is_conv = np.isin(costs.kind, [int(kind) for kind in _CONVOLUTIONS])
    is_product = ~is_conv & (flop > 0)
    is_fresh = (written > _FRESH_BYTES) & (costs.kind != int(OpKind.OPTIMIZER))
    return StepWork(
        conv_flop=np.where(is_conv, flop, 0.0),
        moved_bytes=np.where(is_product, 0.0, moved),
        matmul_flop=float(np.sum(flop[is_product])),
        operand_bytes=float(np.sum(moved[is_product])),
        fresh_bytes=float(np.sum((costs.count * written)[is_fresh])),
        num_ops=float(np.sum(costs.count * np.maximum(costs.num_kernels, 1.0))),
        gradient_bytes=lowered.gradient_bytes,
    )


def start_model(ceilings: Sequence[Ceiling]) -> LocalModel | None:
    """A model from micro-benchmarks alone; None if they lack what it needs."""
    plain = [ceiling for ceiling in ceilings if _is_plain(ceiling)]
    rates = {ceiling.kind: ceiling.rate for ceiling in plain if ceiling.record.num_devices == 1}
    if not rates.keys() >= _NEEDED:
        return None
    flop_per_s, memory_bytes_per_s = rates["product"], rates["memory"]
    return LocalModel(
        conv_flop_per_s=_CONV_FRAC * flop_per_s,
        matmul_flop_per_s=_MATMUL_FRAC * flop_per_s,
        memory_bytes_per_s=_MEMORY_FRAC * memory_bytes_per_s,
        operand_bytes_per_s=_OPERAND_FRAC * memory_bytes_per_s,
        fresh_bytes_per_s=rates["fresh memory"],
        dispatch_s=_DISPATCHES_PER_OP * rates["dispatch"],
        shared_frac=_shared_fracs(plain, flop_per_s),
        all_reduce_bytes_per_s={
            ceiling.record.num_devices: ceiling.rate
            for ceiling in plain
            if ceiling.kind == "all-reduce"
        },
    )


def predict_local(model: LocalModel, work: StepWork, *, num_devices: int = 1) -> LocalStep | None:
    """Step time of ``work`` on so many processes; None for a number that was never measured."""
    alone_s = _step_s(_coefficients(model), work)
    if num_devices > 1:
        together_s = _together_s(model, work, alone_s, num_devices)
        if together_s is None:
            return None
        alone_s = together_s
    width = math.exp(Z_80 * model.log_sigma)
    return LocalStep(low_s=alone_s / width, mid_s=alone_s, high_s=alone_s * width)


def fit_local(model: LocalModel, pairs: Sequence[tuple[StepWork, float]]) -> LocalModel:
    """Move the coefficients to measured steps, as far as they outweigh the ceilings.

    Maximum a posteriori under log-normal errors, by Gauss–Newton; the prior is the model given.

    Args:
        model: Where to begin.
        pairs: Work and measured median of single-process steps.
    """
    if not pairs:
        return model
    start = np.log(_coefficients(model))
    theta = start.copy()
    measured = np.log([seconds for _, seconds in pairs])
    for _ in range(30):
        residual, slope = _linearize(theta, pairs, measured)
        system = np.vstack([slope / _NOISE_LOG_SIGMA, np.eye(len(theta)) / _PRIOR_LOG_SIGMA])
        target = np.concatenate([residual / _NOISE_LOG_SIGMA, (start - theta) / _PRIOR_LOG_SIGMA])
        change = np.linalg.lstsq(system, target, rcond=None)[0]
        theta += np.clip(change, -0.5, 0.5)
    residual, _ = _linearize(theta, pairs, measured)
    conv, matmul, memory, operand, fresh, dispatch_s = (float(value) for value in np.exp(theta))
    return replace(
        model,
        conv_flop_per_s=conv,
        matmul_flop_per_s=matmul,
        memory_bytes_per_s=memory,
        operand_bytes_per_s=operand,
        fresh_bytes_per_s=fresh,
        dispatch_s=dispatch_s,
        log_sigma=max(_LEAST_LOG_SIGMA, 1.5 * float(np.sqrt(np.mean(residual**2)))),
        num_records=len(pairs),
    )


def _coefficients(model: LocalModel) -> FloatArray:
    return np.array([getattr(model, name) for name in _COEFFICIENTS])


def _step_s(coefficients: FloatArray, work: StepWork) -> float:
    """Convolutions overlap arithmetic and traffic; products pack first; the rest is traffic."""
    conv, matmul, memory, operand, fresh, dispatch_s = coefficients
    ops_s = np.maximum(work.conv_flop / conv, work.moved_bytes / memory)
    products_s = work.matmul_flop / matmul + work.operand_bytes / operand
    pages_s = work.fresh_bytes / fresh
    return float(np.sum(ops_s) + products_s + pages_s + work.num_ops * dispatch_s)


def _linearize(
    theta: FloatArray, pairs: Sequence[tuple[StepWork, float]], measured: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log residuals and their slope in the log coefficients, by central differences."""
    step = 1e-4

    def logs(values: FloatArray) -> FloatArray:
        return np.log([_step_s(np.exp(values), work) for work, _ in pairs])

    shifts = step * np.eye(len(theta))
    slope = np.stack([(logs(theta + s) - logs(theta - s)) / (2 * step) for s in shifts], axis=1)
    return measured - logs(theta), slope


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
    copied_s = 4 * work.gradient_bytes / model.memory_bytes_per_s
    return (alone_s + copied_s) / shared + exchanged / bus


def _is_plain(ceiling: Ceiling) -> bool:
    return (ceiling.record.framework, ceiling.record.precision) == ("torch", "fp32")


def _shared_fracs(ceilings: Sequence[Ceiling], alone: float) -> dict[int, float]:
    return {
        ceiling.record.num_devices: min(1.0, ceiling.rate / alone)
        for ceiling in ceilings
        if ceiling.kind == "product" and ceiling.record.num_devices > 1
    }
