"""``paceline devices`` and ``paceline offers``: what exists, with where it was read."""

from __future__ import annotations

from functools import partial
from typing import Any

from paceline.app import options as common
from paceline.app.api import catalog as api
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of
from paceline.app.requests.words import read_day
from paceline.app.verbs import prices
from paceline.catalog.entities import Device
from paceline.reporting.screens.catalogs import (
    device_page,
    device_table,
    left_out_text,
    offer_table,
)
from paceline.reporting.tables import markdown_table, text_table


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("devices", devices)
    app.add_verb("offers", offers)
    prices.register(app)


@common.answers
@asks(
    api.devices,
    name=Argument("NAME", "A device, a family, a vendor or a part."),
    vendor=Option("NVIDIA, AMD, Google, …"),
    architecture=Option("Ampere, CDNA3, …"),
    kind=Option("gpu, tpu, npu or cpu."),
    device_class=Option("datacenter, consumer, …"),
    min_memory=Option("At least.", "24GB"),
    max_power=Option("At most.", "300W"),
    facts=common.Facts,
)
def devices(**asked: Any) -> Answer:
    """List accelerators: memory, bandwidth, dense rates, power, price; one with its sources."""
    return _devices_answer(api.devices(**asked))


@common.answers
@asks(
    api.offers,
    device=Argument("DEVICE", "A device or a family."),
    cloud=Option("Provider."),
    region=Option("Region, or its beginning."),
    min_devices=Option("Devices in the machine."),
    min_memory=Option("Memory of each device, at least.", "24GB"),
    max_price=Option("Per hour and machine, at most.", "2usd"),
    spot=Option("Only with an interruptible price."),
    every=Option("Also retired ones and prices older than a year.", flags=("--all",)),
    as_of=common.AsOf,
    facts=common.Facts,
)
def offers(*, every: bool, as_of: str | None, **asked: Any) -> Answer:
    """List machines for rent, cheapest first, with the day their price was seen."""
    find = partial(api.offers, as_of=as_of, **asked)
    found = find(every=every)
    listed = {offer.name for offer in found}
    hidden = () if every else tuple(o for o in find(every=True) if o.name not in listed)
    today = read_day(as_of)
    notes = filter(None, (left_out_text(hidden, today),))
    return answer_of("offers", found, offer_table(found, today), *notes)


def _devices_answer(found: tuple[Device, ...]) -> Answer:
    table = device_table(found)
    page = device_page(found[0]) if len(found) == 1 else None
    return Answer(
        kind="devices",
        value=found,
        text=lambda width: page or text_table(table, width=width),
        markdown=lambda: markdown_table(table),
    )
