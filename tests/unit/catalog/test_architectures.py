"""What follows from a generation stands in one place, and users add one in a file of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.catalog.architectures import shipped_generations
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernel_maturity import first_years
from paceline.prediction.kernels.attention_generations import log10_slower

TORCH = builtin_calibration().constants["frameworks"]["torch"]
OWN = """
generations:
  - {architecture: Rubin, code: "13.0", like: "10.0", first_device_year: 2026,
     attention_slowdown: {flash: 3.0}}
devices:
  - {name: R100, architecture: Rubin, compute_capability: "13.0", num_sms: 200,
     peak_flop_per_s: {fp16: 4.0e15}, memory_bytes: 2.88e11, memory_bytes_per_s: 1.3e13}
"""


def own(tmp_path: Path, text: str):
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    return load_catalog([path])


def test_a_new_architecture_is_an_entry_and_its_devices(tmp_path: Path) -> None:
    catalog = own(tmp_path, OWN)
    table = DeviceTable.from_devices([find_device(catalog, n) for n in ("R100", "b200")])
    assert first_years(table.generations).tolist() == [2026, 2024]
    new, known = table.generations
    assert new.rates == known.rates
    slower = 10 ** log10_slower(table, Configuration(attention="flash-2"), TORCH)
    assert slower.tolist() == pytest.approx([3.0, 2.3])


def test_an_entry_of_a_known_code_replaces_it(tmp_path: Path) -> None:
    text = "generations: [{architecture: Hopper, code: '9.0', attention_slowdown: {flash: 1.2}}]"
    h100 = find_device(own(tmp_path, text), "h100")
    assert h100.generation.attention_slowdown["flash"] == 1.2
    assert h100.generation.first_device_year is None


def test_what_an_entry_is_like_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"77\.0"):
        own(tmp_path, "generations: [{architecture: Rubin, code: '13.0', like: '77.0'}]")


def test_no_attention_is_faster_without_a_fused_kernel() -> None:
    for one in shipped_generations():
        assert one.attention_slowdown["memory-efficient"] >= one.attention_slowdown["flash"]
    table = DeviceTable.from_devices(load_catalog().devices)
    plain = log10_slower(table, Configuration(attention="math"), TORCH)
    for family in ("flash", "vendor", "memory-efficient"):
        assert (plain >= log10_slower(table, Configuration(attention=family), TORCH)).all()


def test_every_stated_fact_of_a_generation_has_a_source() -> None:
    import tomllib
    from importlib import resources

    path = resources.files("paceline.catalog") / "data" / "architectures.toml"
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["generation"]:
        told = " ".join(one["fact"] for one in entry.get("sources", ()))
        for fact in ("num_lanes", "batched_tile", "attention_slowdown"):
            assert fact not in entry or fact in told, (entry["code"], fact)
        assert all(rate["source"] for rate in entry.get("rates", ()))


def test_newer_releases_take_the_vendors_kernels_where_flash_attention_2_is_slower() -> None:
    catalog = load_catalog()
    names = ("A100 SXM4 80GB", "H100 SXM5 80GB", "B200", "RTX 4090")
    table = DeviceTable.from_devices([find_device(catalog, name) for name in names])

    def slower(*libraries: str, attention: str = "flash") -> list[float]:
        how = Configuration(attention=attention, libraries=libraries)
        return (10 ** log10_slower(table, how, TORCH)).tolist()

    newest, old = slower(), slower("torch==2.10.1")
    assert [a < b for a, b in zip(newest, old, strict=True)] == [False, True, True, False]
    assert old == slower(attention="flash-2")
    assert slower("torch==2.11") == newest
