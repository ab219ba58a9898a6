"""Electricity and emissions of the first choice."""

import re

import pytest

import paceline

#: Electricity, its overhead, emissions and the intensity of the grid.
SAID = re.compile(
    r"(?P<kwh>[\d.,]+) kWh .*\(PUE (?P<pue>[\d.]+)\): (?P<kg>[\d.,]+) kg of CO2 at (?P<g>\d+) g/kWh"
)


def said(**asked: object) -> dict[str, float]:
    plan = paceline.plan("resnet50", device="A100 SXM4 40GB", max_devices=8, **asked)
    found = SAID.match(plan.emissions)
    assert found, plan.emissions
    first = plan.choices[0]
    assert first.power_w is not None
    assert first.time_s is not None
    read = {name: float(text.replace(",", "")) for name, text in found.groupdict().items()}
    return read | {"devices_kwh": first.power_w * first.time_s.mid / 3.6e6}


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_machines_and_site_take_more_than_devices_and_emissions_are_the_grid_s(cloud: str) -> None:
    found = said(cloud=cloud, epochs=90)
    # A busy server of eight draws at most twice what its devices do (NVIDIA's nameplates).
    assert 1.0 < found["kwh"] / found["pue"] / found["devices_kwh"] < 2.0
    assert found["kg"] == pytest.approx(found["kwh"] * found["g"] / 1e3, rel=0.02)


def test_twice_the_work_takes_twice_the_electricity() -> None:
    once, twice = (said(cloud="aws", epochs=epochs)["kwh"] for epochs in (90, 180))
    # Setting a machine up is counted once.
    assert 1.8 < twice / once <= 2.02
