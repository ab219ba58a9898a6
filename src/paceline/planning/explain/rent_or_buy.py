"""When buying the first choice's devices would pay, in one sentence."""

from __future__ import annotations

import math

from paceline.planning.explain.wording import plural
from paceline.planning.places.own_machines import (
    ELECTRICITY_REGION,
    electricity_usd_per_hour,
    host_power_w,
    machine_power_w,
)
from paceline.planning.places.ownership import HOURS_PER_MONTH as _HOURS_PER_MONTH
from paceline.planning.places.ownership import (
    OwnedCosts,
    break_even_months,
    electricity_usd_per_kwh,
)
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import place_of
from paceline.units import HOUR_S, format_duration, format_usd


def rent_or_buy_sentence(search: Search, best: int) -> str:
    """After how many such runs an own machine pays; empty where the device has no price.

    The cards and electricity are counted; the machine they go into, staff, space and resale are
    not.
    """
    place = place_of(search, best)
    devices = int(search.candidates.num_devices[best])
    price = place.device.price_usd
    if price is None or place.offer.usd_per_hour is None or place.device.kind != "gpu":
        return ""
    if place.is_owned:
        return "the machine is yours already: only its electricity is counted"
    kwh = electricity_usd_per_kwh(ELECTRICITY_REGION).value
    costs = OwnedCosts(
        price_usd=price * devices,
        busy_power_w=machine_power_w(place.device, devices) or host_power_w(),
        usd_per_kwh=kwh,
    )
    rent = float(search.evaluation.usd_per_hour[best])
    months = break_even_months(costs, rent)
    running = electricity_usd_per_hour(place.device, devices)
    if months is None:
        return (
            f"renting is cheaper for good: {format_usd(rent)} USD/h against "
            f"{format_usd(running)} USD/h for electricity alone"
        )
    seen_on = place.device.price_on
    seen = f"price of {seen_on:%Y-%m}" if seen_on else "price of an unknown day"
    return (
        f"an own {devices}×{place.device.name} ({format_usd(costs.price_usd)} USD, {seen}, into a "
        f"machine at hand, {kwh:g} USD/kWh) pays after {_amount(search, best, months)}"
    )


def _amount(search: Search, best: int, months: float) -> str:
    """Busy time as a number of such runs, else as a duration."""
    busy_s = months * _HOURS_PER_MONTH * HOUR_S
    if not search.evaluation.num_steps[best]:
        return f"{format_duration(busy_s)} of work"
    runs = math.ceil(busy_s / float(search.evaluation.time_s[best]))
    return f"{plural(runs, 'such run')} ({format_duration(busy_s)} of work)"
