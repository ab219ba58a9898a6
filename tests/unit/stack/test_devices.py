from __future__ import annotations

import itertools

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.dtypes import PRECISIONS
from paceline.stack.devices import (
    compiler_elsewhere,
    frameworks,
    newest_stack,
    target_of,
    usable_compilers,
    usable_precisions,
    why_unsupported,
)

CATALOG = load_catalog()


def test_a_device_has_a_stack_or_a_reason_never_both() -> None:
    for device in CATALOG.devices:
        stack, reason = newest_stack(device), why_unsupported(device)
        assert (stack is None) != (reason is None), device.name
        assert usable_precisions(device) <= set(PRECISIONS), device.name


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("A100 SXM4 40GB", "cuda"),
        ("Tesla V100 SXM2 16GB", "cuda"),
        ("Instinct MI300X", "rocm"),
        ("TPU v5e (per chip)", "tpu"),
        ("AWS Graviton4", "cpu"),
        ("Jetson AGX Orin 64GB", "jetson"),
    ],
)
def test_each_kind_of_device_has_its_platform(name: str, platform: str) -> None:
    stack = newest_stack(find_device(CATALOG, name))
    assert stack is not None
    assert stack.platform == platform


def test_older_gpus_get_older_releases() -> None:
    names = ("Tesla K80 (one of two GPUs)", "Tesla V100 SXM2 16GB", "H100 SXM5 80GB")
    stacks = [newest_stack(find_device(CATALOG, name)) for name in names]
    toolkits = [float(stack.platform_version) for stack in stacks]
    assert toolkits == sorted(toolkits)


def test_a_fermi_card_is_told_that_no_build_holds_code_for_it() -> None:
    reason = why_unsupported(find_device(CATALOG, "GeForce GTX 580"))
    assert reason is not None
    assert "machine code" in reason


def test_precisions_grow_with_the_generation() -> None:
    names = ("Tesla K80 (one of two GPUs)", "Tesla V100 SXM2 16GB", "Tesla T4", "A100 SXM4 40GB",
             "H100 SXM5 80GB")  # fmt: skip
    sets = [usable_precisions(find_device(CATALOG, name)) for name in names]
    assert all(older <= newer for older, newer in itertools.pairwise(sets))
    assert "fp8" in sets[-1]
    assert "bf16" not in sets[1]


def test_superchips_sit_in_arm_machines() -> None:
    target = target_of(find_device(CATALOG, "GH200 96GB"))
    assert target is not None
    assert target.system == "linux-aarch64"


def test_a_gpu_in_the_name_tables_agrees_with_the_catalogue() -> None:
    """Two roads to one number: the stack's own GPU list and the catalogue's capability."""
    from paceline.stack.tables import load_tables

    codes = {gpu.name: gpu.target.code for gpu in load_tables().gpus if gpu.vendor == "NVIDIA"}
    both = [d for d in CATALOG.devices if d.name in codes and d.compute_capability]
    assert len(both) > 20
    assert all(codes[d.name] == d.compute_capability for d in both)


@pytest.mark.parametrize(
    ("name", "compilers"),
    [
        ("Tesla P100 SXM2 16GB", {"eager"}),
        ("Tesla V100 SXM2 16GB", {"eager", "compiled"}),
        ("Instinct MI300X", {"eager", "compiled"}),
        ("TPU v5e (per chip)", {"xla"}),
        ("GeForce GTX 580", set()),
    ],
)
def test_a_device_is_offered_the_compilers_that_its_releases_have(name: str, compilers) -> None:
    assert usable_compilers(find_device(CATALOG, name)) == compilers


@pytest.mark.parametrize("compiler", ["eager", "compiled", "xla"])
@pytest.mark.parametrize("name", ["A100 SXM4 40GB", "Tesla K80", "TPU v5e (per chip)"])
def test_whoever_runs_a_compiler_on_a_device_is_named_and_nobody_else(
    compiler: str, name: str
) -> None:
    device = find_device(CATALOG, name)
    told = compiler_elsewhere(compiler, device)
    for framework in frameworks():
        runs = compiler in usable_compilers(device, framework=framework)
        assert (framework in told.partition(":")[0].split()) == runs


def test_engines_that_no_framework_on_record_has_are_measured() -> None:
    told = compiler_elsewhere("tensorrt", find_device(CATALOG, "A100 SXM4 40GB"))
    assert "no figures of tensorrt exist" in told
    assert "`paceline measure MODEL --stack tensorrt`" in told


def test_a_new_architecture_says_in_one_entry_what_drives_it(tmp_path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("""
generations:
  - {architecture: CDNA5, code: gfx1250, like: gfx950}
devices:
  - {name: MI400, architecture: CDNA5, gfx_target: gfx1250, peak_flop_per_s: {fp16: 1.0e16},
     memory_bytes: 4.3e11, memory_bytes_per_s: 1.9e13}
""")
    target = target_of(find_device(load_catalog([own]), "MI400"))
    assert target is not None
    assert (target.platform, target.code, target.system) == ("rocm", "gfx1250", "linux-x86_64")


def test_every_gpu_of_the_catalogue_is_driven_by_something() -> None:
    assert [d.name for d in CATALOG.devices if d.kind == "gpu" and target_of(d) is None] == []
