"""Devices and offers as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date

from paceline.catalog.entities import Device, Offer
from paceline.catalog.freshness import unranked_reason
from paceline.reporting.tables import ABSENT, Table, header
from paceline.units import format_significant, format_usd

_HALF_RATES = ("bf16", "fp16")


def device_table(devices: Sequence[Device]) -> Table:
    """One row per device: memory, bandwidth, dense rates, power, year, price and its month."""
    return Table(
        columns=header(
            "device ~22+ | family -1 | class -2 | year > -3 | GB > | GB/s > | 16-bit TFLOP/s >"
            " | TF32 > -5 | FP32 > | W > | USD (seen) > -4"
        ),
        rows=tuple(_device_cells(device) for device in devices),
    )


def device_page(device: Device) -> str:
    """Everything known about one device, with where it was read; what is not known says so."""
    facts: list[tuple[str, str]] = [
        ("family", device.family),
        ("vendor", f"{device.vendor}, {device.architecture}"),
        ("class", f"{device.device_class}, {device.form_factor or 'form factor unknown'}"),
        ("year", _number(device.year, str)),
        ("compute capability", device.compute_capability or ABSENT),
        ("multiprocessors", _number(device.num_sms, str)),
        ("memory", _number(device.memory_bytes, lambda b: f"{_scaled(b, 1e9)} GB")),
        ("bandwidth", _number(device.memory_bytes_per_s, lambda b: f"{_scaled(b, 1e9)} GB/s")),
        ("last-level cache", _number(device.l2_bytes, lambda b: f"{_scaled(b, 2**20)} MiB")),
        ("power", _number(device.tdp_w, lambda w: f"{w:g} W, {device.cooling or 'any'} cooling")),
        ("fabric", _fabric(device)),
        ("dense rates", _rates(device)),
        ("price", _price(device)),
        ("note", device.note),
    ]
    lines = [device.name, *(f"  {name:<20}{value}" for name, value in facts if value)]
    read = [
        f"{s.text}{f', {s.read_on}' if s.read_on else ''}, {s.confidence}" for s in device.sources
    ]
    return "\n".join((*lines, *(f"  {'source':<20}{source}" for source in read)))


def offer_table(offers: Sequence[Offer], today: date) -> Table:
    """One row per offer: what is inside, its prices and the day of each, why it is not ranked."""
    return Table(
        columns=header(
            "offer ~22+ | devices ~20+ | vCPUs > -2 | host GB > -3 | USD/h > | spot > | region -1"
            " | priced on | spot on | not ranked + -4"
        ),
        rows=tuple(_offer_cells(offer, today) for offer in offers),
    )


def left_out_text(offers: Sequence[Offer], today: date) -> str:
    """How many offers are not listed and why, the most frequent reason first; empty for none.

    >>> left_out_text((), date(2026, 11, 20))
    ''
    """
    reasons = Counter(_why_left_out(offer, today) for offer in offers)
    counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
    return f"left out: {counts}; all with --all" if counts else ""


def _why_left_out(offer: Offer, today: date) -> str:
    reason = unranked_reason(offer, today) or ""
    is_old = reason.endswith("months old")
    return "with a price older than a year" if is_old else reason


def _device_cells(device: Device) -> tuple[str, ...]:
    return (
        device.name,
        device.family,
        device.device_class,
        _number(device.year, str),
        _number(device.memory_bytes, lambda x: _scaled(x, 1e9)),
        _number(device.memory_bytes_per_s, lambda x: _scaled(x, 1e9)),
        _number(_best_rate(device, _HALF_RATES), lambda x: _scaled(x, 1e12)),
        _number(device.peak_flop_per_s.get("tf32"), lambda x: _scaled(x, 1e12)),
        _number(device.peak_flop_per_s.get("fp32"), lambda x: _scaled(x, 1e12)),
        _number(device.tdp_w, lambda x: f"{x:g}"),
        _number(device.price_usd, lambda x: f"{x:,.0f} ({_month(device)})"),
    )


def _month(device: Device) -> str:
    return f"{device.price_on:%Y-%m}" if device.price_on else "no day"


def _offer_cells(offer: Offer, today: date) -> tuple[str, ...]:
    is_undated = offer.usd_per_hour is not None and offer.priced_on is None
    return (
        offer.name,
        f"{offer.num_devices:g}×{offer.device_name or offer.accelerator}",
        _number(offer.num_vcpus, str),
        _number(offer.host_memory_bytes, lambda x: _scaled(x, 1e9)),
        _number(offer.usd_per_hour, format_usd),
        _number(offer.spot_usd_per_hour, format_usd),
        offer.region,
        "unknown" if is_undated else str(offer.priced_on or ABSENT),
        str(offer.spot_on or ABSENT) if offer.spot_usd_per_hour is not None else ABSENT,
        unranked_reason(offer, today) or "",
    )


def _best_rate(device: Device, keys: Sequence[str]) -> float | None:
    return max(
        (device.peak_flop_per_s[k] for k in keys if k in device.peak_flop_per_s), default=None
    )


def _rates(device: Device) -> str:
    rates = (f"{key} {_scaled(rate, 1e12)}" for key, rate in device.peak_flop_per_s.items())
    return " · ".join(rates) + " TFLOP/s" if device.peak_flop_per_s else ABSENT


def _fabric(device: Device) -> str:
    if device.fabric is None or device.fabric_bytes_per_s is None:
        return device.fabric or ABSENT
    return f"{device.fabric}, {_scaled(device.fabric_bytes_per_s, 1e9)} GB/s each way"


def _price(device: Device) -> str:
    if device.price_usd is None:
        return ABSENT
    return f"{device.price_usd:,.0f} USD" + (
        f" ({device.price_on:%Y-%m})" if device.price_on else ", seen on an unknown day"
    )


def _scaled(value: float, scale: float) -> str:
    return format_significant(value / scale)


def _number(value: float | None, form: Callable[[float], str]) -> str:
    return ABSENT if value is None else form(value)
