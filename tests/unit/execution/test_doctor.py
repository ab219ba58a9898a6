import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from run_machines import catalog_device, cpu_machine, gpu_machine

from paceline.execution.machine.doctor import (
    diagnose_machine,
    diagnose_output,
    last_error,
    load_causes,
    tool_output,
)

OUTPUTS = tomllib.loads((Path(__file__).parent / "fixtures/doctor.toml").read_text())["output"]


def test_there_are_enough_causes_and_each_has_a_recorded_output():
    assert len(load_causes()) >= 25
    assert {cause.name for cause in load_causes()} == {output["cause"] for output in OUTPUTS}
    assert len({cause.name for cause in load_causes()}) == len(load_causes())


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda o: f"{o['cause']}-{o['source']}")
def test_recorded_output_names_its_cause_first_and_only(output):
    findings = diagnose_output(output["text"], cpu_machine())
    assert [finding.name for finding in findings] == [output["cause"]]


@pytest.mark.parametrize("cause", load_causes(), ids=lambda c: c.name)
def test_a_remedy_is_one_command_and_a_cause_one_sentence(cause):
    assert cause.remedy
    assert "\n" not in cause.remedy
    assert cause.cause.split()[0] not in {"The", "A", "An"}
    assert not cause.cause.endswith(".")


def test_proof_shows_the_line_and_the_machine():
    text = (
        "ok\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    (finding,) = diagnose_output(text, gpu_machine())
    assert finding.proof[0].startswith("RuntimeError: CUDA error")
    assert "NVIDIA H100 80GB HBM3 (compute capability 9.0)" in finding.proof[1]
    assert finding.remedy.endswith("--gpu sm_90 --driver 580.82")


def test_innocent_output_has_no_cause():
    assert diagnose_output("epoch 1 loss 0.43 img/s 812\n", cpu_machine()) == ()


def test_two_troubles_in_one_log_are_both_named():
    text = "".join(o["text"] for o in OUTPUTS if o["cause"] in {"nccl-timeout", "device-assert"})
    assert {f.name for f in diagnose_output(text, cpu_machine())} == {
        "nccl-timeout", "device-assert",
    }  # fmt: skip


def test_machine_checks_need_proof():
    assert diagnose_machine(cpu_machine()) == ()
    assert [f.name for f in diagnose_machine(gpu_machine(nvidia_driver=None))] == [
        "gpu-without-driver"
    ]
    small = cpu_machine(shm_bytes=64e6, container="docker")
    assert [f.name for f in diagnose_machine(small)] == ["small-shared-memory"]
    assert diagnose_machine(cpu_machine(shm_bytes=64e6)) == ()
    sliced = gpu_machine(gpus=(replace(gpu_machine().gpus[0], is_mig=True),))
    assert [f.name for f in diagnose_machine(sliced)] == ["sliced-gpu"]
    assert [f.name for f in diagnose_machine(gpu_machine(), ["LD_LIBRARY_PATH"])] == [
        "library-path-set"
    ]


def with_gpus(*changes):
    return gpu_machine(gpus=tuple(replace(gpu_machine().gpus[0], **one) for one in changes))


UNWELL = {
    "memory-errors": ({}, {"num_memory_errors": 2}),
    "lost-lanes": ({}, {"pcie_lanes_now": 4}),
    "clock-held-back": ({}, {"throttle_reasons": ("power limit", "power brake")}),
    "dead-nvlink": ({}, {"num_nvlinks": 12}),
    "shared-gpu": ({}, {"num_other_processes": 2}),
}


@pytest.mark.parametrize("name", UNWELL)
def test_a_gpu_that_is_unwell_is_named_by_its_number(name):
    (finding,) = diagnose_machine(with_gpus(*UNWELL[name]))
    assert finding.name == name
    assert [line.split(" (")[0] for line in finding.proof] == ["this machine · GPU 1"]


def test_a_limit_that_somebody_set_is_no_fault():
    assert diagnose_machine(with_gpus({"throttle_reasons": ("power limit",)})) == ()
    assert diagnose_machine(with_gpus({"num_memory_errors": 0, "pcie_lanes_now": 16})) == ()


def test_links_are_held_against_the_catalogue():
    device = catalog_device("H100", memory_bytes=80e9, fabric="nvlink4")
    device = replace(device, pcie_bytes_per_s=64e9)
    apart = with_gpus({"num_nvlinks": 0}, {"num_nvlinks": 0})
    assert diagnose_machine(apart) == ()
    assert [f.name for f in diagnose_machine(apart, device=device)] == ["dead-nvlink"]
    slow = with_gpus({"pcie_generation": 3})
    (finding,) = diagnose_machine(slow, device=device)
    assert finding.name == "slow-slot"
    assert "15.8 GB/s of 64.0 GB/s" in finding.proof[0]
    assert diagnose_machine(gpu_machine(), device=device) == ()


def test_tools_that_are_not_there_or_hang_say_nothing():
    tools = [
        ("no-such-tool-here",),
        ("sleep", "600"),
        ("echo", "Unable to open /dev/kfd read-write"),
    ]
    text = tool_output(tools, timeout_s=3.0)
    assert [f.name for f in diagnose_output(text, cpu_machine())] == ["rocm-permission"]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("loading\nKeyError: 'image'\nbye\n", "KeyError: 'image'"),
        ("2026-01-01 ERROR worker died\n", "2026-01-01 ERROR worker died"),
        ("Epoch 1: error 0.31\nall well\n", ""),
    ],
)
def test_a_log_of_no_known_cause_still_says_how_it_ended(text, ends):
    assert last_error(text) == ends
    assert diagnose_output(text, cpu_machine()) == ()
