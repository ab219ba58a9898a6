"""A GPU that is unwell is named before the first step of a run."""

import json
import stat
import subprocess
import sys
from dataclasses import replace

import pytest
from run_machines import gpu_machine

from paceline import run

#: Lines of a kernel's log: leptonai/gpud#500, leptonai/gpud#1160, a program's own error (gpud#46).
_STUCK = "NVRM: Xid (PCI:0000:9b:00): 119, pid=28232, name=python, Timeout after 45s of waiting"
_NOT_FATAL = "NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001)"
_OWN_FAULT = "NVRM: Xid (PCI:0000:cb:00): 13, pid=1, name=python, Graphics SM Warp Exception"


@pytest.fixture
def notices(tmp_path, monkeypatch):
    """What is said of a run beside two GPUs, of which one is otherwise, and a kernel's log."""

    def said_of(log="", **changes) -> list[str]:
        tool = tmp_path / "dmesg"
        tool.write_text(f"#!{sys.executable}\nprint({log!r})\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        sound = gpu_machine().gpus[0]
        here = gpu_machine(gpus=(sound, replace(sound, **changes)))
        monkeypatch.setattr("paceline.execution.machine.probe.probe_host", lambda: here)
        said: list[str] = []
        run(["true"], runs=tmp_path / "runs", on_notice=said.append)
        return said

    return said_of


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_memory_errors": 2}, "GPU 1 (NVIDIA H100 80GB HBM3): 2 uncorrected errors"),
        ({"num_nvlinks": 4}, "4 of 18 NVLink connections are up"),
        ({"throttle_reasons": ("power brake",)}, "power brake"),
        ({"pcie_generation": 3}, "15.8 GB/s of 63.0 GB/s"),  # The catalogue has PCIe 5 for it.
        ({"log": f"a line before\n{_STUCK}"}, "GPU (GSP) no longer answers"),
    ],
)
def test_it_is_named_with_its_proof(notices, changes, told) -> None:
    assert sum(told in line for line in notices(**changes)) == 1


@pytest.mark.parametrize("log", ["", _NOT_FATAL, _OWN_FAULT, "Out of memory: Killed process 4711"])
def test_sound_gpus_are_not_spoken_of(notices, log: str) -> None:
    assert not any("GPU" in line or "memory" in line for line in notices(log=log))


@pytest.mark.gpu
def test_gpus_of_this_machine_are_looked_at_before_a_run(tmp_path) -> None:
    """What `doctor` finds wrong with them is said before a run, and nothing else."""
    doctor = [sys.executable, "-m", "paceline", "doctor", "--json"]
    answer = json.loads(subprocess.run(doctor, capture_output=True, check=False).stdout)
    assert answer["facts"]["gpus"]
    of_gpus = {"memory-errors", "lost-lanes", "clock-held-back", "dead-nvlink", "slow-slot"}
    found = [one["cause"] for one in answer["findings"] if one["name"] in of_gpus]
    said: list[str] = []
    run(["true"], runs=tmp_path, on_notice=said.append)
    assert [cause for cause in found if not any(cause in line for line in said)] == []
