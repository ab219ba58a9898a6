"""What exists: devices, links, offers and machines, each fact with its source and date."""

from paceline.catalog.entities import (
    Catalog,
    Device,
    DeviceClass,
    DeviceKind,
    Link,
    Machine,
    Offer,
    OfferLinks,
    Source,
)
from paceline.catalog.filters import DeviceFilter, OfferFilter, filter_devices, filter_offers
from paceline.catalog.freshness import is_alive, is_fresh, is_rankable, unranked_reason
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device, find_devices, find_offer, parse_device_count
from paceline.catalog.offer_links import joint_link, machine_links, named_link, offer_links
from paceline.catalog.past import check_priced, known_on

__all__ = [
    "Catalog",
    "Device",
    "DeviceClass",
    "DeviceFilter",
    "DeviceKind",
    "Link",
    "Machine",
    "Offer",
    "OfferFilter",
    "OfferLinks",
    "Source",
    "check_priced",
    "filter_devices",
    "filter_offers",
    "find_device",
    "find_devices",
    "find_offer",
    "is_alive",
    "is_fresh",
    "is_rankable",
    "joint_link",
    "known_on",
    "load_catalog",
    "machine_links",
    "named_link",
    "offer_links",
    "parse_device_count",
    "unranked_reason",
]
