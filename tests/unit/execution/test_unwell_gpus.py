"""A GPU that is unwell is named before the first step of a run."""

from dataclasses import replace

import pytest
from run_machines import gpu_machine

from paceline import run


class Driver:
    def __init__(self, **changes) -> None:
        sound = gpu_machine().gpus[0]
        self._gpus = (sound, replace(sound, **changes))

    def gpus(self):
        return self._gpus


def notices(tmp_path, monkeypatch, driver) -> list[str]:
    monkeypatch.setattr("paceline.execution.machine.nvml.open_nvml", lambda: driver)
    said: list[str] = []
    run(["true"], runs=tmp_path, on_notice=said.append)
    return said


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_memory_errors": 2}, "GPU 1 (NVIDIA H100 80GB HBM3): 2 uncorrected errors"),
        ({"num_nvlinks": 4}, "4 of 18 NVLink connections are up"),
        ({"throttle_reasons": ("power brake",)}, "power brake"),
    ],
)
def test_it_is_named_with_its_proof(tmp_path, monkeypatch, changes, told) -> None:
    said = notices(tmp_path, monkeypatch, Driver(**changes))
    assert sum(told in line for line in said) == 1


def test_sound_gpus_are_not_spoken_of(tmp_path, monkeypatch) -> None:
    assert not any("GPU" in line for line in notices(tmp_path, monkeypatch, Driver()))
