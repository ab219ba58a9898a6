"""What this host feeds from some data, by stage: ``python -m paceline.loop.feeding.measured``.

The request is one JSON object on the command line, the answer one on standard output, so that
``paceline feed FOLDER`` can ask the Python that has torch.
"""

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..decode import LIMITS, DamagedSample, Recipe, crop_box, jpeg_header, pixels_of, shrink
from ..errors import LoopError
from ..readers import open_reader
from .feeder import Feed, feed
from .filling import Filler
from .tuning import num_cores, threads_per_core

_NUM_SAMPLES, _NUM_PER_CORE, _NUM_TRIED = 160, 8, 32
#: Shorter side of files that were shrunk beforehand, against the side that is sent.
_SHRUNK = 256 / 224
_QUALITY = 90
_MOST_LISTED = 10_000

#: Seconds of a core, and of the clock, that one sample takes in a stage.
Stage = namedtuple("Stage", ["name", "core_s", "wall_s"])


def _copied(timed, reader, index, out, bad):
    """Bytes of a sample that was copied; a damaged one goes on the list."""
    try:
        data = timed.call("read", reader.read, index).data
        timed.call("copy", np.copyto, out, data)
    except DamagedSample as error:
        bad.append((reader.name_of(index), str(error)))
        return 0
    return data.nbytes


class _Timed:
    """Times of named stages, summed."""

    def __init__(self):
        self.core_s, self.wall_s = Counter(), Counter()

    def call(self, name, function, *arguments):
        """Call a function, and count its seconds of core and of clock under a name."""
        core, wall = time.thread_time(), time.perf_counter()
        found = function(*arguments)
        self.core_s[name] += time.thread_time() - core
        self.wall_s[name] += time.perf_counter() - wall
        return found

    def stages(self, count):
        """Seconds of each name per item, over ``count`` items."""
        return [Stage(name, self.core_s[name] / count, self.wall_s[name] / count)
                for name in self.core_s]  # fmt: skip


def measure(request):
    """Facts, stages, rate and remedies of some data, as a dictionary.

    Args:
        request: With ``data``, ``size``, ``threads`` (None: chosen), ``seconds``, ``check``,
            ``window`` and ``dtype`` (of token files).

    Raises:
        LoopError: Nothing that can be read.
    """
    reader = open_reader(request["data"], window=request["window"], dtype=request["dtype"])
    recipe = Recipe(request["size"], 0.875, False, False)
    damaged = [tuple(one) for one in reader.damaged]
    picked = _spread(len(reader), max(_NUM_SAMPLES, _NUM_PER_CORE * num_cores()))
    if reader.kind == "image":
        facts, stages, bad = _image_stages(reader, recipe, picked)
    else:
        facts, stages, bad = _other_stages(reader, picked)
    damaged += bad
    run = _run(reader, recipe, request)
    damaged += run.pop("damaged")
    checked = len(picked)
    if request["check"]:
        damaged, checked = damaged + _checked(reader, recipe), len(reader)
    named = sorted(dict(damaged).items())
    return {
        "kind": reader.kind, "num_samples": len(reader), "num_classes": len(reader.classes or ()),
        "num_cores": num_cores(), "threads_per_core": threads_per_core(),
        "facts": facts, "stages": [stage._asdict() for stage in stages],
        "remedies": _remedies(reader, recipe, picked, stages) if reader.kind == "image" else [],
        "damaged": named[:_MOST_LISTED], "num_damaged": len(named), "num_checked": checked, **run,
    }  # fmt: skip


def _spread(count, wanted):
    """Some indices, evenly over all."""
    return sorted({index * count // wanted for index in range(min(count, wanted))} or set())


def _image_stages(reader, recipe, picked):
    """Facts and stages of images, with all hardware threads at work: two of a core share it."""
    cores = min(num_cores(), len(picked))
    begin = threading.Barrier(cores)
    with ThreadPoolExecutor(cores) as pool:
        parts = [picked[number::cores] for number in range(cores)]
        found = list(pool.map(lambda part: _looked_at(reader, recipe, part, begin), parts))
    timed, looks, bad = _Timed(), [], []
    for times, seen, broken in found:
        timed.core_s.update(times.core_s)
        timed.wall_s.update(times.wall_s)
        looks += seen
        bad += broken
    if not looks:
        raise LoopError("none of %d samples can be read" % len(picked), "first: %s: %s" % bad[0])
    mean = np.mean([look[1:] for look in looks], axis=0)
    formats = Counter(look[0] for look in looks)
    facts = {"formats": formats, "disk_bytes": mean[0], "width": mean[1], "height": mean[2]}
    return facts, timed.stages(len(looks)), bad


def _looked_at(reader, recipe, part, begin):
    """Times of some images in this thread; of each format, bytes, width, height; and the bad."""
    timed, looks, bad = _Timed(), [], []
    out = np.empty((recipe.size, recipe.size, 3), np.uint8)
    try:
        with contextlib.suppress(DamagedSample):  # Once before it counts: buffers are made.
            _both(reader.read(part[0]).data, recipe, out)
    finally:
        begin.wait()  # Whatever happened here: the others wait for this thread, too.
    for index in part:
        try:
            data = timed.call("read", reader.read, index).data
            pixels, _ = timed.call("decode", pixels_of, data, recipe, LIMITS)
            timed.call("resize", _resize, pixels, recipe, out)
        except DamagedSample as error:
            bad.append((reader.name_of(index), str(error)))
            continue
        looks.append((_kind_of(data), len(data), pixels.shape[1], pixels.shape[0]))
    return timed, looks, bad


def _resize(pixels, recipe, out):
    top, left, height, width = crop_box(pixels.shape[0], pixels.shape[1], recipe)
    shrink(pixels[top : top + height, left : left + width], out)


def _kind_of(data):
    if bytes(data[:2]) == b"\xff\xd8":
        return "progressive JPEG" if jpeg_header(data).is_progressive else "JPEG"
    known = {b"\x89PNG": "PNG", b"RIFF": "WEBP", b"GIF8": "GIF"}
    return known.get(bytes(data[:4]), "other")


def _other_stages(reader, picked):
    timed, bad, num_bytes = _Timed(), [], 0
    out = np.empty((max(1, len(picked)), *reader.shape), reader.dtype)
    for row, index in enumerate(picked):
        num_bytes += _copied(timed, reader, index, out[row], bad)
    count = max(1, len(picked) - len(bad))
    facts = {"formats": {reader.kind: count}, "disk_bytes": num_bytes / count}
    return {**facts, "width": 0, "height": 0}, timed.stages(count), bad


def _run(reader, recipe, request):
    """What the whole feed gives for some seconds, with threads as it chooses them."""
    said = []
    fed = feed(
        reader, 32, size=recipe.size, crop=recipe.crop_frac, threads=request["threads"],
        damaged="skip", say=said.append,
    )  # fmt: skip
    cpu, start, samples, end = time.process_time(), None, 0, None
    while end is None or time.perf_counter() < end:
        for inputs, _ in fed:
            now = time.perf_counter()
            if start is None:  # Threads start and buffers fill before the first batch.
                start, end, cpu = now, now + request["seconds"], time.process_time()
                continue
            samples += len(inputs)
            if now > end:
                break
        else:
            if end is None or not samples:
                break
    wall_s = max(1e-9, time.perf_counter() - (start or 0))
    fed.close()
    choice = fed.choice
    return {
        "num_threads": request["threads"] or (choice[0] if choice else num_cores()),
        "is_chosen": request["threads"] is None,
        "measured_per_s": samples / wall_s if samples else None,
        "core_s": (time.process_time() - cpu) / samples if samples else None,
        "damaged": [tuple(one) for one in fed.damaged],
    }


def _checked(reader, recipe):
    """Every sample that cannot be read."""
    fed = Feed(
        Filler(reader, recipe, LIMITS), 32, shuffle=False, seed=0, last="keep", damaged="skip",
        delivery=_Dropped(), num_threads=num_cores(), num_processes=None, ahead=2,
        say=lambda line: None,
    )  # fmt: skip
    for _ in fed:
        pass
    return [tuple(one) for one in fed.damaged]


class _Dropped:
    """A delivery that lets every batch go."""

    new_arrays = None

    def __call__(self, filled_batches):
        for engine, (filled, _, _, _) in filled_batches:
            engine.give_back(filled.buffer, True)
            yield from ()


def _remedies(reader, recipe, picked, stages):
    """Core time of a sample after a change, each tried on some of the samples."""
    read_s = next(stage.core_s for stage in stages if stage.name == "read")
    tried = {name: [] for name in ("now", "scaled", "shrunk", "raw")}
    out = np.empty((recipe.size, recipe.size, 3), np.uint8)
    for index in picked[:: max(1, len(picked) // _NUM_TRIED)]:
        try:
            data = reader.read(index).data
            pixels = pixels_of(data, recipe, LIMITS)[0].copy()
        except DamagedSample:
            continue
        scaled = recipe._replace(is_scaled=True)
        tried["now"].append(read_s + _core_s(_both, data, recipe, out))
        tried["scaled"].append(read_s + _core_s(_both, data, scaled, out))
        shrunk = _shrunk(pixels, recipe)
        if shrunk is not None:
            tried["shrunk"].append(read_s + _core_s(_both, shrunk, recipe, out))
        tried["raw"].append(read_s + _core_s(np.copyto, out.copy(), out))
    now_s = float(np.mean(tried.pop("now"))) if tried["now"] else 0.0
    return [
        {"change": name, "core_s": float(np.mean(found)), "before_core_s": now_s}
        for name, found in tried.items() if found
    ]  # fmt: skip


def _both(data, recipe, out):
    _resize(pixels_of(data, recipe, LIMITS)[0], recipe, out)


def _core_s(function, *arguments):
    function(*arguments)
    start = time.thread_time()
    function(*arguments)
    return time.thread_time() - start


def _shrunk(pixels, recipe):
    """The image as a JPEG whose shorter side is little longer than what is sent."""
    try:
        from PIL import Image
    except ImportError:
        return None
    image, side = Image.fromarray(pixels), min(pixels.shape[:2])
    scale = recipe.size * _SHRUNK / side
    if scale < 1:
        image = image.resize([max(1, round(length * scale)) for length in image.size])
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def main(words):
    """Answer one request."""
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What libraries print is talk.
    try:
        answer = measure(json.loads(words[0]))
    except LoopError as error:
        answer = {"error": str(error).replace(" (%s)" % error.hint, ""), "hint": error.hint}
    print(json.dumps(answer))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
