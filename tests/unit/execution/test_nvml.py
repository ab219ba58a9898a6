"""The NVML seam on a recording of the library, with the calls that a card does not answer."""

# ruff: noqa: N802 (the recording has the names of the library)

from types import SimpleNamespace

import pytest

from paceline.execution.machine.nvml import PyNvml, open_nvml, throttle_names


class NVMLError(Exception):
    pass


class RecordedLibrary:
    """Answers of nvidia-ml-py on two H100; GPU 1 is cut into slices and refuses utilisation."""

    NVMLError = NVMLError

    def __init__(self):
        self.num_handles = 0

    def nvmlSystemGetDriverVersion(self):
        return b"580.82.07"

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return 13000

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        self.num_handles += 1
        return index

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=85_520_809_984, used=4_000_000_000)

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return (9, 0)

    def nvmlDeviceGetMigMode(self, handle):
        return (handle, handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=4711)] if handle == 0 else []

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle):
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle):
        return 16

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle):
        return 16 if handle == 0 else 8

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, since):
        assert (kind, since) == (1, 0)
        return 3 * handle

    def nvmlDeviceGetRemappedRows(self, handle):
        if handle == 0:
            raise NVMLError
        return (0, 1, 1, 0)

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link >= 4:
            raise NVMLError
        return 1

    def nvmlDeviceGetUtilizationRates(self, handle):
        if handle == 1:
            raise NVMLError
        return SimpleNamespace(gpu=97, memory=41)

    def nvmlDeviceGetPowerUsage(self, handle):
        return 512_345

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return 1_000_000

    def nvmlDeviceGetClockInfo(self, handle, which):
        assert which == 1
        return 1980

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 54

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return 0x4


@pytest.fixture
def nvml():
    return PyNvml(RecordedLibrary())


def test_facts_are_in_si_units(nvml):
    gpu = nvml.gpus()[0]
    assert (nvml.driver_version(), nvml.cuda_version()) == ("580.82.07", "13.0")
    assert (gpu.compute_capability, gpu.power_limit_w, gpu.num_nvlinks) == ("9.0", 700.0, 4)
    assert gpu.memory_bytes == 85_520_809_984
    assert (gpu.num_other_processes, gpu.is_mig) == (1, False)


def test_health_is_what_the_driver_counts(nvml):
    sound, broken = nvml.gpus()
    assert (sound.num_memory_errors, sound.has_failed_rows, sound.pcie_lanes_now) == (0, False, 16)
    assert (broken.num_memory_errors, broken.has_failed_rows, broken.pcie_lanes_now) == (3, True, 8)
    assert sound.throttle_reasons == ("power limit",)


def test_sample_is_in_si_units(nvml):
    sample = nvml.sample(0)
    assert sample.utilization_frac == 0.97
    assert sample.power_w == pytest.approx(512.345)
    assert sample.energy_j == 1000.0
    assert sample.sm_clock_hz == 1.98e9
    assert sample.throttle_reasons == ("power limit",)


def test_what_a_card_does_not_tell_is_none_and_the_rest_remains(nvml):
    sample = nvml.sample(1)
    assert sample.utilization_frac is None
    assert sample.power_w is not None
    assert nvml.gpus()[1].is_mig


def test_processes_and_handles_are_asked_once_per_card(nvml):
    assert nvml.process_ids(0) == (4711,)
    nvml.sample(0)
    nvml.sample(0)
    assert nvml._library.num_handles == 1


def test_idle_and_application_clocks_are_no_throttling():
    assert throttle_names(0x1 | 0x2) == ()


def test_no_driver_means_no_library_is_imported(tmp_path):
    assert open_nvml(tmp_path) is None


@pytest.mark.gpu
def test_library_of_this_machine():
    nvml = open_nvml()
    assert nvml is not None
    assert nvml.gpus()[0].memory_bytes > 1e9
    assert 0 < nvml.sample(0).temperature_c < 120
