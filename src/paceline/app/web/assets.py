"""Files of the page: each packed once, under an address that changes when its text does."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path

from paceline.reporting.pages.html import stylesheet
from paceline.values import dataclass

HTMX = "htmx-4.0.1.min.js"
_KINDS = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file.

    Attributes:
        address: Of it, with a digest.
        kind: Media type.
        packed: In gzip's format.
    """

    address: str
    kind: str
    packed: bytes


@cache
def assets() -> dict[str, Asset]:
    """Every file by the name that templates call it: ``style``, ``htmx``, ``page``."""
    return {
        "style": _asset("style.css", stylesheet() + _text("web.css")),
        "htmx": _asset("htmx.js", _text(HTMX)),
        "page": _asset("page.js", _text("page.js")),
    }


def _text(name: str) -> str:
    return (Path(__file__).parent / "static" / name).read_text("utf-8")


def _asset(name: str, text: str) -> Asset:
    data = text.encode()
    stem, _, kind = name.rpartition(".")
    digest = hashlib.sha256(data).hexdigest()[:10]
    return Asset(
        address=f"/static/{stem}-{digest}.{kind}",
        kind=_KINDS[kind],
        packed=gzip.compress(data, 9),
    )
