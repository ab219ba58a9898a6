"""Device names as tables write them, memory and count telling variants apart."""

import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.scoring.naming.devices import resolve_device

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("name", "memory_gb", "num_gpus", "expected"),
    [
        ("V100-SXM2-16GB (300W)", 16, 8, "Tesla V100 SXM2 16GB"),
        ("A100 80GB PCIe", 80, 1, "A100 PCIe 80GB"),
        ("A100", 40, 8, "A100 SXM4 40GB"),
        ("H100 80GB HBM3", 81559, 8, "H100 SXM5 80GB"),
        ("H200 140GB SXM", 140, 1, "H200 SXM"),
        ("AMD Instinct MI300X 192GB HBM3", 192, 8, "Instinct MI300X"),
        ("RTX 3090", 24, 1, "GeForce RTX 3090"),
        ("NVIDIA A100-SXM-80GB-500W", 40, 4, "A100 SXM4 80GB"),
        ("K80", 12, 1, "Tesla K80 (one of two GPUs)"),
    ],
)
def test_names_of_tables(name, memory_gb, num_gpus, expected):
    assert resolve_device(CATALOG, name, memory_gb, num_gpus).name == expected


def test_no_device_is_made_up():
    with pytest.raises(UnknownNameError):
        resolve_device(CATALOG, "Quantum 9000", None, 1)
    with pytest.raises(InvalidInputError, match="GB"):
        resolve_device(CATALOG, "RTX 3090", 2, 1)


@pytest.mark.parametrize(
    ("name", "profile", "count"),
    [("A100-SXM4-80GB", "1g.10gb", 7), ("A30", "1g.6gb", 4), ("H100-SXM5-80GB", "1g.10gb", 7)],
)
def test_slices_together_are_no_more_than_their_device(name: str, profile: str, count: int) -> None:
    whole = resolve_device(CATALOG, name, None, 1)
    part = resolve_device(CATALOG, f"{name} ({count}x{profile} MIG)", whole.memory_bytes / 1e9, 1)
    shares = [
        part.peak_flop_per_s["bf16"] / whole.peak_flop_per_s["bf16"],
        part.memory_bytes_per_s / whole.memory_bytes_per_s,
        part.memory_bytes / whole.memory_bytes,
    ]
    assert all(0.8 / count < share <= 1.0 / count for share in shares)
    assert part.fabric is None
