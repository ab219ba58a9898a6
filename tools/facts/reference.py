"""Convert a folder of reference tables into the catalogue's own data files.

Usage: PYTHONPATH=tools python -m facts.reference FOLDER [OUTPUT_FOLDER]

Reads ``devices.csv``, ``offers.csv``, ``interconnects.csv`` and ``onprem.csv`` in the units of
the reference (GB, TFLOPS, Gbit/s, percent) and writes ``devices.csv``, ``offers.csv``,
``links.csv`` and ``ownership.csv`` in SI units, one source and confidence per row. The project's
own choices (default variants, latencies nobody publishes) come from ``reference.toml``.
"""

from __future__ import annotations

import csv
import math
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

Row = dict[str, str]

DATA_FOLDER = Path(__file__).resolve().parents[2] / "src/paceline/catalog/data"
CHOICES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

PCIE_LANE_BYTES_PER_S = {2: 0.5e9, 3: 0.9846e9, 4: 1.9692e9, 5: 3.9385e9, 6: 7.5625e9}
RECALLED = (
    "vendor datasheet or white paper (recalled, not re-read unless another source above covers it)"
)


def si(text: str, factor: float) -> str:
    """``text`` times ``factor`` without float noise; an empty cell stays empty."""
    if not text.strip():
        return ""
    value = float(f"{float(text) * factor:.12g}")
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows that all have the keys of the first."""
    rows = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_devices(path: Path, rows: Iterable[Row], made_by: str) -> None:
    """Replace the rows of `devices.csv` that one tool made; facts that others added stay."""
    old = read_rows(path) if path.exists() else []
    known = {row["name"]: row for row in old}
    mine = {row["name"]: _joined(known.get(row["name"], {}), row, made_by) for row in rows}
    kept = [row for row in old if row["made_by"] != made_by and row["name"] not in mine]
    order = {name: number for number, name in enumerate(known)}
    both = sorted([*kept, *mine.values()], key=lambda row: order.get(row["name"], len(order)))
    columns = list(dict.fromkeys(name for row in both for name in row))
    write_rows(path, [{name: row.get(name, "") for name in columns} for row in both])


def _joined(known: Row, row: Row, made_by: str) -> Row:
    """A row over what the table has, where facts and sources that others added stay."""
    stated = {name: text for name, text in row.items() if text or name not in known}
    if known.get("source", "").startswith(row["source"]):
        stated |= {"source": known["source"], "read_on": known["read_on"]}
    return {**known, **stated, "made_by": made_by}


# ---------------------------------------------------------------- devices

_BRANDS = re.compile(r"\b(GeForce|Tesla|Radeon|Instinct|NVIDIA|Intel|AMD|AWS)\b ?")
_VARIANT = re.compile(r"\b(\d+ ?GB|PCIe|SXM\d?|NVL|Workstation|Server)\b")


def family_of(name: str) -> str:
    """The name that variants share: no brand, memory size, form factor or remark."""
    without_remark = name if name in CHOICES["keep_remark"] else re.sub(r"\s*\(.*?\)", "", name)
    bare = _VARIANT.sub("", _BRANDS.sub("", without_remark))
    return re.sub(r"\s+", " ", bare).strip()


def default_names(names_by_family: Mapping[str, list[str]]) -> set[str]:
    """A lone variant is its family's default; others are chosen in the choices file."""
    lone = {names[0] for names in names_by_family.values() if len(names) == 1}
    return lone | set(CHOICES["default_variants"].values())


def convert_devices(rows: list[Row]) -> list[Row]:
    """Devices in SI units, each with its family and whether it stands for it."""
    families: dict[str, list[str]] = {}
    for row in rows:
        families.setdefault(family_of(row["name"]), []).append(row["name"])
    defaults = default_names(families)
    return [convert_device(row, is_default=row["name"] in defaults) for row in rows]


def convert_device(row: Row, *, is_default: bool) -> Row:
    """One device."""
    checked, added = row["checked_fields"].strip(), CHOICES["added_facts"].get(row["name"], {})
    gen, lanes = row["pcie_gen"], row["pcie_lanes"]
    pcie = str(PCIE_LANE_BYTES_PER_S[int(float(gen))] * int(float(lanes))) if gen and lanes else ""
    return {
        "name": row["name"],
        "family": family_of(row["name"]),
        "is_default_variant": "yes" if is_default else "no",
        "vendor": row["vendor"],
        "architecture": row["architecture"],
        "kind": device_kind(row),
        "device_class": row["class"],
        "compute_capability": matching(r"\d+\.\d", row["compute_capability"]),
        "gfx_target": matching(r"gfx\w+", row["compute_capability"]),
        "year": si(row["year"], 1),
        "num_sms": si(row["sm_count"], 1),
        "boost_clock_hz": si(row["boost_clock_mhz"], 1e6),
        **peaks(row),
        "memory_bytes": si(row["memory_gb"], 1e9),
        "memory_type": row["memory_type"],
        "memory_bytes_per_s": si(row["memory_bandwidth_gbs"], 1e9),
        "l2_bytes": si(row["l2_cache_mb"], 2**20),
        "tdp_w": si(row["tdp_w"], 1),
        "pcie_bytes_per_s": si(pcie, 1),
        "fabric": fabric_of(row),
        "fabric_bytes_per_s": si(row["nvlink_bandwidth_gbs_total"], 0.5e9),
        "form_factor": row["form_factor"],
        "cooling": row["cooling"],
        "price_usd": si(row["street_or_list_price_usd"], 1),
        "price_on": month(row["price_date"]),
        "measured_bf16_flop_per_s": si(row["measured_bf16_matmul_tflops"], 1e12),
        "source": row["source"].replace(RECALLED, "vendor data sheet (recalled)"),
        "read_on": "2026-11-20",
        "confidence": confidence_of(row),
        "checked_fields": checked,
        "note": row["note"],
        **added,
    }  # fmt: skip


def confidence_of(row: Row) -> str:
    """``checked`` where a second source agrees, ``recalled`` where nothing was read again."""
    if row.get("checked_fields", "").strip():
        return "checked"
    return "recalled" if "recalled" in row["source"] + row["note"] else "read"


def device_kind(row: Row) -> str:
    """``cpu``, ``gpu``, ``tpu`` or ``npu``."""
    if row["device_kind"] == "cpu":
        return "cpu"
    if row["vendor"] == "Google":
        return "tpu"
    return "npu" if row["architecture"].startswith(("Gaudi", "NeuronCore")) else "gpu"


def peaks(row: Row) -> Row:
    """Dense peaks. ``fp16`` is the matrix rate, or the vector rate where that beats FP32."""
    fp32, vector = row["fp32_tflops"], row["fp16_tflops_vector"]
    matrix = row["fp16_tensor_tflops_dense"]
    if not matrix and vector and float(vector) > float(fp32 or "inf"):
        matrix = vector
    cells = {
        "fp32": fp32, "tf32": row["tf32_tflops_dense"], "fp16": matrix,
        "bf16": row["bf16_tensor_tflops_dense"], "fp8": row["fp8_tensor_tflops_dense"],
        "int8": row["int8_tops_dense"], "fp16_vector": vector,
    }  # fmt: skip
    return {f"peak_{key}_flop_per_s": si(cell, 1e12) for key, cell in cells.items()}


def fabric_of(row: Row) -> str:
    """Canonical name of the device-to-device fabric; a bridge joins PCIe cards in pairs."""
    generation = row["nvlink_gen"]
    if not generation:
        return ""
    if not generation.isdigit():
        return generation.lower().replace("-v", "")
    if row["vendor"] == "AMD":
        return "infinity-fabric"
    return f"nvlink{generation}" + ("-bridge" if row["form_factor"].startswith("PCIe") else "")


def matching(pattern: str, text: str) -> str:
    """The text where it has that form, else nothing."""
    return text if re.fullmatch(pattern, text) else ""


def month(text: str) -> str:
    """First day of a month; empty where the text is none."""
    return f"{text}-01" if re.fullmatch(r"\d{4}-\d{2}", text) else ""


# ---------------------------------------------------------------- offers


def convert_offers(rows: list[Row]) -> list[Row]:
    """Offers in SI units."""
    return [convert_offer(row) for row in rows]


def convert_offer(row: Row) -> Row:
    """One offer."""
    low, high = CHOICES["interruption_bands"].get(row["spot_interruption_band"], ["", ""])
    retired = row["retired"].startswith("yes")
    note, price_text = row["note"], row["price_date"]
    if price_text and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", price_text):
        note = f"{note}; price dated {price_text}".lstrip("; ")
    return {
        "cloud": row["cloud"].replace(" ", "-"),
        "instance_type": row["instance_type"],
        "region": row["region"].split(" (")[0],
        "device_name": row["device_key"] or CHOICES["offer_devices"].get(row["accelerator"], ""),
        "accelerator": row["accelerator"],
        "num_devices": device_count(row),
        "num_vcpus": row["vcpus"].split("-")[0],
        "host_memory_bytes": si(row["memory_gb"].split("-")[0], 1e9),
        "interconnect": row["interconnect"],
        "network_bytes_per_s": si(row["network_gbps"], 1e9 / 8),
        "network_kind": network_kind(row["rdma"]),
        "usd_per_hour": row["price_usd_per_hour_on_demand"],
        "spot_usd_per_hour": row["price_usd_per_hour_spot"],
        "priced_on": first_possible_day(price_text),
        "spot_on": first_possible_day(row["spot_date"]),
        "lowest_usd_per_hour": row["price_min_usd_per_hour"],
        "lowest_region": row["price_min_region"],
        "price_history": row["price_history"],
        "interruption_low_frac_per_month": low,
        "interruption_high_frac_per_month": high,
        "status": "retired" if retired else "unknown" if row["retired"] == "unknown" else "listed",
        "ends_on": end_of_sale(row),
        "is_price_complete": "no" if "GPU part only" in note else "yes",
        "source": row["source"],
        "confidence": confidence_of(row),
        "note": note,
    }  # fmt: skip


def device_count(row: Row) -> str:
    """Devices in the machine; a CPU offer has the share of a socket that its vCPUs are."""
    if not row["accelerator"].startswith("none ("):
        return si(row["accelerator_count"], 1)
    return si(row["vcpus"], 1 / CHOICES["vcpus_per_socket"][row["device_key"]])


def network_kind(rdma: str) -> str:
    """The fabric that a column on RDMA names."""
    found = re.search(r"EFA|IB|InfiniBand|RoCE|TCPXO|TCPX", rdma)
    kinds = {"EFA": "efa", "IB": "infiniband", "InfiniBand": "infiniband", "RoCE": "roce",
             "TCPXO": "tcpxo", "TCPX": "tcpx"}  # fmt: skip
    return kinds[found.group(0)] if found else ""


def first_possible_day(text: str) -> str:
    """The earliest day the text can mean; empty when it spans years (undated)."""
    found = re.match(r"(\d{4})(?:-(\d{2}))?(?:-(\d{2}))?", text)
    if found is None or " to " in text:
        return ""
    return "-".join(part or "01" for part in found.groups())


def end_of_sale(row: Row) -> str:
    """Day the provider stopped, or announced to stop, selling the type."""
    if not re.search("retire", row["retired"] + row["note"]) and not row["retired"].startswith(
        "yes"
    ):
        return ""
    announced = re.search(r"retirement (?:announced for )?(\d{4}-\d{2}(?:-\d{2})?)", row["note"])
    retired = re.search(r"\((?:by )?(\d{4}-\d{2}-\d{2})", row["retired"])
    found = retired or announced
    return first_possible_day(found.group(1)) if found else ""


# ---------------------------------------------------------------- links


def convert_links(rows: list[Row]) -> list[Row]:
    """Links with a rate, and the project's own; others report a measurement alone."""
    own: list[Row] = CHOICES["added_links"]
    return [convert_link(row) for row in rows if link_rate(row)] + own


def link_rate(row: Row) -> str:
    """Rate per direction of a node, else of a device."""
    return row["per_direction_gbs_node"] or row["per_direction_gbs_per_device"]


def convert_link(row: Row) -> Row:
    """One link."""
    kind = CHOICES["link_kinds"].get(row["link_type"], row["link_type"])
    latency = latency_of(row, kind)
    return {
        "name": row["id"].replace("_", "-"),
        "scope": CHOICES["link_scopes"][row["scope"]],
        "kind": kind,
        "bytes_per_s": si(link_rate(row), 1e9),
        "latency_s": latency[0],
        "measured_bus_bytes_per_s": measured_bus(row),
        "measured_wire_frac": row["ratio_measured_to_spec"],
        "reduces_in_switch": "yes" if "nvls" in row["id"] else "no",
        "domain_devices": str(CHOICES["domain_devices"].get(row["id"].replace("_", "-"), "")),
        "joins": row["machine_or_fabric"],
        "source": row["source"],
        "confidence": "recalled" if re.search("recalled|estimate", row["source"]) else "read",
        "note": "; ".join(filter(None, (row["note"], measured_note(row), latency[1]))),
    }


def measured_note(row: Row) -> str:
    """What was measured on a link, by whom, in words."""
    parts = (
        row["measured_collective"],
        row["measured_busbw_gbs"] and f"{row['measured_busbw_gbs']} GB/s",
        row["measured_setup"],
    )
    return " ".join(filter(None, parts))


def latency_of(row: Row, kind: str) -> tuple[str, str]:
    """One-way latency and what is assumed about it."""
    numbers = [float(n) for n in re.findall(r"[\d.]+", row["latency_us"])]
    if numbers and "collective" not in row["note"]:
        return si(str(sum(numbers) / len(numbers)), 1e-6), ""
    choice = CHOICES["latencies_s"][kind]
    return si(str(choice["latency_s"]), 1), f"latency: {choice['source']}"


def measured_bus(row: Row) -> str:
    """Bus bandwidth; of a range, its geometric mean."""
    cell = row["measured_busbw_gbs"]
    if not row["measured_collective"].startswith("all_reduce") or "node" in cell:
        return ""
    numbers = [float(n) for n in re.findall(r"[\d.]+", cell.split(";")[0])]
    return si(f"{math.prod(numbers) ** (1 / len(numbers)):.4g}", 1e9) if numbers else ""


# ---------------------------------------------------------------- ownership


UNITS = {
    "kW": ("w", 1e3), "percent": ("frac", 0.01), "percent of total": ("frac", 0.01),
    "percent of price": ("frac_per_year", 0.01), "percent/year": ("frac_per_year", 0.01),
    "USD/kWh": ("usd_per_kwh", 1), "USD/kW/month": ("usd_per_kw_month", 1), "years": ("years", 1),
    "USD": ("usd", 1), "USD/GPU": ("usd_per_device", 1), "ratio": ("ratio", 1),
    "USD/year": ("usd_per_year", 1), "months": ("months", 1),
}  # fmt: skip


def convert_ownership(rows: list[Row]) -> list[Row]:
    """Costs of owning in SI units."""
    return [convert_ownership_fact(row) for row in rows]


def convert_ownership_fact(row: Row) -> Row:
    """One cost, its unit in the name."""
    unit, factor = UNITS[row["unit"]]
    return {
        "category": row["category"],
        "item": row["item"],
        "value": si(row["value"], factor),
        "unit": unit,
        "low": si(row["low"], factor),
        "high": si(row["high"], factor),
        "region": row["region"],
        "dated": first_possible_day(row["date"]),
        "source": row["source"],
        "confidence": row["confidence"],
        "note": row["note"],
    }


def main(arguments: list[str]) -> None:
    """Write the four tables."""
    folder = Path(arguments[0])
    out = Path(arguments[1]) if len(arguments) > 1 else DATA_FOLDER
    out.mkdir(parents=True, exist_ok=True)
    write_devices(
        out / "devices.csv", convert_devices(read_rows(folder / "devices.csv")), "reference"
    )
    write_rows(out / "offers.csv", convert_offers(read_rows(folder / "offers.csv")))
    write_rows(out / "links.csv", convert_links(read_rows(folder / "interconnects.csv")))
    write_rows(out / "ownership.csv", convert_ownership(read_rows(folder / "onprem.csv")))


if __name__ == "__main__":
    main(sys.argv[1:])
