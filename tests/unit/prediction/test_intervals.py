"""Intervals widen with all that makes a step less sure, and never otherwise."""

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.device_kinds import kind_facts
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Coverage
from paceline.prediction.uncertainty.intervals import (
    UncertaintyTerms,
    framework_doubt,
    knowledge_of,
    log_sigma,
)

from .passes import device


def sigma(one, case, *, framework="torch", host_frac=0.0, unmeasured_frac=0.0, device_frac=1.0):
    doubts = UncertaintyTerms(
        framework=framework,
        host_frac=np.full((1, 1), host_frac),
        unmeasured_frac=np.full((1, 1), unmeasured_frac),
        device_frac=np.full((1, 1), device_frac),
    )
    found = log_sigma(
        DeviceTable.from_devices([one]), np.array([case], np.int8), doubts, builtin_calibration()
    )
    return float(found[0, 0])


def test_unmeasured_devices_widen_with_the_distance_and_measured_ones_do_not():
    near, far = device(), device(year=2035, tdp_w=50.0)
    found = [sigma(one, case) for case in (Coverage.MEASURED, Coverage.UNKNOWN)
             for one in (near, far)]  # fmt: skip
    assert found[0] == found[1] < found[2] < found[3]


def test_boards_whose_listed_clock_asks_for_more_power_are_less_sure():
    kept, short = (device(base_clock_hz=1.41e9 / ratio) for ratio in (1.0, 2.5))
    assert sigma(kept, Coverage.UNKNOWN) < sigma(short, Coverage.UNKNOWN)
    assert sigma(kept, Coverage.MEASURED) == sigma(short, Coverage.MEASURED)


@pytest.mark.parametrize("framework", ["torch", "legacy"])
@pytest.mark.parametrize("share", ["host_frac", "unmeasured_frac"])
def test_the_cases_keep_their_order_and_every_doubt_widens_them(framework, share):
    by_case = [
        [sigma(device(), case, framework=framework, **{share: frac}) for case in Coverage]
        for frac in (0.0, 0.5, 1.0)
    ]
    assert (np.diff(by_case, axis=1) >= 0.0).all()
    assert (np.diff(by_case, axis=0) > 0.0).all()


def test_a_framework_is_less_sure_the_fewer_groups_of_devices_it_was_measured_on():
    assert (np.diff(framework_doubt(np.arange(9))) < 0.0).all()
    groups = builtin_calibration().constants["interval"]["framework_groups"]
    assert groups["torch"] > groups["legacy"]
    assert sigma(device(), Coverage.UNKNOWN) < sigma(device(), Coverage.UNKNOWN, framework="legacy")


@pytest.mark.parametrize("name", ["TPU v5e (per chip)", "AMD EPYC 7763 (Milan)", "Radeon VII"])
def test_what_was_never_timed_on_any_device_of_a_vendor_is_less_sure_than_the_oldest_gpu(name):
    catalog, calibration = load_catalog(), builtin_calibration()
    other, old = find_device(catalog, name), find_device(catalog, "Tesla P4")
    cases = knowledge_of(DeviceTable.from_devices([other, old]), calibration)
    assert sigma(other, cases[0]) > 1.5 * sigma(old, cases[1])


def test_kernels_of_a_maker_count_as_far_as_they_fill_a_step_where_the_host_was_timed():
    catalog = load_catalog()
    radeon, apple = (find_device(catalog, name) for name in ("Instinct MI210", "Apple M2 Max"))
    full, idle = (sigma(radeon, Coverage.UNKNOWN, device_frac=frac) for frac in (1.0, 0.0))
    assert idle < full
    full, idle = (sigma(apple, Coverage.UNKNOWN, device_frac=frac) for frac in (1.0, 0.0))
    assert idle == full


def test_each_sort_of_device_has_a_row_and_a_source():
    calibration = builtin_calibration()
    rows = calibration.constants["device_kinds"]
    assert all(row["source"].strip() for row in rows)
    for kind in {(d.vendor, d.kind) for d in load_catalog().devices} | {("own", "gpu")}:
        facts = kind_facts(kind, calibration)
        assert (facts.log_sigma == 0) == (kind[0] == "NVIDIA" and kind[1] == "gpu")
