from __future__ import annotations

import json
import math
import random
from pathlib import Path

from paceline.watch.events import RankEvents, read_run
from paceline.watch.watcher import read_notices

_STEP = ["step", 0, 1_000, 10, 20, 30, 40, 1, 1, [0.5]]


def test_ten_thousand_torn_and_foreign_lines_are_counted_and_cost_no_good_one(tmp_path: Path):
    chance = random.Random(0)
    good = json.dumps(_STEP).encode()
    lines = []
    for _ in range(10_000):
        torn = good[: chance.randrange(len(good))]
        noise = bytes(chance.randrange(256) for _ in range(chance.randrange(40)))
        lines += [
            chance.choice((torn, noise.replace(b"\n", b""), b"[" * 5000, b"{}", b"null")),
            good,
        ]
    path = tmp_path / "rank-0-1.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    (rank,) = read_run(tmp_path).training
    assert len(rank.steps) == 10_000
    assert rank.num_damaged == 10_000


def test_a_line_without_an_end_is_read_once_it_has_one(tmp_path: Path):
    path = tmp_path / "rank-0-1.jsonl"
    whole = json.dumps(_STEP) + "\n"
    path.write_text(whole + whole[:10])
    events = RankEvents(path=path)
    assert events.read_more()
    assert len(events.steps) == 1
    with path.open("a") as file:
        file.write(whole[10:])
    assert events.read_more()
    assert (len(events.steps), events.num_damaged) == (2, 0)
    assert not events.read_more()


def test_losses_that_are_no_numbers_are_read_as_such():
    events = RankEvents(path=Path())
    events.take([json.dumps([*_STEP[:-1], ["nan", "inf", 1]]).encode()])
    nan, inf, one = events.steps[0].losses
    assert math.isnan(nan)
    assert math.isinf(inf)
    assert one == 1.0


def test_rows_with_fields_of_other_types_are_damaged():
    events = RankEvents(path=Path())
    for place in range(1, len(_STEP)):
        events.take([json.dumps([*_STEP[:place], "x", *_STEP[place + 1 :]]).encode()])
    assert not events.steps
    assert events.num_damaged == len(_STEP) - 1


def test_notices_that_are_no_text_are_left_out(tmp_path: Path):
    good = {"kind": "slow", "step": 1, "text": "a", "evidence": "b", "remedy": "c"}
    (tmp_path / "notices.jsonl").write_bytes(b'{"a\xe7\n' + json.dumps(good).encode() + b"\n[1]\n")
    assert [one.kind for one in read_notices(tmp_path)] == ["slow"]
