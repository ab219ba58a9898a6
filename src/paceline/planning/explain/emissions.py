"""What the first choice takes of electricity and emits, in one sentence."""

from __future__ import annotations

from datetime import date

from paceline.catalog.naming.grids import cleanest_and_dirtiest, grid_of
from paceline.parallelism.uncertainty import energy_interval_of
from paceline.planning.goal.providers import provider_kind
from paceline.planning.places.own_machines import host_power_w
from paceline.planning.places.ownership import HOURS_PER_MONTH, ownership_facts
from paceline.planning.places.places import Place
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import mean_power_w, place_of
from paceline.units import HOUR_S, format_significant

#: What a site takes for each kWh of its machines, by who runs it: items of ``ownership.csv``.
_COOLING_ITEMS = {"hyperscaler": "hyperscale PUE"}
_USUAL_COOLING = "industry average annual PUE"
_J_PER_KWH = 3.6e6


def emissions_sentence(search: Search, best: int) -> str:
    """Electricity of the job, or of a service's month, and what it emits on the place's grid.

    Devices count with the power that is predicted, the rest of their machines with a share, and
    the site with its cooling. Empty where the devices' power is not known.
    """
    devices_w = mean_power_w(search, best)
    if devices_w is None:
        return ""
    place, evaluation = place_of(search, best), search.evaluation
    is_job = bool(evaluation.num_steps[best])
    busy_s = float(evaluation.time_s[best]) if is_job else HOURS_PER_MONTH * HOUR_S
    num_nodes = int(search.candidates.num_nodes[best])
    hosts_w = num_nodes * host_power_w(place.device.device_class, devices_w / num_nodes)
    overhead = _overhead(place)
    kwh = (devices_w + hosts_w) * busy_s / _J_PER_KWH * overhead
    known = energy_interval_of(devices_w, float(evaluation.steps.log_sigma[best]))
    within = "" if known is None else f" (×/÷ {known.high / known.mid:.1f})"
    amount = f"{format_significant(kwh)} kWh{within}" + ("" if is_job else " a month at full load")
    return f"{amount} with hosts and cooling (PUE {overhead:g}): {_emitted(kwh, place)}"


def _emitted(kwh: float, place: Place) -> str:
    """What so much electricity emits there, or between which bounds it lies."""
    if (grid := grid_of(place.offer.cloud, place.offer.region)) is not None:
        kg = format_significant(kwh * grid.g_per_kwh / 1e3)
        return f"{kg} kg of CO2 at {grid.g_per_kwh:.0f} g/kWh, the grid of {grid.name} in 2025"
    least, most = cleanest_and_dirtiest()
    low, high = (format_significant(kwh * end.g_per_kwh / 1e3) for end in (least, most))
    return f"{low} kg of CO2 on the grid of {least.name}, {high} kg on that of {most.name}"


def _overhead(place: Place) -> float:
    """Power of the site over that of its machines, of the newest fact; an own site is not known."""
    if place.is_owned:
        return 1.0
    item = _COOLING_ITEMS.get(provider_kind(place.offer.cloud), _USUAL_COOLING)
    facts = (fact for fact in ownership_facts() if fact.item == item)
    return max(facts, key=lambda fact: fact.dated or date.min).value
