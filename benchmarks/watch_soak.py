"""Watchers that are killed, lines that are damaged, ranks that hang, guards and healthy runs.

``python benchmarks/watch_soak.py kills|fuzz|hangs|guards [NUMBER]`` does one of them, and writes
its table into `watch.md` under its heading. What fails is named, and the exit status is 1.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path

from paceline.app.api.running import runs_follow
from paceline.errors import InvalidInputError
from paceline.planfile import Interval
from paceline.watch.command import running, wait
from paceline.watch.events import read_run
from paceline.watch.expected import Expectation
from paceline.watch.folder import Run, new_run
from paceline.watch.guards import Limits
from paceline.watch.watcher import Watcher, summary_of

HERE = Path(__file__).parent
SCRIPTS = HERE / "watched"
_STALL_S = 8.0
_HANGS = ("data", "forward", "collective", "save", "exit", "lock")
#: Losses of the script that is watched, and the longest that a watcher lives.
_NUM_LOSSES, _LIFE_S = 60, 6.0


def kills(number: int, folder: Path) -> Iterator[str]:
    """A watcher killed at a random moment: the same losses, and `runs follow` attaches again."""
    chance = random.Random(0)
    wanted = (HERE / "watched" / "steady.py", folder / "alone.txt")
    subprocess.run([sys.executable, *map(str, wanted)], check=True)
    alone = wanted[1].read_bytes()
    same = attached = alive = 0
    for one in range(number):
        losses, runs = folder / f"{one}.txt", folder / f"runs-{one}"
        words = [sys.executable, str(wanted[0]), str(losses)]
        command = [sys.executable, "-m", "paceline", "run", "--runs", str(runs), "--", *words]
        watcher = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not list(runs.glob("*/run.json")):
            time.sleep(0.02)
        time.sleep(_LIFE_S * chance.random())
        alive += watcher.poll() is None
        watcher.kill()
        watcher.wait()
        last = list(runs_follow(runs=runs))[-1]
        attached += last.steps is not None and last.steps.num_steps == _NUM_LOSSES
        same += losses.read_bytes() == alone
        print(one + 1, same, attached, alive, flush=True)
    yield (
        f"A watcher killed by SIGKILL at a random moment of its first {_LIFE_S:.0f} s, {number} "
        f"times ({alive} while its script ran): **{same} of {number} scripts wrote the same losses "
        f"to the end; `runs follow` attached to {attached} and saw all {_NUM_LOSSES} steps.**"
    )
    if min(same, attached) < number:
        raise SystemExit("\n".join(("kills:", f"{same} same, {attached} attached")))


def fuzz(number: int, folder: Path) -> Iterator[str]:
    """Lines of a real run, torn, mixed, of other types or foreign: counted, no traceback."""
    good = _recorded(folder)
    chance = random.Random(1)
    own = new_run(("python", "train.py"), folder=folder / "fuzzed")
    damaged = 0
    for begin in range(0, number, 50):
        lines = [_damaged(chance, good) for _ in range(min(50, number - begin))]
        mixed = [
            line
            for pair in zip(lines, chance.choices(good, k=len(lines)), strict=True)
            for line in pair
        ]
        (own.folder / "rank-0-1.jsonl").write_bytes(b"\n".join(mixed) + b"\n")
        for name in ("run.json", "capture.json", "expectation.json", "notices.jsonl"):
            (own.folder / name).write_bytes(chance.choice(lines))
        watcher = Watcher(own, expect=_unexpected, say=lambda _line: None)
        watcher.look()
        watcher.summary(own)
        summary_of(own)
        damaged += sum(one.num_damaged for one in read_run(own.folder).ranks)
    yield (
        f"{number:,} torn, mixed and foreign lines among as many good ones, and the same in the "
        f"other files of a run folder: **no traceback**; {damaged:,} were counted as damaged, the "
        "others are well formed and of no effect."
    )


def _recorded(folder: Path) -> list[bytes]:
    run = _watched([sys.executable, str(SCRIPTS / "steady.py"), os.devnull], folder)[0]
    (path,) = run.folder.glob("rank-*.jsonl")
    return path.read_bytes().splitlines()


def _damaged(chance: random.Random, good: list[bytes]) -> bytes:
    one, other = chance.choices(good, k=2)
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: one[: chance.randrange(len(one))],
        lambda: one[: chance.randrange(len(one))] + other[chance.randrange(len(other)) :],
        lambda: bytes(chance.randrange(256) for _ in range(chance.randrange(80))),
        lambda: chance.choice((b"[" * 3000, b"null", b"{}", b"1e999", b'["step"]', b'"\xff"')),
        lambda: re.sub(
            rb"\d+", chance.choice((b"null", b"-1", b'"x"', b"1e99", b"[]")), one, count=1
        ),
        lambda: re.sub(rb"\d+", chance.choice((b"null", b"-1", b"{}", b"NaN", b"9" * 30)), one),
        lambda: re.sub(rb'"[a-z_]+"', chance.choice((b'"t"', b"7", b'"event"')), one, count=1),
    )
    return chance.choice(kinds)().replace(b"\n", b"")


def _unexpected(*_: object) -> Expectation:
    raise InvalidInputError("nothing is expected", hint="none")


def hangs(_number: int, folder: Path) -> Iterator[str]:
    """Two ranks, one of which hangs: what is said, and how long after the limit."""
    yield f"Two ranks under gloo, `--stall-after {_STALL_S:g}s`:\n"
    yield "| planted on rank 1 | after the limit, s | said |\n|---|---|---|"
    failed = []
    for where in _HANGS:
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [sys.executable, *words, str(SCRIPTS / "hanging.py"), where]
        _, notices = _watched(command, folder, Limits(stall_s=_STALL_S), ends_at="stalled")
        said = [one for one in notices if one["kind"] in ("stalled", "lost")]
        text = said[0]["text"].replace("|", "/") if said else "nothing"
        late = re.match(r"stalled for ([\d.]+) s", text)
        after = "" if late is None else f"{float(late.group(1)) - _STALL_S:.1f}"
        if said and said[0]["kind"] == "lost":
            after = "0"  # Gloo ends the other rank, and the launcher the run: it is told then.
        if len(said) != 1 or "rank 1" not in text or not after or float(after) > 10:
            failed.append(where)
        row = f"| {where} | {after} | {text} |"
        print(row, said, flush=True)
        yield row
    yield f"\n**{len(_HANGS) - len(failed)} of {len(_HANGS)}.**"


def guards(number: int, folder: Path) -> Iterator[str]:
    """Each guard on its planted fault, and runs without one."""
    steady = Expectation(source="a plan", step_s=Interval(low=0.03, mid=0.08, high=0.5))
    quick = Expectation(source="a plan", step_s=Interval(low=0.008, mid=0.01, high=0.012))
    priced = Expectation(source="a plan", usd_per_hour=36.0, num_steps=100_000)
    full = Expectation(
        source="a plan", memory_bytes=Interval(low=28e9, mid=31e9, high=34e9), capacity_bytes=25e9
    )
    planted = {
        "fit": ("healthy", full, Limits()), "slow": ("healthy", quick, Limits()),
        "starved": ("starved", None, Limits()), "diverging": ("diverging", None, Limits()),
        "memory": ("memory", None, Limits()), "stalled": ("stalled", None, Limits(stall_s=3.0)),
        "deadline": ("healthy", priced, Limits(deadline_s=60.0)),
        "budget": ("healthy", priced, Limits(budget_usd=1.0)),
        "interruption": ("interrupted", None, Limits()),
    }  # fmt: skip
    yield "| planted | told | at step | steps after the fault |\n|---|---|---|---|"
    for kind, (how, expectation, limits) in planted.items():
        command = [sys.executable, str(SCRIPTS / "guarded.py"), how]
        _, notices = _watched(command, folder, limits, expectation, ends_at=kind)
        kinds = [one["kind"] for one in notices]
        own = [one for one in notices if one["kind"] == kind]
        step = own[0]["step"] if own else None
        begins = 1 if how == "healthy" else 11
        after = "before the first" if step is None else str(max(0, step - begins))
        row = f"| {kind} | {', '.join(kinds) or 'nothing'} | {step or ''} | {after} |"
        print(row, flush=True)
        yield row
    silent = 0
    for _ in range(number):
        command = [sys.executable, str(SCRIPTS / "guarded.py"), "healthy"]
        limits = Limits(deadline_s=3600.0, budget_usd=100.0, num_steps=60, stall_s=10.0)
        _, notices = _watched(command, folder, limits, steady)
        silent += not notices
        print("healthy", [one["text"] for one in notices], flush=True)
    yield f"\n**Healthy runs** with all of them on: {silent} of {number} are silent."


def _watched(
    command: list[str], folder: Path, limits: Limits | None = None,
    expectation: Expectation | None = None, *, ends_at: str = "",
) -> tuple[Run, list[dict]]:  # fmt: skip
    """A run and what was said of it; it is ended once that is said."""
    with running(new_run(command, folder=folder / "runs")) as started:
        watcher = Watcher(
            started.run, expect=_unexpected, say=lambda _line: None, expectation=expectation,
            limits=limits,
        )  # fmt: skip
        until_s = time.monotonic() + 180.0

        def look() -> None:
            watcher.look()
            found = [one["kind"] for one in _notices(started.run)]
            if (ends_at and ends_at in found) or time.monotonic() > until_s:
                started.process.send_signal(signal.SIGTERM)

        run = wait(started, look, watcher.hear_signal)
    return run, _notices(run)


def _notices(run: Run) -> list[dict]:
    path = run.folder / "notices.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


_PARTS = {
    "kills": ("Watchers killed", kills, 50), "fuzz": ("Damaged lines", fuzz, 10_000),
    "hangs": ("Hangs", hangs, 6), "guards": ("Guards", guards, 20),
}  # fmt: skip


def main() -> None:
    """Do one part, and write it into the page."""
    name = sys.argv[1]
    heading, part, number = _PARTS[name]
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        lines = list(part(int(sys.argv[2]) if sys.argv[2:] else number, Path(folder)))
    write_part(heading, (f"{date.today()}, `watch_soak.py {name}`.", "", *lines))


def write_part(heading: str, lines: Iterable[str]) -> None:
    """Put lines under a heading of the page, in the place of those that stood there."""
    text = "\n".join((f"## {heading}", "", *lines))
    page = HERE / "watch.md"
    old = page.read_text()
    found = re.search(rf"## {heading}\n.*?(?=\n## |\Z)", old, re.S)
    new = old.replace(found.group(), text + "\n") if found else old.rstrip() + "\n\n" + text + "\n"
    page.write_text(new)


if __name__ == "__main__":
    main()
