"""``paceline devices`` and ``paceline offers``: what exists, with where it was read."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from paceline.app import options as common
from paceline.app.api.catalog import devices as find_devices
from paceline.app.api.catalog import offers as find_offers
from paceline.app.command_line import Argument, Commands, Option
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

_Vendor = Annotated[str | None, Option(help="NVIDIA, AMD, Google, …")]


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("devices", devices)
    app.add_verb("offers", offers)
    prices.register(app)


@common.answers
def devices(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A device, a family, a vendor or a part.")
    ] = None,
    vendor: _Vendor = None,
    architecture: Annotated[str | None, Option(help="Ampere, CDNA3, …")] = None,
    kind: Annotated[str | None, Option(help="gpu, tpu, npu or cpu.")] = None,
    device_class: Annotated[str | None, Option(help="datacenter, consumer, …")] = None,
    min_memory: Annotated[str | None, Option(metavar="24GB", help="At least.")] = None,
    max_power: Annotated[str | None, Option(metavar="300W", help="At most.")] = None,
    facts: common.Facts = None,
) -> Answer:
    """List accelerators: memory, bandwidth, dense rates, power, price; one with its sources."""
    found = find_devices(
        name,
        vendor=vendor,
        architecture=architecture,
        kind=kind,
        device_class=device_class,
        min_memory=min_memory,
        max_power=max_power,
        facts=facts or (),
    )
    return _devices_answer(found)


@common.answers
def offers(
    device: Annotated[str | None, Argument(metavar="DEVICE", help="A device or a family.")] = None,
    cloud: Annotated[str | None, Option(help="Provider.")] = None,
    region: Annotated[str | None, Option(help="Region, or its beginning.")] = None,
    min_devices: Annotated[float | None, Option(help="Devices in the machine.")] = None,
    min_memory: Annotated[
        str | None, Option(metavar="24GB", help="Memory of each device, at least.")
    ] = None,
    max_price: Annotated[
        str | None, Option(metavar="2usd", help="Per hour and machine, at most.")
    ] = None,
    spot: Annotated[bool, Option(help="Only with an interruptible price.")] = False,
    every: Annotated[
        bool, Option(help="Also retired ones and prices older than a year.", flags=("--all",))
    ] = False,
    as_of: common.AsOf = None,
    facts: common.Facts = None,
) -> Answer:
    """List machines for rent, cheapest first, with the day their price was seen."""
    find = partial(
        find_offers,
        device,
        cloud=cloud,
        region=region,
        min_devices=min_devices,
        min_memory=min_memory,
        max_price=max_price,
        spot=spot,
        as_of=as_of,
        facts=facts or (),
    )
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
