"""Where a provider sells beside the region whose price was seen.

Price lists of the large providers are read in one region each. They sell in others too, at prices
that stand in a nearly fixed ratio to those of home: ``data/cloud_regions.csv``, with its sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from paceline.catalog.entities import Offer
from paceline.catalog.naming.grids import clouds_with
from paceline.errors import MissingFactError
from paceline.shipped import shipped_rows

_FILE = "cloud_regions.csv"
#: Letters that names of regions begin alike with where they are of one part of the world: `eu-`.
_LEAST_ALIKE = 3


def begins(name: str, accepted: tuple[str, ...]) -> bool:
    """Whether a name begins with one of the accepted words, whatever its case.

    >>> begins("europe-west4", ("eu",)), begins("westeurope", ("eu",))
    (True, False)
    """
    return any(name.lower().startswith(word.lower()) for word in accepted)


def is_sold_in(word: str) -> bool:
    """Whether a provider of the table sells in a region or part of the world of that word."""
    return any(_meets(row, (word,)) for row in shipped_rows("planning", _FILE))


def unpriced_region(word: str, offers: Iterable[Offer]) -> MissingFactError | None:
    """What is said of a region that providers have and no price is of; None of any other word."""
    clouds = clouds_with(word)
    if not clouds:
        return None
    near = {cloud: _near(cloud, word, offers) for cloud in clouds}
    found = [
        f"`--region {region}` ({cloud})" for cloud, regions in near.items() for region in regions
    ]
    return MissingFactError(
        f"the region `{word}` is known ({', '.join(clouds)}), but no price on record is from there",
        hint=f"nearest with prices: {', '.join(found)}" if found else "leave --region out",
    )


def _near(cloud: str, region: str, offers: Iterable[Offer]) -> tuple[str, ...]:
    """Regions of a provider that have prices, of those whose names begin as long alike.

    >>> _near("gcp", "europe-north1", ())
    ('europe-west4',)
    >>> _near("azure", "polandcentral", ())
    ('eastus', 'japaneast', 'westeurope', 'westus3')
    """
    priced = {row["region"] for row in shipped_rows("planning", _FILE) if row["cloud"] == cloud}
    priced |= {offer.region for offer in offers if offer.cloud == cloud and offer.region}
    alike = {name: _letters_alike(name, region.lower()) for name in priced}
    most = max(alike.values(), default=0)
    least = most if most >= _LEAST_ALIKE else 0
    return tuple(sorted(name for name, length in alike.items() if length >= least))


def _letters_alike(one: str, other: str) -> int:
    """With how many letters two names begin alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def offered_in(offer: Offer, regions: tuple[str, ...]) -> Offer:
    """The offer as it is sold in one of the regions; unchanged where none of them is known.

    An offer whose own region is meant stays there at its price.
    """
    if not regions or begins(offer.region, regions):
        return offer
    rows = [r for r in shipped_rows("planning", _FILE) if r["cloud"] == offer.cloud]
    there = [row for row in rows if _meets(row, regions)]
    home = [row for row in there if row["region"] == offer.region]
    for row in (*home, *there)[:1]:
        frac = float(row["usd_frac"])
        return replace(
            offer,
            region=row["region"],
            usd_per_hour=_times(offer.usd_per_hour, frac),
            spot_usd_per_hour=_times(offer.spot_usd_per_hour, frac),
        )
    return offer


def is_accepted(offer: Offer, regions: tuple[str, ...]) -> bool:
    """Whether an offer's region is one of those, by its beginning or its part of the world."""
    rows = (r for r in shipped_rows("planning", _FILE) if r["cloud"] == offer.cloud)
    return begins(offer.region, regions) or any(
        row["region"] == offer.region and _meets(row, regions) for row in rows
    )


def moved_words(offers: Iterable[Offer], regions: tuple[str, ...]) -> str:
    """What is assumed of offers that are priced by another region; empty where none is."""
    found = {(offer.cloud, offer.region) for offer in offers} if regions else set()
    moved = [
        f"{row['cloud']} in {row['region']} {float(row['usd_frac']):.2f}×"
        for row in shipped_rows("planning", _FILE)
        if (row["cloud"], row["region"]) in found and float(row["usd_frac"]) != 1.0
    ]
    if not moved:
        return ""
    return (
        f"prices by those of the provider's home region ({', '.join(moved)}): not every machine "
        "is sold in every region"
    )


def _meets(row: dict[str, str], words: tuple[str, ...]) -> bool:
    return begins(row["region"], words) or begins(row["area"], words)


def _times(usd: float | None, frac: float) -> float | None:
    return None if usd is None else usd * frac
