"""What a device does to every op of a kind: three laws of its multiprocessors, and its own habit.

Arithmetic is only one of the limits of a multiprocessor: registers, shared memory and issue slots
do not grow with its matrix units. So the more arithmetic it has per cycle, the smaller the share
that kernels sustain: GeForce cards, whose matrix units run at half rate, come closer to their
listed peak than the professional boards with the same multiprocessors. And matrix units are what
draws most power: the farther the listed boost clock lies above the base clock, which the vendor
promises under any load, the less of it they hold. Desktop cards for consumers, on the other hand,
run beyond their listed boost clock where power and heat allow, which boards for servers may not.
Each law is one power for all devices, and acts on the share of an op that arithmetic has in its
bounds. Products on matrix units also gain with every year that their kernels had to ripen
(`kernel_maturity`). What is left of a device that was measured is its own effect, shrunk
towards none (a mixed model; Gelman et al., *Bayesian Data Analysis*, ch. 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import PEAK_KEYS, DeviceTable
from paceline.prediction.features import Array
from paceline.prediction.kernel_maturity import maturity_years


class Effect(IntEnum):
    """Kinds of ops that one effect serves, by the limit they share."""

    PRODUCT = 0
    CONV_TENSOR = 1
    CONV_VECTOR = 2
    STREAM = 3
    PRODUCT_VECTOR = 4


#: Density, headroom of clocks, and clocks beyond the listed one.
NUM_LAWS = 3
#: FP32 products have the tile model and the clock law: neither law here acts on them.
EFFECT_OF_MODEL: dict[str, Effect] = {
    "product_vector": Effect.PRODUCT_VECTOR,
    "product_tensor": Effect.PRODUCT,
    "attention": Effect.PRODUCT,
    "conv_tensor": Effect.CONV_TENSOR,
    "conv_vector": Effect.CONV_VECTOR,
    "stream": Effect.STREAM,
}
#: FLOP per cycle and multiprocessor at which the law changes nothing: Volta and GA10x, Pascal.
_MATRIX_REFERENCE = 1024.0
_VECTOR_REFERENCE = 128.0
#: Boost over base clock at which the law changes nothing: A100, H100, RTX 3090.
_CLOCK_REFERENCE = 1.25


def log_traits(devices: DeviceTable, clock_frac: FloatArray) -> FloatArray:
    """What the laws go by, (num_devices, num_laws, num_effects); zero where a fact is unknown.

    First the log of FLOP per cycle and multiprocessor over a reference: matrix units are compared
    at FP16, as TF32 has half the rate and twice the bytes, and FP8 the reverse. Then, for matrix
    units, the log of the boost over the base clock over a reference. Last, one for desktop cards
    for consumers: their matrix units and streams.

    Args:
        devices: The devices.
        clock_frac: Share of the listed clock that vector units hold, (num_devices,).
    """
    cycles_per_s = devices.num_sms * devices.boost_clock_hz
    matrix = devices.peaks[:, PEAK_KEYS.index("fp16")] / cycles_per_s / _MATRIX_REFERENCE
    vector = devices.peaks[:, PEAK_KEYS.index("fp32")] / cycles_per_s / _VECTOR_REFERENCE
    headroom = devices.boost_clock_hz / devices.base_clock_hz / _CLOCK_REFERENCE
    beyond = np.exp(devices.is_consumer)
    none = np.ones_like(matrix)
    laws = (
        (matrix, matrix, vector * clock_frac, none, none),
        (headroom, headroom, none, none, none),
        (beyond, beyond, none, beyond, none),
    )
    traits = np.stack([np.stack(columns, axis=1) for columns in laws], axis=1)
    logs: FloatArray = np.log(np.nan_to_num(traits, nan=1.0, posinf=1.0))
    return logs


def log10_effects(
    devices: DeviceTable,
    clock_frac: FloatArray,
    calibration: Calibration,
    libraries: Sequence[str] = (),
) -> Array:
    """Log10 by which each effect slows each device, (num_devices, num_effects).

    A device that was not measured has the effect of its family if that was, else the laws alone.

    Args:
        devices: The devices.
        clock_frac: Share of the listed clock that vector units hold, (num_devices,).
        calibration: Slopes of the laws, and the effects of measured devices and families.
        libraries: Releases that run, where they are not the newest on record.
    """
    facts = calibration.constants["device_effects"]
    none = [0.0] * len(Effect)
    own = np.array([
        facts["device"].get(name, facts["family"].get(family, none))
        for name, family in zip(devices.names, devices.families, strict=True)
    ])  # fmt: skip
    traits = np.clip(
        log_traits(devices, clock_frac), facts["log_trait_low"], facts["log_trait_high"]
    )
    log_effect = (np.array(facts["slope"]) * traits).sum(axis=1) + own
    kernels_year = calibration.releases.year_of(libraries) or calibration.releases.newest
    years = maturity_years(devices.generations, kernels_year)
    log_effect[..., Effect.PRODUCT] += years * facts["product_log_per_year"]
    effects: Array = (log_effect / np.log(10.0)).astype(np.float32)
    return effects
