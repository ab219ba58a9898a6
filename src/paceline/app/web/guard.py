"""Who may ask the local page: its own browser tab with its token, and nobody else.

A page on loopback can be reached by every site that the same browser has open, and by every user
of the machine. So the name it is called by, the site that asks and a token are checked before
anything else is read, and what is answered may load nothing from elsewhere.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.values import dataclass

#: Nothing is loaded from elsewhere, and no text of a page is run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: What a file that is dropped may have; a query has far less.
MOST_BYTES = 64_000_000
_METHODS = ("GET", "HEAD", "POST")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the page is.

    Attributes:
        port: On loopback.
        token: That its address carries at first, and a cookie afterwards.
    """

    port: int
    token: str

    @property
    def url(self) -> str:
        """What a browser is given."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names under which it may be called; others may have been made to point here."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}", f"[::1]:{self.port}")

    @property
    def cookie(self) -> str:
        """Name of the cookie: cookies are kept by host, whatever the port."""
        return f"paceline-{self.port}"


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


class Guard:
    """Middleware: refuses what is not from the page itself, and says what its answers may do."""

    def __init__(self, app: ASGIApp, *, address: Address) -> None:
        self._app, self._address = app, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            """Pass a message on; the one that begins an answer gets the headers of every page."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._address.hosts:
            return _refused("this page has another name", 400)
        if scope["method"] not in _METHODS:
            return _refused("this page knows no such method", 405)
        if not self._is_own(headers, scope["method"]):
            return _refused("another site asks", 403)
        if _size(headers) > MOST_BYTES:
            return _refused(f"more than {MOST_BYTES // 1_000_000} MB", 413)
        return self._without_token(scope, headers)

    def _is_own(self, headers: Headers, method: str) -> bool:
        """Whether the page itself asks, or someone who typed its address."""
        origin = headers.get("origin")
        if origin is not None or method == "POST":
            return origin in {f"http://{host}" for host in self._address.hosts}
        return headers.get("sec-fetch-site", "none") in ("none", "same-origin")

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        kept = _cookie(headers, self._address.cookie)
        if secrets.compare_digest(kept.encode(), self._address.token.encode()):
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        given = query.get("token", [""])[-1]
        if not secrets.compare_digest(given.encode(), self._address.token.encode()):
            return _refused("open the address that `paceline web` printed: it has the token", 401)
        answer = RedirectResponse(scope["path"], status_code=303)
        answer.set_cookie(
            self._address.cookie, self._address.token, httponly=True, samesite="strict"
        )
        return answer


def _refused(why: str, status: int) -> Response:
    return PlainTextResponse(f"refused: {why}\n", status_code=status)


def _size(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    return int(given) if given.isascii() and given.isdigit() else 0


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
