"""Feeds over HTTPS from a server of the loopback: what is no table of prices changes nothing."""

from __future__ import annotations

import gzip
import http.server
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.app import fetching
from paceline.app.api.prices import offers_refresh
from paceline.errors import InvalidInputError

NEBIUS = Path(__file__).parents[1] / "catalog" / "feeds" / "skypilot_nebius.csv"
BOMB = gzip.compress(b"0" * 2**24)


class Handler(http.server.BaseHTTPRequestHandler):
    """What is asked for is what is wrong with the answer."""

    def do_GET(self) -> None:
        text = NEBIUS.read_bytes()
        name = self.path.strip("/")
        if name in ("to-http", "to-file"):
            self.send_response(302)
            self.send_header("Location", {"to-http": "http://127.0.0.1:9/x"}.get(name, "file:///x"))
            self.end_headers()
            return
        self.send_response(404 if name == "missing" else 200)
        if name == "bomb":
            text = BOMB
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(text) + (100 if name == "cut" else 0)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl for a certificate")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key", "-out",
         folder / "cert"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(folder / "cert"))
            patch.setenv("no_proxy", "127.0.0.1")
            yield f"https://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_OFFERS", str(tmp_path / "offers"))
    return tmp_path / "offers"


def test_a_whole_feed_is_read(server: str) -> None:
    assert fetching.read_address(f"{server}/whole") == NEBIUS.read_text()
    found = offers_refresh([f"{server}/whole"], seen_on="2026-11-20", cloud="nebius")
    assert found.table


@pytest.mark.parametrize(
    ("name", "says"),
    [("bomb", "not UTF-8"), ("cut", "too early"), ("missing", "404"),
     ("to-http", "prices come over https"), ("to-file", "is not allowed"),
     ("large", "is larger than"), ("slow", "takes longer than")],
)  # fmt: skip
def test_what_is_no_feed_changes_nothing(
    name: str, says: str, server: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers_refresh([str(NEBIUS)], seen_on="2026-11-20", cloud="nebius")
    before = {path.name: path.read_bytes() for path in own_folder.iterdir()}
    if name == "large":
        monkeypatch.setattr(fetching, "MAX_BYTES", 1000)
    if name == "slow":
        monkeypatch.setattr(fetching, "_PATIENCE_S", -1.0)
    with pytest.raises(InvalidInputError, match=says):
        offers_refresh([f"{server}/{name}"], seen_on="2026-11-20", cloud="nebius")
    assert {path.name: path.read_bytes() for path in own_folder.iterdir()} == before


def test_an_unknown_certificate_and_plain_http_are_refused(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(InvalidInputError, match="certificate"):
        fetching.read_address(f"{server}/whole")
    with pytest.raises(InvalidInputError, match="prices come over https"):
        fetching.read_address(server.replace("https", "http"))
