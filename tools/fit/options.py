"""How a fit is run."""

from __future__ import annotations

from dataclasses import dataclass


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
        fixed_penalty: On the squared logs of the fixed time of a step and of dispatch over their
            starts: next to nothing tells them from the time of kernels where all steps are long.
        is_power_limited: Whether matrix units in steps run at the clock that the board's power
            sustains (`paceline.prediction.kernels.sustained_rate`). Op rows are bursts.
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
    noise: float = 0.1
    device_penalty: float = 0.003
    source_penalty: float = 0.003
    fixed_penalty: float = 0.01
    is_power_limited: bool = True
    gap_s: float = 1.5e-6
    seed: int = 0
