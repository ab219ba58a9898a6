"""What the host spends to dispatch a step, by framework and compiler, and where it waits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.errors import UnknownNameError
from paceline.model.costs_table import views_with
from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import FloatArray, OpKind, Phase
from paceline.model.ops.optable import variants
from paceline.model.ops.turns import turning_rows, turns_of
from paceline.model.rewrite.optimizer import optimizer_by_variant
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array
from paceline.prediction.kernel_maturity import first_years


def waits_of(lowered: LoweredPass) -> npt.NDArray[np.intp]:
    """Ops, by their place in execution order, after which the host waits for the device.

    A processor that runs the ops itself has nobody to wait for, and an engine that serves has code
    of its own.
    """
    costs, configuration = lowered.costs, lowered.configuration
    is_wait = costs.kind == OpKind.HOST_WAIT
    if configuration.platform == "cpu" or configuration.is_served or not is_wait.any():
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(is_wait[costs.order])


def list_transfer_s(lowered: LoweredPass, dims: Array, calibration: Calibration) -> Array:
    """Host time to make tensors of Python lists, for each op in execution order.

    Args:
        lowered: The pass.
        dims: Shape numbers of its rows, (num_points, num_rows, NUM_DIMS).
        calibration: Time to take one number out of a list.

    Returns:
        Seconds, (num_points, num_ops).
    """
    costs = lowered.costs
    is_listed = (costs.kind == OpKind.HOST_WAIT) & (costs.variant == variants()[_LISTED])
    numbers = dims[..., 0] * dims[..., 1] * is_listed
    seconds = (numbers * calibration.constant("host_waits", "number_s")).astype(np.float32)
    in_order: Array = seconds[:, costs.order]
    return in_order


_LISTED = ("HOST_WAIT", "listed")


def turns_in_order(lowered: LoweredPass, dims: Array) -> Array:
    """How often the host launches each op in execution order: once, or for each item of a batch.

    Args:
        lowered: The pass.
        dims: Shape numbers of its rows, (num_points, num_rows, NUM_DIMS).

    Returns:
        (num_points, num_ops), or (1, 1) where nothing is launched by a loop.
    """
    costs = lowered.costs
    if not turning_rows(costs.kind, costs.dims).size:
        return np.ones((1, 1), dtype=np.float32)
    turns: Array = turns_of(costs.kind, dims)[:, costs.order].astype(np.float32)
    return turns


def num_waits(lowered: LoweredPass, dims: Array) -> FloatArray:
    """How often the host waits for the device in one pass, (num_points,) or (1,).

    Arguments are those of `turns_in_order`.
    """
    turns = turns_in_order(lowered, dims)
    each = np.broadcast_to(turns, (len(turns), len(lowered.costs.order)))
    total: FloatArray = each[:, waits_of(lowered)].sum(axis=-1, dtype=np.float64)
    return total


def host_years(devices: DeviceTable, calibration: Calibration) -> FloatArray:
    """Years from a reference to the architecture of each device, (num_devices,); 0 where unknown.

    A machine is bought with its devices, and later processors dispatch faster: the prior of a host
    of which nothing else is known. The reference is the year of the hosts that the table of
    dispatch times describes.
    """
    first = first_years(devices.generations)
    launched = np.where(np.isnan(first), devices.year, first)
    years: FloatArray = np.nan_to_num(launched - calibration.constant("host", "reference_year"))
    return years


def host_pace(devices: DeviceTable, framework: str, calibration: Calibration) -> FloatArray:
    """Time that the machines of each device take to dispatch, over the table's, (num_devices,).

    A board has processors of its own, whose clock is known (`DeviceTable.board_pace`).
    """
    log_per_year = calibration.constants["host"]["log_per_year"]
    pace = np.exp(log_per_year.get(framework, 0.0) * host_years(devices, calibration))
    return np.where(np.isnan(devices.board_pace), pace, devices.board_pace)


def dispatch_s(
    lowered: LoweredPass, framework: str, devices: DeviceTable, calibration: Calibration
) -> Array:
    """Host time to dispatch each op in execution order, (num_devices, num_ops).

    One op costs a time per kernel it launches and a share of it per view of a tensor it asks for;
    autograd's own thread runs the backward pass, so its ops have a cost of their own.

    Args:
        lowered: The pass.
        framework: ``torch``, ``tensorflow``, ``mxnet``, ``caffe`` …
        devices: Whose machines dispatch.
        calibration: Dispatch times.

    Raises:
        UnknownNameError: No dispatch times for that framework.
    """
    table = calibration.constants["host"]["per_kernel_s"]
    if framework not in table:
        raise UnknownNameError.from_name(
            "framework", framework, table, command="paceline predict --help"
        )
    costs = lowered.costs
    times = table[framework][lowered.configuration.compiler]
    per_kernel = np.where(costs.phase == Phase.BACKWARD, times["backward"], times["forward"])
    row_s = (calls_of(lowered, framework, calibration) * per_kernel).astype(np.float32)
    pace = host_pace(devices, framework, calibration).astype(np.float32)
    ordered: Array = pace[:, None] * row_s[costs.order]
    return ordered


def calls_of(lowered: LoweredPass, framework: str, calibration: Calibration) -> FloatArray:
    """What the host dispatches for each row of the cost table, in launches of kernels, (num_rows,).

    Args:
        lowered: The pass.
        framework: Whose host.
        calibration: What a view of a tensor costs, over a launch.
    """
    costs = lowered.costs
    if lowered.configuration.compiler != "eager":
        return costs.num_kernels
    views = views_with(costs.kind, costs.phase, costs.num_kernels)
    calls: FloatArray = costs.num_kernels + view_frac(framework, calibration) * views
    if lowered.configuration.widens_in_kernels:
        calls = calls + _LAUNCHES_OF_WIDENING * costs.widens()
    return calls


#: Python around a kernel that widens the weights which it multiplies, in launches: bitsandbytes'
#: layers of 4 bits take 42 us more than plain ones in a token of Llama 3 8B on an H100, where a
#: launch takes 21 (benchmarks/gpu_asked.md), and 40 on an A100, where it takes 24.5 (what a
#: layer more adds to LitGPT's first fifty tokens, from StableLM 3B to Llama 2 13B;
#: Lightning-AI/litgpt 4839345, tutorials/resource-tables.md).
_LAUNCHES_OF_WIDENING = 2.0


def view_frac(framework: str, calibration: Calibration) -> float:
    """What a view costs the host of a framework, over a launch; 0 where it makes none one by one.

    A view of a tensor launches nothing, and eager PyTorch looks it up, checks and records it like
    an op.
    """
    return float(calibration.constants["host"]["view_frac"].get(framework, 0.0))


def beyond_queue_s(
    lowered: LoweredPass, host_s: Array | FloatArray, calibration: Calibration
) -> FloatArray:
    """What an update takes at least from the end of backward on: its launches that no queue held.

    While a device is busy its queue holds so many launches, and then the host waits. Of an update
    that launches more, one tensor after the other, the rest is dispatched as the device takes it.
    A library's loop issues its launches in a fraction of what modules take, and stays ahead: deep
    networks that PyTorch 1.12 updates tensor by tensor lose nothing. A script's own loop does not.

    Args:
        lowered: The pass.
        host_s: Host time to dispatch each op in execution order, (..., num_ops).
        calibration: How many launches a queue holds.

    Returns:
        Seconds, shape of ``host_s`` without its last axis.
    """
    costs = lowered.costs
    is_slow = np.zeros(len(costs.kind), dtype=bool)
    for row in np.flatnonzero(costs.kind == OpKind.OPTIMIZER).tolist():
        is_slow[row] = optimizer_by_variant(int(costs.variant[row])).is_script
    is_update = is_slow[costs.order]
    num_launches = float(costs.num_kernels[costs.order][is_update].sum())
    queued = calibration.constant("host_waits", "queued_launches")
    late_frac = max(0.0, 1.0 - queued / max(num_launches, 1.0))
    is_asynchronous = lowered.configuration.platform != "cpu"
    late_s: FloatArray = late_frac * is_asynchronous * host_s[..., is_update].sum(axis=-1)
    return late_s
