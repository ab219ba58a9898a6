"""How many devices a user is given, of a cloud, of a device, or of a device at a cloud."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.catalog.entities import Catalog, Offer
from paceline.catalog.lookup import find_devices
from paceline.errors import UnknownNameError
from paceline.planning.goal.goal import Goal
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quota:
    """Devices of one plan at most; an empty cloud, or no devices, are all."""

    cloud: str
    devices: frozenset[str]
    most: int

    def counts(self, offer: Offer) -> bool:
        """Whether devices of an offer are among those that it limits."""
        is_there = self.cloud in ("", offer.cloud.lower())
        return is_there and (not self.devices or offer.device_name in self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """All that are stated."""

    stated: tuple[_Quota, ...]

    @classmethod
    def of(cls, catalog: Catalog, goal: Goal) -> Quotas:
        """Those of a goal.

        Raises:
            UnknownNameError: One is of neither a cloud nor a device of the catalogue.
        """
        return cls(stated=tuple(_read(catalog, goal)))

    def num_machines(self, offer: Offer) -> int | None:
        """Machines of an offer that may work together; None where none is limited."""
        limits = [quota.most for quota in self.stated if quota.counts(offer)]
        return int(min(limits) // max(offer.num_devices, 1)) if limits else None


def _read(catalog: Catalog, goal: Goal) -> Iterator[_Quota]:
    clouds = {offer.cloud.lower() for offer in catalog.offers}
    for name, most in goal.quotas.items():
        first, _, second = name.partition(":")
        if second and first not in clouds:
            raise UnknownNameError.from_name("cloud", first, sorted(clouds))
        cloud = first if first in clouds else ""
        device = second if cloud else first
        found = find_devices(catalog, device) if device else []
        yield _Quota(cloud=cloud, devices=frozenset(one.name for one in found), most=most)
