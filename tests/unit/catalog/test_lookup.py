from __future__ import annotations

import re

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import (
    devices_called,
    find_device,
    find_devices,
    find_offer,
    parse_device_count,
    variant_note,
)
from paceline.errors import InvalidInputError, UnknownNameError

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("a100", "A100 SXM4 80GB"),
        ("A100-80GB", "A100 SXM4 80GB"),
        ("a100-40gb", "A100 SXM4 40GB"),
        ("A100 PCIe", "A100 PCIe 80GB"),
        ("A40 PCIe", "A40"),
        ("RX 580", "Radeon RX 580"),
        ("flex 170", "Data Center GPU Flex 170"),
        ("h100", "H100 SXM5 80GB"),
        ("h100-sxm", "H100 SXM5 80GB"),
        ("rtx 3090", "GeForce RTX 3090"),
        ("RTX4090", "GeForce RTX 4090"),
        ("geforce rtx 4090", "GeForce RTX 4090"),
        ("4090", "GeForce RTX 4090"),
        ("rtx 4090 laptop", "GeForce RTX 4090 Laptop"),
        ("3080", "GeForce RTX 3080 10GB"),
        ("v100-16gb", "Tesla V100 SXM2 16GB"),
        ("V100 32GB", "Tesla V100 SXM2 32GB"),
        ("K80", "Tesla K80 (one of two GPUs)"),
        ("t4", "Tesla T4"),
        ("vega 64", "Radeon RX Vega 64"),
        ("6900xt", "Radeon RX 6900 XT"),
        ("MI300X", "Instinct MI300X"),
        ("tpu v4", "TPU v4 (per chip)"),
        ("trn1", "Trainium1 (per chip)"),
        ("m1 max", "Apple M1 Max"),
        ("graviton3", "AWS Graviton3"),
        ("NVIDIA A10G", "A10G"),
    ],
)
def test_forgiving_names(typed: str, meant: str) -> None:
    assert find_device(CATALOG, typed).name == meant


@pytest.mark.parametrize(
    ("reported", "meant"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
        ("NVIDIA H100 NVL", "H100 NVL 94GB"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-16GB", "Tesla V100 SXM2 16GB"),
        ("Tesla P100-PCIE-16GB", "Tesla P100 PCIe 16GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop"),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "GeForce RTX 2080 Max-Q"),
        ("Intel(R) Arc(TM) A770 Graphics", "Arc A770 16GB"),
        ("AMD Instinct MI250X/MI250", "Instinct MI250X"),
        ("MacBook Pro M2 Pro", "Apple M2 Pro"),
        ("a100-40", "A100 SXM4 40GB"),
        ("rtx 4060 ti 8", "GeForce RTX 4060 Ti 8GB"),
    ],
)
def test_names_that_drivers_report(reported: str, meant: str) -> None:
    assert find_device(CATALOG, reported).name == meant


def test_every_device_is_found_by_its_own_name_and_family() -> None:
    for device in CATALOG.devices:
        assert find_device(CATALOG, device.name) is device
        assert device in find_devices(CATALOG, device.family)


def test_a_family_is_all_its_variants() -> None:
    names = {d.name for d in find_devices(CATALOG, "a100")}
    assert names == {"A100 PCIe 40GB", "A100 PCIe 80GB", "A100 SXM4 40GB", "A100 SXM4 80GB"}


@pytest.mark.parametrize("name", ["RTX4900", "A1000000", "", "  ", "'; drop table", "h100:8"])
def test_unknown_names_are_errors_that_point_on(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_device(CATALOG, name)
    assert "paceline devices" in caught.value.hint


def test_a_miss_names_its_neighbours() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_device(CATALOG, "RTX4900")
    assert caught.value.hint.startswith("did you mean `RTX 4090`")


def test_a_name_without_its_power_names_the_variants() -> None:
    with pytest.raises(InvalidInputError) as caught:
        find_device(CATALOG, "MX450")
    variants = [one.name for one in CATALOG.devices if "MX450" in one.name]
    assert len(variants) > 1
    assert all(name in str(caught.value.hint) for name in variants)


@pytest.mark.parametrize("name", ["g5.xlarge", "AWS/p4d.24xlarge"])
def test_a_machine_for_rent_is_told_by_what_is_in_it(name: str) -> None:
    inside = find_offer(CATALOG, name)
    with pytest.raises(UnknownNameError, match="for rent") as caught:
        find_device(CATALOG, name)
    assert f"--device '{inside.device_name}'" in caught.value.hint
    assert inside.name in caught.value.hint


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("h100:8", ("h100", 8)),
        ("8x h100", ("h100", 8)),
        ("rtx 3090", ("rtx 3090", 1)),
        (" T4 ", ("T4", 1)),
        ("DGX-1 (8x V100 16GB)", ("V100 16GB", 8)),
        ("Lambda Scalar [4x RTX A6000]", ("RTX A6000", 4)),
        ("NVIDIA DGX H100", ("NVIDIA DGX H100", 8)),
        ("DGX Station A100", ("DGX Station A100", 4)),
        ("DGX-2", ("DGX-2", 16)),
        ("GB200 NVL72", ("GB200 NVL72", 72)),
        ("TPU v7x-64", ("TPU v7x Ironwood (per chip)", 32)),
    ],
)
def test_counts(text: str, parsed: tuple[str, int]) -> None:
    assert parse_device_count(text) == parsed


@pytest.mark.parametrize(
    "name", ["Radeon RX Vega 64", "Tesla V100 SXM2 16GB", "GeForce RTX 2050 Max-Q"]
)
def test_a_name_with_an_x_before_a_number_is_no_count(name: str) -> None:
    assert parse_device_count(name) == (name, 1)


@pytest.mark.parametrize("text", ["h100:0", "", ":8"])
def test_bad_counts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_device_count(text)


def test_every_name_of_the_catalogue_survives_count_parsing() -> None:
    for device in CATALOG.devices:
        assert parse_device_count(device.name) == (device.name, 1)
        assert parse_device_count(f"{device.name}:4") == (device.name, 4)


def test_offers_are_found_by_key_or_type() -> None:
    assert find_offer(CATALOG, "aws/p4d.24xlarge") is find_offer(CATALOG, "P4D.24xlarge")
    with pytest.raises(UnknownNameError) as caught:
        find_offer(CATALOG, "p4d.24xl")
    assert "p4d.24xlarge" in caught.value.hint


@pytest.mark.parametrize("name", ["AMD RTX 4090", "Intel MI300X", "NVIDIA Radeon RX 7900 XTX"])
def test_a_maker_of_other_devices_is_no_brand_of_this_one(name: str) -> None:
    with pytest.raises(UnknownNameError, match="no device"):
        find_device(CATALOG, name)


@pytest.mark.parametrize("kind", ["cpu", "GPU", "cuda", "rocm", "mps", "tpu", "xpu", "hpu"])
def test_a_kind_of_device_leads_to_one_of_it(kind: str) -> None:
    with pytest.raises(UnknownNameError, match="is a kind of device") as caught:
        find_device(CATALOG, kind)
    (example,) = re.findall(r"--device '([^']+)'", caught.value.hint)
    assert find_devices(CATALOG, example)


@pytest.mark.parametrize("remark", ["DGX A100", "AWS p2/p3"])
def test_words_of_a_remark_alone_are_not_the_device_that_has_it(remark: str) -> None:
    assert any(remark in device.name for device in CATALOG.devices)
    try:
        found = find_devices(CATALOG, remark)
    except UnknownNameError:
        return
    assert not any(remark in device.name for device in found)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("AMD EPYC 9654 96-Core Processor", "AMD EPYC 9654 (Genoa)"),
        ("Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", "Intel Xeon Platinum 8358 (Ice Lake)"),
        ("13th Gen Intel(R) Core(TM) i7-13700K", "Intel Core i7-13700K (Raptor Lake)"),
        ("AMD Instinct MI325X OAM", "Instinct MI325X"),
        ("Tesla K40t", "Tesla K40"),
        ("HL-225D", "Gaudi 2 (HL-225)"),
        ("DGX A100", "A100 SXM4 80GB"),
    ],
)
def test_names_of_systems_and_tables_are_read_where_typed(typed: str, meant: str) -> None:
    assert find_device(CATALOG, typed).name == meant


@pytest.mark.parametrize("name", ["AMD A100", "Intel MI300X", "A100 SXM4 24GB"])
def test_a_device_is_refused_where_a_word_of_the_name_does_not_hold(name: str) -> None:
    with pytest.raises(UnknownNameError):
        find_device(CATALOG, name)


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [("6x L40S", "L40S", 6), ("H200x4", "H200", 4), ("v4-16", "TPU v4", 8)],
)
def test_a_count_is_read_where_devices_are_counted_and_refused_elsewhere(
    text: str, name: str, count: int
) -> None:
    bare, number = parse_device_count(text)
    assert (find_device(CATALOG, bare), number) == (find_device(CATALOG, name), count)
    with pytest.raises(UnknownNameError, match=f"{count} devices"):
        find_device(CATALOG, text)


def test_a_slice_is_a_device_that_is_found_by_its_own_name() -> None:
    part = find_device(CATALOG, "NVIDIA H200 MIG 3g.71gb")
    assert find_device(CATALOG, part.name) == part


@pytest.mark.parametrize(
    ("typed", "whole"),
    [("A100 MIG 1g.5gb", "A100 SXM4 40GB"), ("H100 NVL MIG 2g.24gb", "H100 NVL 94GB")],
)
def test_a_slice_is_of_the_variant_that_has_it(typed: str, whole: str) -> None:
    assert find_device(CATALOG, typed).name.startswith(f"{whole} MIG")


@pytest.mark.parametrize(
    "typed", ["A30 MIG 4g.40gb", "A100 SXM4 80GB MIG 1g.5gb", "MI300X 1g.24gb"]
)
def test_a_slice_that_a_device_has_not_is_refused(typed: str) -> None:
    with pytest.raises(UnknownNameError):
        find_device(CATALOG, typed)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("RTX PRO 4000", "RTX PRO 4000 Blackwell"),
        ("RTX PRO 6000 Max-Q", "RTX PRO 6000 Blackwell Max-Q"),
        ("RTX A3000", "RTX A3000 Laptop"),
        ("RTX 3500 Ada", "RTX 3500 Laptop Ada"),
        ("RTX A2000", "RTX A2000"),
    ],
)
def test_a_name_that_leaves_words_out_is_the_plainest_device_that_has_it(
    name: str, device: str
) -> None:
    assert find_device(load_catalog(), name).name == device


@pytest.mark.parametrize("name", ["RTX PRO", "RTX PRO 3000", "RTX 4095", "Ryzen 7", "AMD RTX 4090"])
def test_words_that_no_device_or_many_have_are_refused(name: str) -> None:
    with pytest.raises(UnknownNameError):
        find_device(load_catalog(), name)


@pytest.mark.parametrize("module", ["Instinct MI250", "Instinct MI250X"])
def test_a_gpu_that_software_sees_is_half_of_its_module(module: str) -> None:
    whole, half = (find_device(CATALOG, name) for name in (module, f"{module} GCD"))
    assert half.name == f"{module} GCD"
    for fact in ("num_sms", "memory_bytes", "memory_bytes_per_s", "l2_bytes", "tdp_w"):
        assert 2 * getattr(half, fact) == getattr(whole, fact)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("MI250X (1 GCD)", "Instinct MI250X GCD"),
        ("AMD Instinct MI250 (one GCD)", "Instinct MI250 GCD"),
        ("one GCD of an MI250X", "Instinct MI250X GCD"),
        ("half an MI250", "Instinct MI250 GCD"),
        ("MI250X (2 GCDs)", "Instinct MI250X"),
    ],
)
def test_one_of_two_dies_is_not_taken_for_the_module(name: str, device: str) -> None:
    assert find_device(CATALOG, name).name == device


def test_a_die_that_is_in_no_table_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        find_device(CATALOG, "MI300X (1 GCD)")


@pytest.mark.parametrize(
    ("name", "plain"), [("MI250X", "MI250X GCD"), ("orin nano 8gb", "Jetson Orin Nano Super")]
)
def test_what_a_name_leaves_open_is_told_with_what_was_taken(name: str, plain: str) -> None:
    device = find_device(CATALOG, name)
    assert device.name in variant_note(CATALOG, name, device)
    assert not variant_note(CATALOG, plain, find_device(CATALOG, plain))


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("i7-12700", "Core i7-12700K"), ("i7-12700F", "Core i7-12700K"),
        ("i5-13600KF", "Core i5-13600K"), ("Ryzen 7 5800", "Ryzen 7 5800X"),
        ("Ryzen 9 7950X3D", "Ryzen 9 7950X"), ("EPYC 9654P", "EPYC 9654"),
        ("Ryzen 5600", "Ryzen 5 5600X"), ("RX 5600", "RX 5600 XT"),
    ],
)  # fmt: skip
def test_a_suffix_that_is_left_out_or_another_gives_the_nearest_and_says_so(name, taken):
    device = find_device(CATALOG, name)
    assert device.family == taken
    assert device.name in variant_note(CATALOG, name, device)
    assert not variant_note(CATALOG, device.family, device)


def test_a_plain_number_is_no_laptops_processor_and_a_laptops_no_desktops():
    assert find_device(CATALOG, "i7-12700H").family == "Core i7-12700H"
    with pytest.raises(UnknownNameError):
        find_device(CATALOG, "i5-13600H")
    with pytest.raises(UnknownNameError):  # More cores than a 6248.
        find_device(CATALOG, "Xeon Gold 6248R")


def test_a_processor_that_is_not_known_is_near_to_processors():
    with pytest.raises(UnknownNameError) as caught:
        find_device(CATALOG, "i5-12600")
    assert "MI100" not in caught.value.hint
    assert "Core i5" in caught.value.hint


@pytest.mark.parametrize(("part", "least"), [("jetson", 8), ("xeon", 10), ("super", 5)])
def test_a_part_of_names_lists_all_that_have_it_and_names_no_device(part, least):
    catalog = load_catalog()
    assert len(devices_called(catalog, part)) >= least
    with pytest.raises(UnknownNameError):
        find_device(catalog, part)
    assert devices_called(catalog, "a100") == find_devices(catalog, "a100")
    with pytest.raises(UnknownNameError):
        devices_called(catalog, "no such thing")
