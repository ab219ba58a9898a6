"""Prices as a feed quotes them, and how they meet the catalogue: kept, held back, or left out.

A quote replaces the price of the offer of its name and leaves everything else of that offer; one of
an unknown name becomes an offer where its device is known. Nothing here reads files or clocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import chain, groupby
from math import inf, isfinite

from paceline.catalog.entities import Catalog, Device, Offer, Source
from paceline.catalog.lookup import find_devices
from paceline.errors import UnknownNameError
from paceline.patterns import pattern
from paceline.values import dataclass

#: A price that moves by more than this from one day to another is a mistake more often than a fact.
MAX_MOVE = 3.0
#: An offer that nobody knew may cost so many times more or less than others of its device.
MAX_AWAY = 5.0
#: Prices within this share are one price, printed with other digits.
SAME_PRICE_FRAC = 0.005
#: A feed with so large a share of prices in doubt is refused as a whole.
MAX_DOUBTFUL_FRAC = 0.2
_NAME = pattern(r"[\w .:+()/×*-]{1,100}")
_MEMORY = pattern(r"[-_ ]?\(?(\d{2,3})\s?GB\)?$", re.IGNORECASE)
_FORM = pattern(r"sxm|pcie|nvl", re.IGNORECASE)
_BYTES_PER_GB = 1e9
#: Sizes are marketed in decimal and reported in binary units, less what error correction takes.
_MEMORY_TOLERANCE = 0.12


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One machine at one price, as a feed says it.

    Attributes:
        cloud: Provider, in the catalogue's word.
        instance_type: The provider's own name.
        accelerator: The feed's word for the accelerator.
        num_devices: Accelerators in the machine; None where the feed does not say.
        device_memory_bytes: Memory of each; None where the feed does not say.
        usd_per_hour: On-demand price of the machine; NaN where the cell is no number.
        spot_usd_per_hour: Interruptible price; None where there is none.
        priced_on: Day of the price.
        source: Feed it was read from.
        num_vcpus: Virtual CPUs.
        host_memory_bytes: Main memory.
        device_name: ``Device.name``, once known.
        lowest_usd_per_hour: Lowest price over the regions of the feed, once known.
    """

    cloud: str
    instance_type: str
    region: str
    accelerator: str
    num_devices: float | None
    usd_per_hour: float
    spot_usd_per_hour: float | None
    priced_on: date
    source: str
    device_memory_bytes: float | None = None
    currency: str = "USD"
    num_vcpus: int | None = None
    host_memory_bytes: float | None = None
    device_name: str | None = None
    lowest_usd_per_hour: float | None = None
    lowest_region: str = ""

    @property
    def name(self) -> str:
        """Key of the offer it is a price of."""
        return f"{self.cloud}/{self.instance_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """What a quote did to an offer.

    Attributes:
        old_usd_per_hour: Price before; None for a new offer or where none was known.
        new_usd_per_hour: Price now.
    """

    name: str
    old_usd_per_hour: float | None
    new_usd_per_hour: float

    @property
    def is_seen(self) -> bool:
        """Whether it is more than a rounding of the same price."""
        old = self.old_usd_per_hour
        return old is None or abs(self.new_usd_per_hour / old - 1) > SAME_PRICE_FRAC


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A quote that was not taken.

    Attributes:
        name: The offer it would have changed.
        reason: Why not.
        old_usd_per_hour: Price that stays; None where there is none.
        quoted_usd_per_hour: Price that was quoted; None where it is no number.
    """

    name: str
    reason: str
    old_usd_per_hour: float | None
    quoted_usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of the quotes of a feed.

    Attributes:
        quotes: Those taken, one for each offer, with their device.
        changes: Prices that differ from before, and new offers.
        num_unchanged: Offers of which only the day is new.
        held_back: Doubtful quotes.
        num_left_out: Machines whose accelerator the catalogue does not know for certain.
    """

    quotes: tuple[Quote, ...]
    changes: tuple[PriceChange, ...]
    num_unchanged: int
    held_back: tuple[HeldBack, ...]
    num_left_out: int

    @property
    def is_trustworthy(self) -> bool:
        """Whether few enough of its prices are in doubt."""
        num_judged = len(self.quotes) + len(self.held_back)
        return bool(self.quotes) and len(self.held_back) <= MAX_DOUBTFUL_FRAC * num_judged


def settle(catalog: Catalog, quotes: Sequence[Quote]) -> Settled:
    """Hold the quotes of one feed against the catalogue.

    Of several quotes for a machine the one in the region of the known price counts, else the
    cheapest.
    """
    known = {offer.name: offer for offer in catalog.offers}
    usual = _usual_usd_per_device_hour(catalog)
    taken: list[Quote] = []
    held: list[HeldBack] = []
    num_left_out = 0
    for quote in _one_per_offer(quotes, known):
        offer = known.get(quote.name)
        if offer is not None and offer.is_retired:
            continue
        settled = replace(quote, device_name=_device_name(catalog, quote, offer))
        if settled.device_name is None:
            num_left_out += 1
        elif reason := _doubt(settled, offer, usual):
            held.append(_held_back(settled, offer, reason))
        else:
            taken.append(settled)
    changes = [_change(quote, known.get(quote.name)) for quote in taken]
    moved = tuple(change for change in changes if change.is_seen)
    return Settled(
        quotes=tuple(taken),
        changes=moved,
        num_unchanged=len(changes) - len(moved),
        held_back=tuple(held),
        num_left_out=num_left_out,
    )


def with_quotes(catalog: Catalog, quotes: Sequence[Quote]) -> Catalog:
    """The catalogue at the prices of ``quotes``; an older quote than a known price does nothing."""
    by_name = {quote.name: quote for quote in quotes}
    known = {offer.name for offer in catalog.offers}
    repriced = (_repriced(o, by_name[o.name]) if o.name in by_name else o for o in catalog.offers)
    added = (_new_offer(quote) for name, quote in by_name.items() if name not in known)
    return replace(catalog, offers=(*repriced, *added))


def _one_per_offer(quotes: Sequence[Quote], known: Mapping[str, Offer]) -> Iterator[Quote]:
    ordered = sorted(quotes, key=lambda quote: quote.name)
    for name, group in groupby(ordered, key=lambda quote: quote.name):
        rows = sorted(group, key=_price_order)
        offer, lowest = known.get(name), rows[0]
        same_region = [row for row in rows if offer and row.region == offer.region]
        chosen = next(chain(same_region, rows))
        yield replace(
            chosen,
            lowest_usd_per_hour=lowest.usd_per_hour if isfinite(lowest.usd_per_hour) else None,
            lowest_region=lowest.region,
        )


def _price_order(quote: Quote) -> tuple[float, str]:
    return (quote.usd_per_hour if isfinite(quote.usd_per_hour) else inf, quote.region)


def _usual_usd_per_device_hour(catalog: Catalog) -> Mapping[str, float]:
    """Median price of an hour of each device over the offers that have one."""
    from statistics import median

    prices = sorted(
        (offer.device_name, offer.usd_per_hour / offer.num_devices)
        for offer in catalog.offers
        if offer.device_name and offer.usd_per_hour and offer.num_devices
    )
    return {
        name: median(price for _, price in group)
        for name, group in groupby(prices, key=lambda pair: pair[0])
    }


def _doubt(quote: Quote, offer: Offer | None, usual: Mapping[str, float]) -> str | None:
    """Why a quote is not believed; None where it is."""
    price = quote.usd_per_hour
    if not _NAME.fullmatch(quote.instance_type) or not _NAME.fullmatch(quote.region or "-"):
        return "its name or region has characters that no provider uses"
    if quote.currency != "USD":
        return f"its price is in {quote.currency or 'no currency'}, not in USD"
    if not isfinite(price) or price <= 0:
        return "its price is no number above zero"
    if offer is None:
        return _doubt_of_new(quote, usual)
    if quote.num_devices not in (None, offer.num_devices):
        return f"it has {quote.num_devices:g} devices, {offer.num_devices:g} are known"
    if offer.priced_on is not None and quote.priced_on < offer.priced_on:
        return f"its price of {quote.priced_on} is older than the one of {offer.priced_on}"
    return _doubt_of_spot(quote) or _doubt_of_move(price, offer.usd_per_hour)


def _doubt_of_new(quote: Quote, usual: Mapping[str, float]) -> str | None:
    known = usual.get(quote.device_name or "")
    if known is None or not quote.num_devices:
        return _doubt_of_spot(quote)
    ratio = quote.usd_per_hour / quote.num_devices / known
    if 1 / MAX_AWAY <= ratio <= MAX_AWAY:
        return _doubt_of_spot(quote)
    return f"a device costs {ratio:.2g} times what others of its kind do"


def _doubt_of_spot(quote: Quote) -> str | None:
    spot = quote.spot_usd_per_hour
    if spot is not None and not 0 < spot <= quote.usd_per_hour * 1.01:
        return "its spot price is not between zero and the price on demand"
    return None


def _doubt_of_move(price: float, old: float | None) -> str | None:
    if old is None or 1 / MAX_MOVE <= price / old <= MAX_MOVE:
        return None
    return f"its price moved by a factor of {price / old:.2g}"


def _held_back(quote: Quote, offer: Offer | None, reason: str) -> HeldBack:
    return HeldBack(
        name=_shown(quote.name),
        reason=_shown(reason),
        old_usd_per_hour=offer.usd_per_hour if offer else None,
        quoted_usd_per_hour=quote.usd_per_hour if isfinite(quote.usd_per_hour) else None,
    )


def _shown(text: str) -> str:
    """Text of a stranger as it may be printed: one short line without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)[:120]


def _change(quote: Quote, offer: Offer | None) -> PriceChange:
    return PriceChange(
        name=quote.name,
        old_usd_per_hour=offer.usd_per_hour if offer else None,
        new_usd_per_hour=quote.usd_per_hour,
    )


def _device_name(catalog: Catalog, quote: Quote, offer: Offer | None) -> str | None:
    if offer is not None and offer.device_name is not None:
        return offer.device_name
    found = devices_meant(
        catalog,
        quote.accelerator,
        memory_bytes=quote.device_memory_bytes,
        words=quote.instance_type,
    )
    return found[0].name if len(found) == 1 and quote.num_devices else None


def devices_meant(
    catalog: Catalog, accelerator: str, *, memory_bytes: float | None = None, words: str = ""
) -> tuple[Device, ...]:
    """Devices that a feed's word can mean: of that family, memory and form factor.

    Args:
        catalog: What exists.
        accelerator: Such as ``A100-80GB``.
        memory_bytes: Of one device, where the feed says so.
        words: Other text of the row, in which a form factor may stand.

    >>> from paceline.catalog.tables import shipped_catalog
    >>> [d.name for d in devices_meant(shipped_catalog(), "A100-80GB", words="gpu_a100_sxm4")]
    ['A100 SXM4 80GB']
    """
    bare = _MEMORY.sub("", accelerator)
    found = _found(catalog, accelerator) or _found(catalog, bare)
    size = _MEMORY.search(accelerator)
    stated = float(size[1]) * _BYTES_PER_GB if size else memory_bytes
    fitting = tuple(d for d in found if stated is None or _has_memory(d, stated)) or ()
    form = _FORM.search(f"{accelerator} {words}")
    formed = tuple(d for d in fitting if form and form[0].lower() in d.name.lower())
    return formed or fitting


def _found(catalog: Catalog, name: str) -> tuple[Device, ...]:
    try:
        return find_devices(catalog, name) if name else ()
    except UnknownNameError:
        return ()


def _has_memory(device: Device, memory_bytes: float) -> bool:
    known = device.memory_bytes
    return known is not None and abs(memory_bytes / known - 1) <= _MEMORY_TOLERANCE


def _repriced(offer: Offer, quote: Quote) -> Offer:
    if offer.priced_on is not None and quote.priced_on < offer.priced_on:
        return offer
    has_spot = quote.spot_usd_per_hour is not None
    return replace(
        offer,
        usd_per_hour=quote.usd_per_hour,
        spot_usd_per_hour=quote.spot_usd_per_hour if has_spot else offer.spot_usd_per_hour,
        region=quote.region or offer.region,
        priced_on=quote.priced_on,
        spot_on=quote.priced_on if has_spot else offer.spot_on,
        lowest_usd_per_hour=quote.lowest_usd_per_hour,
        lowest_region=quote.lowest_region,
        price_history=_history(offer),
        status="listed",
        is_price_complete=True,
        source=_source(quote),
    )


def _history(offer: Offer) -> tuple[tuple[str, float], ...]:
    if offer.usd_per_hour is None or offer.priced_on is None:
        return offer.price_history
    before = (offer.priced_on.isoformat(), offer.usd_per_hour)
    return offer.price_history if before in offer.price_history else (*offer.price_history, before)


def _new_offer(quote: Quote) -> Offer:
    return Offer(
        name=quote.name,
        cloud=quote.cloud,
        instance_type=quote.instance_type,
        device_name=quote.device_name,
        accelerator=quote.accelerator,
        num_devices=quote.num_devices or 0.0,
        num_vcpus=quote.num_vcpus,
        host_memory_bytes=quote.host_memory_bytes,
        interconnect="",
        network_bytes_per_s=None,
        has_rdma=False,
        usd_per_hour=quote.usd_per_hour,
        spot_usd_per_hour=quote.spot_usd_per_hour,
        region=quote.region,
        priced_on=quote.priced_on,
        spot_on=None if quote.spot_usd_per_hour is None else quote.priced_on,
        interruption_frac_per_month=None,
        is_retired=False,
        source=_source(quote),
        lowest_usd_per_hour=quote.lowest_usd_per_hour,
        lowest_region=quote.lowest_region,
    )


def _source(quote: Quote) -> Source:
    return Source(text=quote.source, read_on=quote.priced_on, confidence="read")
