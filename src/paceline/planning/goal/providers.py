"""Who lets a machine: how much a buyer can rely on it, by the kind of provider."""

from __future__ import annotations

from functools import cache
from typing import Literal, get_args

from paceline.shipped import shipped_rows

ProviderKind = Literal["marketplace", "specialised", "hyperscaler"]
#: From the least dependable on.
PROVIDER_KINDS: tuple[ProviderKind, ...] = get_args(ProviderKind)


def provider_kind(cloud: str) -> ProviderKind:
    """``hyperscaler``, ``marketplace`` of other people's machines or, of the rest, ``specialised``.

    >>> provider_kind("vast"), provider_kind("aws"), provider_kind("lambda")
    ('marketplace', 'hyperscaler', 'specialised')
    """
    return _provider_kinds().get(cloud, "specialised")


def is_trusted(cloud: str, least: ProviderKind) -> bool:
    """Whether a provider is of a kind, or of one that is more dependable."""
    return PROVIDER_KINDS.index(provider_kind(cloud)) >= PROVIDER_KINDS.index(least)


@cache
def _provider_kinds() -> dict[str, ProviderKind]:
    rows = shipped_rows("planning", "provider_kinds.csv")
    return {row["cloud"]: kind for row in rows for kind in PROVIDER_KINDS if row["kind"] == kind}
