"""Where a job could run: offers with their device, software, links and price, or why not.

A place whose price is missing or old is still evaluated, so that the plan can say at which price
it would win, but it is not ranked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from typing import Literal

from paceline.catalog.entities import Catalog, Device, Offer, OfferLinks
from paceline.catalog.freshness import is_alive, unranked_reason
from paceline.catalog.lookup import find_devices
from paceline.catalog.offer_links import offer_links
from paceline.catalog.past import known_on
from paceline.catalog.usual_hosts import usual_host_words, with_usual_host
from paceline.errors import UnknownNameError
from paceline.planfile import PlannedStack
from paceline.planning.goal.goal import Goal, RentalTerm
from paceline.planning.goal.providers import is_trusted
from paceline.planning.places.own_machines import (
    OWN,
    OwnedOffer,
    is_part,
    offered_device,
    owned_offers,
)
from paceline.planning.places.price import (
    reserved_discount_frac,
    storage_usd_per_byte_month,
    traffic_out_usd_per_byte,
)
from paceline.planning.places.quotas import Quotas
from paceline.planning.places.regions import (
    begins,
    is_accepted,
    is_sold_in,
    offered_in,
    unpriced_region,
)
from paceline.planning.places.support import platform_of
from paceline.stack.devices import newest_stack, why_unsupported
from paceline.stack.engines import no_kernels
from paceline.values import dataclass

#: Stands between the names of machines that work together.
JOINED_BY = " + "
_NOT_LOWERED = "its platform is not among those that are predicted"

PriceState = Literal["fresh", "stale price", "no price", "perhaps not sold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An offer that can run the job.

    Attributes:
        offer: What is rented.
        device: What is inside.
        stack: The newest software with kernels for it.
        links: Between devices, nodes, and host and device.
        is_spot: Whether the interruptible price is meant.
        term: How it is paid where it is not interruptible.
        usd_per_hour: Price of one machine; None if unknown.
        priced_on: Day of that price; None if undated.
        price_state: Whether the price may be ranked.
        price_remark: Why not, in words; empty if it may.
        is_owned: Whether it is the user's own machine, which costs its electricity.
        num_machines: How many of the user's own there are, or may be rented; None without a limit.
        num_idle: Devices of an own machine that the job leaves free.
        scheduler: Who gives own machines jobs, ``slurm`` or ``kubernetes``; else empty.
        parts: Two machines that share every batch, of which this place is made; else empty.
        host_assumption: Which processors and memory are those of other machines with its device,
            since the offer states none; else empty.
    """

    offer: Offer
    device: Device
    stack: PlannedStack
    links: OfferLinks
    is_spot: bool
    usd_per_hour: float | None
    priced_on: date | None
    price_state: PriceState
    price_remark: str
    is_owned: bool = False
    num_machines: int | None = None
    term: RentalTerm = "on-demand"
    num_idle: int = 0
    scheduler: str = ""
    parts: tuple[Place, ...] = ()
    host_assumption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An offer that is not evaluated at all.

    Attributes:
        kind: Why, as a word that groups.
        reason: Why, as a sentence.
    """

    offer: Offer
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSearch:
    """All places and all rejections, and whether old prices had to be ranked.

    Attributes:
        places: To be evaluated.
        rejections: Not to be.
        ranks_stale_prices: True if no fresh price was left.
    """

    places: tuple[Place, ...]
    rejections: tuple[Rejection, ...]
    ranks_stale_prices: bool


def find_places(catalog: Catalog, goal: Goal, *, today: date) -> PlaceSearch:
    """Go through the offers once.

    Raises:
        UnknownNameError: A device, offer, vendor, cloud, region or quota of the goal is not in
            the catalogue.
    """
    catalog = known_on(catalog, today)
    devices = {device.name: device for device in catalog.devices}
    wanted = {d.name for name in _device_names(goal) for d in find_devices(catalog, name)}
    _check_filters(catalog, goal)
    _check_pinned_offer(catalog, goal)
    support, quotas = _Support(goal), Quotas.of(catalog, goal)
    places: list[Place] = []
    rejections: list[Rejection] = []
    for seen in catalog.offers:
        offer = offered_in(seen, goal.regions)
        device = _device_of(offer, devices)
        num_machines = quotas.num_machines(offer)
        rejection = _filtered(offer, device, goal, wanted) or _unusable(
            offer, device, support, today, is_pinned="offer" in goal.pins
        )
        if rejection is None and num_machines == 0:
            rejection = _reject(offer, "filtered", "excluded by --quota")
        if rejection is not None:
            rejections.append(rejection)
        elif device is not None:
            places.extend(_places_of(catalog, offer, device, support, goal, today, num_machines))
    for owned in owned_offers(catalog, today=today):
        device = _device_of(owned.offer, devices)
        rejection = _filtered(owned.offer, device, goal, wanted) or _unusable(
            owned.offer, device, support, today, is_pinned=False
        )
        if rejection is not None:
            rejections += [] if owned.num_idle else [rejection]
        elif device is not None:
            places.append(_owned_place(owned, device, support))
    rented = [place for place in places if not place.is_owned]
    ranked_stale = bool(rented) and not any(p.price_state == "fresh" for p in rented)
    if ranked_stale:
        places = [_as_ranked(place) for place in places]
    return PlaceSearch(
        places=tuple(places), rejections=tuple(rejections), ranks_stale_prices=ranked_stale
    )


def _device_of(offer: Offer, devices: Mapping[str, Device]) -> Device | None:
    device = devices.get(offer.device_name or "")
    return None if device is None else offered_device(device, offer)


def _owned_place(owned: OwnedOffer, device: Device, support: _Support) -> Place:
    stack = support.of(device)[0]
    assert stack is not None
    return Place(
        offer=owned.offer,
        device=device,
        stack=stack,
        links=owned.links,
        is_spot=False,
        usd_per_hour=owned.offer.usd_per_hour,
        priced_on=None,
        price_state="fresh",
        price_remark="",
        is_owned=True,
        num_machines=owned.num_machines,
        num_idle=owned.num_idle,
        scheduler=owned.scheduler,
    )


def _device_names(goal: Goal) -> tuple[str, ...]:
    return (goal.pins["device"],) if "device" in goal.pins else goal.devices


def _check_filters(catalog: Catalog, goal: Goal) -> None:
    """Refuse words that nothing has: a misspelt one would narrow the choice unseen."""
    offers, devices = catalog.offers, catalog.devices
    for kind, words, known in (
        ("vendor", goal.vendors, {device.vendor for device in devices}),
        ("device class", goal.device_classes, {device.device_class for device in devices}),
        ("cloud", goal.clouds, {offer.cloud for offer in offers} | {OWN}),
    ):
        for word in words:
            if not _is_one(word, tuple(known)):
                raise UnknownNameError.from_name(kind, word, sorted(known))
    regions = {offer.region for offer in offers} | {OWN}
    for word in goal.regions:
        if not is_sold_in(word) and not any(begins(region, (word,)) for region in regions):
            if unpriced := unpriced_region(word, offers):
                raise unpriced
            raise UnknownNameError.from_name(
                "region", word, regions, command="paceline offers --all"
            )


def _check_pinned_offer(catalog: Catalog, goal: Goal) -> None:
    names = [offer.name for offer in catalog.offers]
    machines = [machine.name for machine in catalog.machines]
    for pinned in pinned_offers(goal):
        if pinned not in machines and not any(matches(offer, pinned) for offer in catalog.offers):
            raise UnknownNameError.from_name(
                "offer", pinned, [*names, *machines], command="paceline offers --all"
            )


def pinned_offers(goal: Goal) -> tuple[str, ...]:
    """Names of the pinned offer, two of machines together; none if none is pinned.

    >>> pinned_offers(Goal(pins={"offer": "lab + old lab"}))
    ('lab', 'old lab')
    """
    return tuple(goal.pins["offer"].split(JOINED_BY)) if "offer" in goal.pins else ()


class _Support:
    """Software of a framework per device, asked once each."""

    def __init__(self, goal: Goal) -> None:
        self._framework = goal.software
        self._engine = goal.engine
        self._stacks: dict[str, tuple[PlannedStack | None, str | None]] = {}

    def of(self, device: Device) -> tuple[PlannedStack | None, str | None]:
        """The newest stack there, and why it cannot be planned with, if it cannot."""
        if device.name not in self._stacks:
            stack = newest_stack(device, framework=self._framework)
            self._stacks[device.name] = (stack, self._why_not(device, stack))
        return self._stacks[device.name]

    def _why_not(self, device: Device, stack: PlannedStack | None) -> str | None:
        platform = None if stack is None else platform_of(stack)
        if platform is None:
            return why_unsupported(device, framework=self._framework) or _NOT_LOWERED
        engine = self._engine
        if engine is None or engine.serves_on(device, platform):
            return None
        return no_kernels(engine, device)


def _filtered(
    offer: Offer, device: Device | None, goal: Goal, wanted: set[str]
) -> Rejection | None:
    if meant := pinned_offers(goal):
        is_meant = any(matches(offer, name) for name in meant)
        return None if is_meant else _reject(offer, "filtered", "not pinned")
    failed = _failed_filters(offer, device, goal, wanted)
    if failed:
        return _reject(offer, "filtered", f"excluded by {', '.join(failed)}")
    if device is None:
        return None
    if goal.in_datacenter and device.device_class in ("consumer", "laptop"):
        return _reject(
            offer, "licence", "the driver licence of consumer cards excludes data centres"
        )
    return _uncharged(offer, goal)


def _uncharged(offer: Offer, goal: Goal) -> Rejection | None:
    """Why what is stated beside the machines cannot be priced with a provider, if it cannot."""
    for what, size, charge in (
        ("storage", goal.storage_bytes, storage_usd_per_byte_month),
        ("traffic out", goal.egress_bytes, traffic_out_usd_per_byte),
    ):
        if size is not None and charge(offer.cloud) is None:
            return _reject(offer, "unknown charge", f"what it charges for {what} is not known")
    is_reserved = goal.term != "on-demand" and offer.cloud != OWN
    if is_reserved and reserved_discount_frac(offer.cloud, goal.term) is None:
        return _reject(offer, "unknown charge", f"what it takes for {goal.term} is not known")
    return None


def _failed_filters(offer: Offer, device: Device | None, goal: Goal, wanted: set[str]) -> list[str]:
    """Options that exclude an offer; where its device is not told apart, those of its place."""
    place = (
        ("--cloud", goal.clouds, _is_one(offer.cloud, goal.clouds)),
        ("--trust", (goal.trust,), is_trusted(offer.cloud, goal.trust)),
        ("--region", goal.regions, is_accepted(offer, goal.regions)),
    )
    inside = (
        ()
        if device is None
        else (
            ("--vendor", goal.vendors, _is_one(device.vendor, goal.vendors)),
            (
                "--device-class",
                goal.device_classes,
                _is_one(device.device_class, goal.device_classes),
            ),
            ("--device", _device_names(goal), offer.device_name in wanted),
            ("--max-devices", (goal.most_devices,), offer.num_devices <= goal.most_devices),
        )
    )
    return [option for option, given, accepted in (*place, *inside) if given and not accepted]


def _unusable(
    offer: Offer, device: Device | None, support: _Support, today: date, *, is_pinned: bool
) -> Rejection | None:
    if not is_pinned and not is_alive(offer, today) and offer.status != "unknown":
        return _reject(offer, "no longer sold", unranked_reason(offer, today) or "no longer sold")
    if device is None:
        return _reject(
            offer, "unknown device", f"`{offer.accelerator}` is no one device of the catalogue"
        )
    if device.kind != "cpu" and offer.num_devices % 1 and not is_part(offer):
        return _reject(
            offer, "device slice", f"it holds {offer.num_devices:g} devices: not predicted"
        )
    why = support.of(device)[1]
    return None if why is None else _reject(offer, "no framework", why)


def _places_of(
    catalog: Catalog, offer: Offer, device: Device, support: _Support, goal: Goal, today: date,
    num_machines: int | None,
) -> Iterable[Place]:  # fmt: skip
    stack = support.of(device)[0]
    assert stack is not None
    hosted = with_usual_host(catalog, offer)
    prices = [(_at_term(offer, goal.term), False)]
    if goal.allow_spot and offer.spot_usd_per_hour is not None:
        prices.append((_at_spot_price(offer), True))
    for priced, is_spot in prices:
        state, remark = _price_state(priced, goal, today)
        yield Place(
            offer=hosted,
            device=device,
            stack=stack,
            links=offer_links(catalog, offer),
            host_assumption=usual_host_words(offer, hosted),
            is_spot=is_spot,
            usd_per_hour=priced.usd_per_hour,
            priced_on=priced.priced_on,
            price_state=state,
            price_remark=remark,
            num_machines=num_machines,
            term="on-demand" if is_spot else goal.term,
        )


def _at_term(offer: Offer, term: RentalTerm) -> Offer:
    frac = None if term == "on-demand" else reserved_discount_frac(offer.cloud, term)
    if frac is None or offer.usd_per_hour is None:
        return offer
    return replace(offer, usd_per_hour=offer.usd_per_hour * (1.0 - frac))


def _at_spot_price(offer: Offer) -> Offer:
    return replace(offer, usd_per_hour=offer.spot_usd_per_hour, priced_on=offer.spot_on)


def _price_state(offer: Offer, goal: Goal, today: date) -> tuple[PriceState, str]:
    remark = unranked_reason(offer, today, max_age_days=goal.max_price_age_days)
    if offer.usd_per_hour is None:
        return "no price", remark or "no price known"
    if remark is None or "offer" in goal.pins:
        return "fresh", remark or ""
    return ("stale price" if is_alive(offer, today) else "perhaps not sold"), remark


def _as_ranked(place: Place) -> Place:
    return replace(place, price_state="fresh") if place.usd_per_hour is not None else place


def matches(offer: Offer, name: str) -> bool:
    """Whether a user's ``name`` means this offer: its key, instance type or accelerator."""
    wanted = _squeezed(name)
    names = (offer.name, offer.instance_type, offer.device_name or "", offer.accelerator)
    return any(_squeezed(known) == wanted for known in names)


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum() or c in "./-")


def _is_one(name: str, accepted: tuple[str, ...]) -> bool:
    return name.lower() in {a.lower() for a in accepted}


def _reject(offer: Offer, kind: str, reason: str) -> Rejection:
    return Rejection(offer=offer, kind=kind, reason=reason)
