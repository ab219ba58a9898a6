"""Devices as arrays: the facts that predictions need, one row per device, NaN where unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.catalog.architectures import Generation
from paceline.catalog.entities import Device
from paceline.columns import take_rows
from paceline.dtypes import ELEMENT_BYTES, DType, Precision
from paceline.model.graph.graph import FloatArray
from paceline.shipped import shipped_rows
from paceline.values import dataclass

#: Keys of `Device.peak_flop_per_s`, in the order of the columns of `DeviceTable.peaks`.
PEAK_KEYS: tuple[str, ...] = (
    "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "fp16_vector",
)  # fmt: skip

#: Peaks that serve rows stored in each format, whatever the precision of the job.
_KEYS_BY_DTYPE: dict[DType, tuple[str, ...]] = {
    DType.FP32: ("fp32",),
    DType.FP16: ("fp16", "fp32"),
    DType.BF16: ("bf16", "fp16", "fp32"),
    DType.FP8: ("fp8",),
    DType.FP4: ("fp4", "bf16", "fp16"),
    DType.INT8: ("int8",),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceTable:
    """Facts of several devices. All arrays are (num_devices,) unless said otherwise.

    Attributes:
        entities: The devices themselves.
        names: ``Device.name``.
        families: Whose measurements hold for each: ``Device.same_chip_as``, else its own family.
        architectures: ``Device.architecture``.
        kinds: Maker and sort of each, as ``data/device_kinds.csv`` has them.
        generations: ``Device.generation``.
        is_gpu: Whether kernels are scheduled in waves over multiprocessors.
        is_consumer: Whether it is a desktop card for consumers, whose clock exceeds the listed one.
        num_sms: Multiprocessors.
        boost_clock_hz: Listed clock.
        base_clock_hz: Clock that the vendor promises under any load.
        memory_bytes_per_s: Peak bandwidth of device memory.
        l2_bytes: Last-level cache; 0 where unknown, so no cache credit is given.
        tdp_w: Board power.
        year: Year of launch.
        host_bytes_per_s: Peak of the host link.
        board_pace: Time that a board's own processors take to dispatch, over that of the hosts that
            dispatch times describe (``data/board_hosts.csv``).
        peaks: Dense peaks in FLOP/s, (num_devices, len(PEAK_KEYS)).
        product_frac: Best rate of BF16 products that is published of it, over its peak.
    """

    entities: tuple[Device, ...]
    names: tuple[str, ...]
    families: tuple[str, ...]
    architectures: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    generations: tuple[Generation, ...]
    is_gpu: FloatArray
    is_consumer: FloatArray
    num_sms: FloatArray
    boost_clock_hz: FloatArray
    base_clock_hz: FloatArray
    memory_bytes_per_s: FloatArray
    l2_bytes: FloatArray
    tdp_w: FloatArray
    year: FloatArray
    host_bytes_per_s: FloatArray
    board_pace: FloatArray
    peaks: FloatArray
    product_frac: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    def take(self, numbers: npt.NDArray[np.intp]) -> DeviceTable:
        """Some of the devices, in the order of their numbers."""
        return take_rows(self, numbers)

    @classmethod
    def from_devices(cls, devices: Sequence[Device]) -> DeviceTable:
        """Lay the facts of ``devices`` out as arrays; an unknown fact becomes NaN."""

        def column(fact: Callable[[Device], float | None]) -> FloatArray:
            values = (fact(device) for device in devices)
            return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

        def peak(key: str) -> FloatArray:
            return column(lambda device: device.peak_flop_per_s.get(key))

        return cls(
            entities=tuple(devices),
            names=tuple(d.name for d in devices),
            families=tuple(d.same_chip_as or d.family for d in devices),
            architectures=tuple(d.architecture for d in devices),
            kinds=tuple(_kind(d) for d in devices),
            generations=tuple(d.generation for d in devices),
            is_gpu=column(lambda d: float(d.kind == "gpu")),
            is_consumer=column(lambda d: float(d.device_class == "consumer")),
            num_sms=column(lambda d: d.num_sms),
            boost_clock_hz=column(lambda d: d.boost_clock_hz),
            base_clock_hz=column(lambda d: d.base_clock_hz),
            memory_bytes_per_s=column(lambda d: d.memory_bytes_per_s),
            l2_bytes=column(lambda d: d.l2_bytes or 0.0),
            tdp_w=column(lambda d: d.tdp_w),
            year=column(lambda d: d.year),
            host_bytes_per_s=column(lambda d: d.pcie_bytes_per_s),
            board_pace=column(lambda d: _board_pace().get(d.same_chip_as or d.family)),
            peaks=np.stack([peak(key) for key in PEAK_KEYS], axis=1),
            product_frac=column(lambda d: d.measured_bf16_flop_per_s) / peak("bf16"),
        )


@cache
def _board_pace() -> Mapping[str, float]:
    """Of boards by their family: work in a second of the table's hosts over that of their own."""
    work_per_s = {
        row["family"]: float(row["clock_hz"]) * float(row["work_per_clock"])
        for row in shipped_rows("prediction", "board_hosts.csv")
    }
    usual = work_per_s.pop("")
    return {family: usual / own for family, own in work_per_s.items()}


def _kind(device: Device) -> tuple[str, str]:
    """Maker and sort; a device with a compute capability runs NVIDIA's kernels."""
    return ("NVIDIA" if device.compute_capability else device.vendor, device.kind)


def matrix_peaks(
    devices: DeviceTable, precision: Precision, *, is_training: bool = False
) -> FloatArray:
    """Dense peak each device offers to matrix products in ``precision``; NaN if none.

    Engines widen operands of 4 bits where no unit multiplies them; nobody trains so.

    Returns:
        FLOP/s, (num_devices,).
    """
    widens = not (is_training and precision.matmul_dtype == DType.FP4)
    others = precision.fallback_peak_keys if widens else ()
    return _first_known(devices, (precision.peak_key, *others))


def operand_bytes(devices: DeviceTable, precision: Precision) -> FloatArray:
    """Bytes of an operand where it is multiplied, (num_devices,); weights may be widened for it."""
    is_own = ~np.isnan(devices.peaks[:, PEAK_KEYS.index(precision.peak_key)])
    own, wide = (ELEMENT_BYTES[one] for one in (precision.matmul_dtype, precision.activation_dtype))
    return np.where(is_own, own, wide)


def dtype_peaks(devices: DeviceTable, formats: Iterable[DType]) -> FloatArray:
    """Dense peak for products of some storage formats, (num_devices, num_formats)."""
    columns = [_first_known(devices, _KEYS_BY_DTYPE.get(one, ("fp32",))) for one in formats]
    return np.stack(columns, axis=1)


def unhalved_peaks(devices: DeviceTable) -> tuple[FloatArray, FloatArray]:
    """Rates of FP32 on vector units and of INT8, which no card halves; NaN where not listed."""
    fp32, int8 = (devices.peaks[:, PEAK_KEYS.index(key)] for key in ("fp32", "int8"))
    return fp32, int8


def has_matrix_units(devices: DeviceTable) -> npt.NDArray[np.bool_]:
    """Whether a device multiplies matrices of 16 bits faster than its vector units do, (D,)."""
    matrix, vector = (devices.peaks[:, PEAK_KEYS.index(key)] for key in ("fp16", "fp16_vector"))
    is_faster: npt.NDArray[np.bool_] = matrix > np.nan_to_num(vector)
    return is_faster


def calculates_in_fp32(devices: DeviceTable, precision: Precision) -> npt.NDArray[np.bool_]:
    """Whether a GPU has no units for the job's 16-bit products, (D,).

    Its libraries then store 16 bits and calculate in FP32, on vector units: compute capabilities
    below 6.0 and 6.1, whose own rate of 16 bits is 1/64 or none.

    Source: NVIDIA, "CUDA C++ Programming Guide", table of arithmetic throughput.
    """
    is_narrow = precision.matmul_dtype in (DType.FP16, DType.BF16)
    lacks: npt.NDArray[np.bool_] = np.isnan(devices.peaks[:, PEAK_KEYS.index("fp16")])
    return lacks & (devices.is_gpu > 0) & is_narrow


def _first_known(devices: DeviceTable, keys: tuple[str, ...]) -> FloatArray:
    peak = np.full(len(devices), np.nan)
    for key in keys:
        peak = np.where(np.isnan(peak), devices.peaks[:, PEAK_KEYS.index(key)], peak)
    return peak
