"""Run a model over a data set: ``python -m paceline.loop.inferring.inference``.

Threads decode the next batches, the device computes this one, and another thread makes rows of the
last and writes them. The request is one JSON object on the command line, the answer one on
standard output; talk goes to standard error.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time

import numpy
import pyarrow

from ..errors import LoopError
from ..feeding.feeder import IMAGENET, feed
from .parts import Parts
from .runtimes import open_model

PART_ROWS = 4096
_QUEUED = 8
_NO_LABEL = -1
#: Batches of bytes ahead, for the input to go on while it is the faster one for a moment.
AHEAD = 8


def infer(request, say):
    """Write one row per sample: label and its score, or why the sample is damaged.

    Args:
        request: With ``model``, ``data``, ``out``, ``batch``, ``size``, ``normalise``
            (``imagenet`` or ``none``), ``runtime``, ``device``, ``threads``, ``scores``, ``part``,
            ``export`` (an ONNX file to write, or None) and ``mode`` (``throughput``, or
            ``latency``: one sample at a time).
        say: Function that is given a line.

    Raises:
        LoopError: Model, data or file cannot be used.
    """
    one_by_one = request["mode"] == "latency"
    batch = 1 if one_by_one else request["batch"]
    fed = feed(
        request["data"], batch, size=request["size"], shuffle=False, damaged="skip",
        normalise=IMAGENET if request["normalise"] == "imagenet" else None,
        threads=1 if one_by_one else request["threads"], ahead=1 if one_by_one else AHEAD, say=say,
    )  # fmt: skip
    count = len(fed.reader)
    part_rows = max(1, (request["part"] or PART_ROWS) // batch) * batch
    parts = Parts(request["out"], _question(request), count, part_rows)
    if parts.is_complete():
        return {"num_rows": count, "num_done_before": count, "is_complete": True}
    start = parts.done()
    if start:
        say("infer: %d of %d rows are there" % (start, count))
    asked = (request["model"], request["runtime"], request["device"])
    try:
        run, runtime, batch_s = open_model(*asked, _example(fed), request["export"])
    except LoopError:
        parts.forget_empty()
        raise
    predicted_s = None if batch_s is None else batch_s * (count - start) / batch
    fed.load_state_dict({"epoch": 0, "position": start, "seed": 0, "count": count})
    times = _run(fed, run, parts, start, request["scores"])
    parts.join()
    return {
        "num_rows": count, "num_done_before": start, "is_complete": True, "runtime": runtime,
        "num_damaged": len(fed.damaged), "predicted_device_s": predicted_s, **times,
    }  # fmt: skip


def _question(request):
    """What an answer is the answer to: parts of a changed model or other data are not joined."""
    told = {name: request[name] for name in ("model", "data", "size", "normalise", "scores")}
    if os.path.exists(request["model"]):
        told["model_bytes"] = os.path.getsize(request["model"])
        told["model_changed"] = os.path.getmtime(request["model"])
    return json.dumps(told, sort_keys=True)


def _example(fed):
    """A batch that can be read, to try runtimes on."""
    batches = iter(fed)
    known, say = list(fed.damaged), fed.say
    fed.say = _silent
    example = next(batches, None)
    batches.close()
    fed.damaged, fed.say = known, say
    if example is None:
        raise LoopError("no sample can be read", "`paceline feed DATA --check` lists why")
    return example[0].clone()


def _silent(line):
    """What is damaged is told when its row is made."""


def _run(fed, run, parts, start, keeps_scores):
    """All batches, overlapped; seconds that each stage was busy, and the rate."""
    rows, batches = _Rows(fed, parts, start, keeps_scores), _ahead(fed)
    began, device_s, latencies = time.perf_counter(), 0.0, []
    try:
        before = time.perf_counter()
        for batch in batches:
            ready = time.perf_counter()
            rows.put(batch.indices, run(batch[0]))
            done = time.perf_counter()
            device_s += done - ready
            latencies.append(done - before)
            before = time.perf_counter()
    finally:
        batches.close()
        rows.close()
    wall_s = max(1e-9, time.perf_counter() - began)
    latencies.sort()
    at = [latencies[int(q * (len(latencies) - 1))] if latencies else None for q in (0.5, 0.99)]
    return {
        "wall_s": wall_s, "waited_s": fed.waited_s, "device_s": device_s, "after_s": rows.busy_s,
        "samples_per_s": (len(fed.reader) - start) / wall_s,
        "latency_p50_s": at[0], "latency_p99_s": at[1],
    }  # fmt: skip


def _ahead(batches):
    """Batches; a thread makes the next ready (normalised) while one is computed."""
    ready, is_over = queue.Queue(1), threading.Event()

    def work():
        """Put batches into the queue until it is over; None comes last, or what ended them."""
        last = None
        try:
            for batch in batches:
                ready.put(batch)
                if is_over.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - raised again where the batch is asked for
            last = error
        ready.put(last)

    thread = threading.Thread(target=work, name="infer-ahead", daemon=True)
    thread.start()
    try:
        while isinstance(batch := ready.get(), tuple):
            yield batch
        if batch is not None:
            raise batch
    finally:
        is_over.set()
        while thread.is_alive():  # It may be about to hand over one more.
            with contextlib.suppress(queue.Empty):
                ready.get(timeout=0.05)
        thread.join()


def _shares(scores):
    """Softmax with NumPy: PyTorch's team of threads would spin where others decode."""
    grown = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


class _Rows:
    """Turns outputs into rows and writes parts, in a thread of its own."""

    def __init__(self, fed, parts, start, keeps_scores):
        self.fed, self.parts, self.keeps_scores = fed, parts, keeps_scores
        self.busy_s, self.error = 0.0, None
        self._open(start)
        self._queue = queue.Queue(_QUEUED)
        self._thread = threading.Thread(target=self._work, name="infer-rows", daemon=True)
        self._thread.start()

    def put(self, indices, outputs):
        """Hand over the samples of a batch and its outputs."""
        self._raise()
        self._queue.put((indices, outputs))

    def close(self):
        """Finish all rows, damaged ones at the end too."""
        if sys.exc_info()[0] is None:
            self._queue.put(([], None))
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def _raise(self):
        if self.error is not None:
            raise self.error

    def _work(self):
        for item in iter(self._queue.get, None):
            if self.error is not None:
                continue
            start = time.thread_time()
            try:
                self._add(*item)
            except Exception as error:  # noqa: BLE001 - raised again where outputs are handed over
                self.error = error
            self.busy_s += time.thread_time() - start

    def _open(self, begin):
        """Begin a part, in which no row has an answer yet."""
        self._begin, self._end = begin, min(begin + self.parts.part_rows, self.parts.num_rows)
        count = self._end - begin
        self._labels = numpy.full(count, _NO_LABEL, numpy.int32)
        self._scores, self._shares = numpy.zeros(count, numpy.float32), [None] * count

    def _add(self, indices, outputs):
        if outputs is None:
            while self._begin < self.parts.num_rows:
                self._write()
            return
        shares = _shares(outputs.flatten(1).float().numpy(force=True))
        labels, scores = shares.argmax(axis=1), shares.max(axis=1)
        kept = shares.tolist() if self.keeps_scores else None
        places, first = numpy.asarray(indices), 0
        while first < len(places):
            while places[first] >= self._end:
                self._write()
            last = int(numpy.searchsorted(places, self._end))
            at = places[first:last] - self._begin
            self._labels[at], self._scores[at] = labels[first:last], scores[first:last]
            for place, row in zip(at, kept[first:last] if kept else ()):
                self._shares[place] = row
            if places[last - 1] == self._end - 1:
                self._write()
            first = last

    def _write(self):
        """Write the part; samples that came to no batch are damaged."""
        names = [self.fed.reader.name_of(index) for index in range(self._begin, self._end)]
        is_damaged, damage = self._labels == _NO_LABEL, [None] * len(names)
        reasons = dict(self.fed.damaged) if is_damaged.any() else {}
        for place in numpy.flatnonzero(is_damaged):
            damage[place] = reasons.get(names[place], "damaged")
        columns = {
            "index": numpy.arange(self._begin, self._end), "name": names,
            "label": pyarrow.array(self._labels, mask=is_damaged),
            "score": pyarrow.array(self._scores, mask=is_damaged),
            "scores": self._shares, "damage": damage,
        }  # fmt: skip
        self.parts.write(self._begin, columns)
        self._open(self._end)


def main(words):
    """Answer one request."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What libraries print is talk.

    def say(line):
        print(line, file=sys.stderr, flush=True)

    try:
        answer = infer(json.loads(words[0]), say)
    except LoopError as error:
        answer = {"error": str(error).replace(" (%s)" % error.hint, ""), "hint": error.hint}
    except KeyboardInterrupt:
        answer = {"is_complete": False}
    answers.write(json.dumps(answer))
    answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
