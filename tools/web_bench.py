"""Measure the local page as a browser meets it, and throw nonsense at it: benchmarks/web.md.

    python tools/web_bench.py --fuzz 10000 --out benchmarks/web.md

Times are of this machine as crowded as it is; the processor time of the server stands beside them.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

DAY = "2026-11-20"
SEED = 20261123
NUM_USERS, NUM_REQUESTS = 10, 100
DEADLINES = ("1h", "2h", "3h", "4h", "6h", "8h", "12h", "18h", "24h", "36h", "48h", "72h")
MODELS = ("resnet50", "mnist-cnn", "vit_b_16", "gpt2")
PATHS = (
    "/", "/answer", "/anatomy", "/scaling", "/deadlines", "/load", "/compare", "/models",
    "/plan.yaml", "/report.html", "/launch.zip", "/runs", "/runs/x", "/runs/../../etc/passwd",
    "/static/../../../etc/passwd", "/static/page.js", "/static/%2e%2e/%2e%2e/etc/passwd", "/nope",
    "/upload",
)  # fmt: skip
NONSENSE = (
    "", " ", "0", "-1", "1e999", "nan", "½", "٣", "a" * 300, "b" * 5000, "*", "../..", "/dev/null",
    "/etc/passwd", "~/.ssh/id_rsa", "os:system", "builtins:exec", "hf:/etc/passwd", "x.npz",
    "a.pt2", "torchvision:../../x", "upload:../../etc/passwd",
    "upload:x", "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>", "{{ 7*7 }}", "{% raw %}", "'\"><svg/onload=alert(1)>", "\x00",
    "\r\nSet-Cookie: a=b", "$(id)", "`id`", "%s%n", "日本", "\N{PILE OF POO}", "‮", "null", "[]",
    "transformer:layers=999999999,hidden=999999999", "model=resnet50&model=gpt2", "24h", "50usd",
)  # fmt: skip
NAMES = (
    "model", "task", "deadline", "budget", "device", "max-devices", "samples", "epochs", "rps",
    "ttft", "cloud", "pin", "rewrite", "seq", "token", "keep", "first", "second", "target",
    "command", "choice", "facts", "python", "name", "x", "__proto__", "data", "strategies",
)  # fmt: skip


@dataclass(frozen=True)
class Server:
    """The page as it runs."""

    url: str
    pid: int
    ready_s: float

    @property
    def home(self) -> str:
        return self.url.partition("/?")[0]

    def client(self) -> httpx.Client:
        client = httpx.Client(base_url=self.home, timeout=120, follow_redirects=True)
        client.get(self.url)
        return client

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024


@contextmanager
def served() -> Iterator[Server]:
    """The page, until the block ends."""
    begun_s = time.perf_counter()
    words = [sys.executable, "-m", "paceline", "web", "--as-of", DAY]
    page = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert page.stdout is not None
        url = page.stdout.readline().strip()
        yield Server(url=url, pid=page.pid, ready_s=time.perf_counter() - begun_s)
    finally:
        page.terminate()
        page.communicate()


def first_paint_bytes(client: httpx.Client) -> int:
    """What a browser fetches before it paints: the page, its style and two scripts, as sent."""
    text = client.get("/").text
    files = [part.split('"')[0] for part in text.split('="')[1:] if part.startswith("/static/")]
    total = len(text.encode())
    for path in files:
        with client.stream("GET", path) as answer:
            total += sum(map(len, answer.iter_raw()))
    return total


def slider(server: Server, client: httpx.Client) -> tuple[list[float], list[float]]:
    """Wall and processor seconds of answers to deadlines that were not asked before."""
    client.get("/answer?model=resnet50", headers={"HX-Request": "true"})
    walls, cpus = [], []
    for number in range(12):
        cpu_s, begun_s = server.cpu_s(), time.perf_counter()
        client.get(f"/answer?model=resnet50&deadline={number + 5}h", headers={"HX-Request": "true"})
        walls.append(time.perf_counter() - begun_s)
        cpus.append(server.cpu_s() - cpu_s)
    return walls, cpus


def crowd(server: Server, num_requests: int) -> list[float]:
    """Seconds of each answer where ten users search, slide and look at once."""

    def user(number: int) -> list[float]:
        chance, taken = random.Random(SEED + number), []
        client = server.client()
        for _ in range(num_requests):
            model, deadline = chance.choice(MODELS), chance.choice(DEADLINES)
            path = chance.choices(
                ("/", f"/models?model={model[:5]}", f"/answer?model={model}&deadline={deadline}"),
                (1, 2, 7),
            )[0]
            begun_s = time.perf_counter()
            status = client.get(path, headers={"HX-Request": "true"}).status_code
            assert status == 200, (path, status)
            taken.append(time.perf_counter() - begun_s)
        return taken

    with ThreadPoolExecutor(NUM_USERS) as users:
        return [s for taken in users.map(user, range(NUM_USERS)) for s in taken]


def fuzz(server: Server, count: int) -> Counter[int]:
    """Statuses of so many questions of nonsense, strange headers and files."""
    chance, client, statuses = random.Random(SEED), server.client(), Counter[int]()
    markup = [one for one in NONSENSE if "onerror" in one or "<script>alert" in one]
    while statuses.total() < count:
        path = chance.choice(PATHS)
        query = {chance.choice(NAMES): chance.choice(NONSENSE) for _ in range(chance.randrange(4))}
        headers = dict(
            chance.choice(
                (
                    {}, {}, {}, {"HX-Request": "true"}, {"host": "evil.example"},
                    {"origin": "http://evil.example"}, {"cookie": "a=\x7f;;"}, {"origin": "null"},
                    {"sec-fetch-site": "cross-site"}, {"accept": "\xff"},
                    {"cookie": "paceline-1=x"},
                )
            )
        )  # fmt: skip
        method = (
            "POST" if path == "/upload" else chance.choice(("GET", "GET", "GET", "HEAD", "PUT"))
        )
        body = os.urandom(chance.randrange(2000)) if method == "POST" else None
        if method == "POST" and chance.random() < 0.7:
            headers = {"origin": server.home}
            query = {"name": chance.choice(("m.npz", "../c.json", "a.pt2", *NONSENSE))[:400]}
        if body is None and "content-length" in headers:
            del headers["content-length"]
        try:
            answer = client.request(method, path, params=query, headers=headers, content=body)
        except (httpx.LocalProtocolError, httpx.InvalidURL, ValueError):
            client = server.client()  # The client cannot send it: another is asked instead.
            continue
        statuses[answer.status_code] += 1
        assert "root:x:0" not in answer.text
        if "html" in answer.headers.get("content-type", ""):
            assert not any(one in answer.text for one in markup), (path, query)
    return statuses


def upload_of_100_mb(server: Server) -> int:
    """Status where a file without a stated size goes on for 100 MB."""
    pieces = (bytes(1_000_000) for _ in range(100))
    client = server.client()
    try:
        return client.post(
            "/upload?name=a.npz", headers={"origin": server.home}, content=pieces
        ).status_code
    except httpx.HTTPError:
        return 400


def main() -> int:
    """Measure, and write the page."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--fuzz", type=int, default=1000)
    asked.add_argument("--requests", type=int, default=NUM_REQUESTS)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    rows: list[tuple[str, str, str]] = []

    def tell(what: str, aim: str, found: str) -> None:
        rows.append((what, aim, found))
        print(f"{what}: {found} (aim: {aim})", flush=True)

    with served() as server:
        client = server.client()
        begun_s = time.perf_counter()
        client.get("/")
        page_s = time.perf_counter() - begun_s
        tell("from the command to an address that answers", "1 s", f"{server.ready_s:.2f} s")
        tell("the page, once it runs", "1 s", f"{1e3 * page_s:.0f} ms")
        tell(
            "before the first paint, as sent", "60 kB", f"{first_paint_bytes(client) / 1e3:.1f} kB"
        )
        client.get("/static/charts.js")
        walls, cpus = slider(server, client)
        tell("a slider's answer, ResNet-50, 12 new deadlines", "300 ms",
             f"{1e3 * statistics.median(walls):.0f} ms, "
             f"{1e3 * statistics.median(cpus):.0f} ms of a processor (medians)")  # fmt: skip
        tell("a file of 100 MB without a stated size", "refused", str(upload_of_100_mb(server)))
        statuses = fuzz(server, given.fuzz)
        counts = ", ".join(f"{s} × {n:,}" for s, n in sorted(statuses.items()))
        tell(f"{given.fuzz:,} questions of nonsense, by status", "no 500", counts)
        begun_s, cpu_s = time.perf_counter(), server.cpu_s()
        taken = sorted(crowd(server, given.requests))
        busy_s, wall_s = server.cpu_s() - cpu_s, time.perf_counter() - begun_s
        late_s, middle_s = taken[int(0.95 * len(taken))], statistics.median(taken)
        tell(f"{NUM_USERS} users × {given.requests} requests, p95", "2 s",
             f"{late_s:.2f} s, median {middle_s:.2f} s; the server had "
             f"{busy_s / wall_s:.2f} of a core")  # fmt: skip
        tell("memory of the server at most", "400 MB", f"{server.peak_bytes() / 1e6:.0f} MB")
    crowded = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    if given.out is not None:
        given.out.write_text(_page(rows, crowded), encoding="utf-8")
    return int(any(status >= 500 for status in statuses))


def _page(rows: list[tuple[str, str, str]], crowded: str) -> str:
    lines = [
        "# The local page", "",
        "Written by `python tools/web_bench.py`: the page of `paceline web`, asked over HTTP on "
        f"{os.cpu_count()} cores. Others used them too (load {crowded} at the end): times are "
        "upper bounds.", "",
        "| what | aim | found |", "|---|---|---|",
        *(f"| {what} | {aim} | {found} |" for what, aim, found in rows), "",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
