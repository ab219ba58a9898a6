"""``loop.feed`` and ``infer`` beside a device that waits; ``feed.py`` starts them."""

from __future__ import annotations

import collections
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from feed import BATCH, CORES, Batches, Late, first_in_line, stored


class _Waits:
    """A reader of made-up samples that takes time of the clock."""

    kind, classes, damaged, dtype, shape = "array", None, (), "uint8", (8,)

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def __len__(self) -> int:
        return 10**6

    def read(self, index: int) -> Any:
        from paceline.loop.readers.records import Stored

        time.sleep(self.wait_s)
        return Stored(np.zeros(self.shape, np.uint8), 0)

    def name_of(self, index: int) -> str:
        return str(index)


def _in_rows(reader: _Waits, batch: int, num_threads: int | None) -> Any:
    """A feed that takes such samples one by one, as images are taken."""
    from paceline import loop

    reader.kind = "image"
    fed = loop.feed(reader, batch, threads=num_threads, say=lambda _: None)
    fed.filler.shape, fed.filler.dtype = reader.shape, "uint8"
    fed.filler._place = lambda data, out, index, epoch: np.copyto(out, data)
    fed.delivery.change.is_image = False
    return fed


def overlap() -> None:
    """Median step with a device that waits, against the longer of input and device."""
    first_in_line(is_asleep=True)
    batch, threads, wait_s = 16, 2, 0.005
    print("| device / input | device, ms | input, ms | step, ms | of the longer |")
    print("|---|---|---|---|---|")
    for ratio in (0.25, 0.5, 1.0, 2.0, 4.0):
        batches = iter(_in_rows(_Waits(wait_s), batch, threads))
        device_s = ratio * wait_s * batch / threads
        rounds = [(_steps(batches, 0.0, 30), _steps(batches, device_s, 30)) for _ in range(5)]
        batches.close()
        of_longer = statistics.median(step / max(alone, device_s) for alone, step in rounds)
        alone, step = (statistics.median(times) for times in zip(*rounds, strict=True))
        told = (ratio, 1e3 * device_s, 1e3 * alone, 1e3 * step, of_longer)
        print("| {:g} | {:.1f} | {:.1f} | {:.1f} | {:.3f} |".format(*told), flush=True)


def _steps(batches: Batches, device_s: float, count: int = 60) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        next(batches)
        if device_s:
            time.sleep(device_s)
        times.append(time.perf_counter() - start)
    return statistics.median(times[count // 3 :])


class _Counted(Late):
    """A reader of so many samples."""

    def __len__(self) -> int:
        return 6144


def infer() -> None:
    """Time of a whole inference with a device that waits, against the slowest of its stages.

    The input alone, with the threads, buffers and queue of the whole, is timed before and after
    each; of five turns the middle one counts (of three where the device is the slower).
    """
    from paceline import loop
    from paceline.loop.inferring.inference import AHEAD, PART_ROWS, _run
    from paceline.loop.inferring.parts import Parts

    first_in_line(is_asleep=False)
    root, batch = Path(os.environ["FEED_DATA"]), 32
    reader = _Counted(stored(root, "jpg", 500, 375), 0.0)
    count = len(reader)
    fed = loop.feed(
        reader, batch, shuffle=False, normalise=loop.IMAGENET, threads=CORES,
        ahead=AHEAD, say=lambda _: None,
    )  # fmt: skip
    _alone_s(fed)
    print("| device / input | input, s | device, s | rows, s | total, s | of the slowest |")
    print("|---|---|---|---|---|---|")
    for ratio in (0.25, 0.5, 1.0, 2.0, 4.0):
        alone, turns = [_alone_s(fed)], []
        for turn in range(5 if ratio <= 1 else 3):
            device_s = ratio * statistics.median(alone)
            run = _waiting(device_s * batch / count)
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                parts = Parts(f"{folder}/labels.parquet", str(turn), count, PART_ROWS)
                found = _run(fed, run, parts, 0, False)
                parts.join()
                total_s = time.perf_counter() - start
            alone.append(_alone_s(fed))
            slept_s = found["device_s"]  # A sleep comes late; what follows from that is no stage's.
            input_s = statistics.mean(alone[-2:])
            share = total_s / max(input_s, slept_s)
            turns.append((share, input_s, slept_s, found["after_s"], total_s))
        share, *seconds = sorted(turns)[len(turns) // 2]
        print("| {:g} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.3f} |".format(
            ratio, *seconds, share), flush=True)  # fmt: skip


def _alone_s(fed: Any) -> float:
    """Seconds of the input, made ahead as the whole has it made, and dropped."""
    from paceline.loop.inferring.inference import _ahead

    start = time.perf_counter()
    collections.deque(_ahead(fed), maxlen=0)
    return time.perf_counter() - start


def _waiting(wait_s: float) -> Callable[[Any], Any]:
    """A model that waits, and gives a thousand scores."""
    import torch

    scores = torch.rand(BATCH, 1000)

    def run(inputs: Any) -> Any:
        time.sleep(wait_s)
        return scores[: len(inputs)]

    return run
