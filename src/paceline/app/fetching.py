"""The only place that asks another machine for anything: price feeds, over HTTPS, when told to."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from paceline.errors import InvalidInputError
from paceline.reading import read_bytes

MAX_BYTES = 64 * 2**20
MAX_PAGES = 200
#: For one answer, and for a feed as a whole.
_TIMEOUT_S, _PATIENCE_S = 20.0, 120.0
_CHUNK_BYTES = 2**16
_FEEDS = "a feed is a name of `paceline offers feeds`, an https address or a file"
_HINT = "the prices stay as they were; try again, or name a file of your own"


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Redirections stay on HTTPS."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: object,
        newurl: str,
    ) -> urllib.request.Request | None:
        """As the standard library's, where the address is HTTPS."""
        _check_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def read_address(address: str, *, next_page: str = "") -> str:
    """The text at an HTTPS address or in a file, all its pages one after the other.

    Args:
        address: HTTPS address, or path of a file.
        next_page: Key under which a JSON page names the next one; empty for a single page.

    Raises:
        InvalidInputError: Not HTTPS, not reachable, too large, too slow or not UTF-8.
    """
    if "://" not in address:
        raw = read_bytes(Path(address), what="feed", most_bytes=MAX_BYTES, hint=_FEEDS)
        return _decoded(raw, address)
    deadline_s = time.monotonic() + _PATIENCE_S
    pages: list[str] = []
    num_bytes, url = 0, address
    while url and len(pages) < MAX_PAGES:
        raw = _page_bytes(url, MAX_BYTES - num_bytes, deadline_s)
        num_bytes += len(raw)
        pages.append(_decoded(raw, address))
        url = _following(pages[-1], next_page, url)
    return "\n".join(pages)


def _page_bytes(url: str, max_bytes: int, deadline_s: float) -> bytes:
    _check_https(url)
    opener = urllib.request.build_opener(_OnlyHttps)
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return _limited(answer, max_bytes, deadline_s, url)
    except urllib.error.HTTPError as error:
        reason = f"the server says {error.code} {error.reason}"
    except (urllib.error.URLError, ssl.SSLError, OSError, ValueError) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
    raise InvalidInputError(f"cannot read {_shown(url)}: {reason}", hint=_HINT)


def _limited(answer: IO[bytes], max_bytes: int, deadline_s: float, url: str) -> bytes:
    chunks: list[bytes] = []
    num_bytes = 0
    while chunk := answer.read(_CHUNK_BYTES):
        chunks.append(chunk)
        num_bytes += len(chunk)
        _check_size(num_bytes, max_bytes, _shown(url))
        if time.monotonic() > deadline_s:
            raise InvalidInputError(
                f"{_shown(url)} takes longer than {_PATIENCE_S:.0f} s", hint=_HINT
            )
    expected = getattr(answer, "length", None)
    if expected:
        raise InvalidInputError(f"{_shown(url)} ended {expected:,} bytes too early", hint=_HINT)
    return b"".join(chunks)


def _following(page: str, key: str, url: str) -> str:
    if not key:
        return ""
    try:
        address = json.loads(page).get(key)
    except (ValueError, AttributeError, RecursionError):
        return ""
    same_host = isinstance(address, str) and urlsplit(address).hostname == urlsplit(url).hostname
    return address if same_host else ""


def _check_https(url: str) -> None:
    if not url.lower().startswith("https://"):
        raise InvalidInputError(
            f"{_shown(url)} is not read: prices come over https, or from a file", hint=_HINT
        )


def _check_size(num_bytes: int, max_bytes: int, where: str) -> None:
    if num_bytes > max_bytes:
        raise InvalidInputError(
            f"{where} is larger than {MAX_BYTES // 2**20} MiB", hint="a feed is a table of prices"
        )


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{_shown(where)} is not UTF-8 text", hint=_HINT) from None


def _shown(url: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in url.partition("?")[0])[:120]
