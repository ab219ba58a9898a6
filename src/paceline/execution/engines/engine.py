"""What every engine shares: the protocol, the memory cap, warm-up and timing.

Standard library only and old-Python syntax: this file runs beside each framework, in its Python.
An engine file defines ``serve(request, progress)`` and calls ``main(serve)``. The request is one
JSON line on standard input, or the file named by the first argument; JSON lines (progress, done,
error) go to the original standard output; the result goes to the file that the request names.
"""

import array
import gc
import importlib
import json
import math
import os
import sys
import time
import traceback

PROTOCOL = 1

#: Kinds of items that have a length.
SEQUENCES = ("text", "language")
#: Parts of the messages by which frameworks say that memory ran out.
_OOM_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "resource_exhausted",
    "resource exhausted",
    "oom when allocating",
    "failed to allocate",
    "not enough memory",
    "could not allocate",
    "unable to allocate",
    "alloc_failed",
)

#: Pages that a system hands out a second, roughly, and what of a sample's time they may vary by.
_PAGES_BYTES_PER_S = 2e9
_SPREAD_FRAC = 0.05


class RequestError(Exception):
    """The request cannot be met; the message is for the user."""

    def __init__(self, kind, message):
        super(RequestError, self).__init__(message)
        self.kind = kind


def main(serve):
    """Serve one request and end with status 0, also where the answer is an error event."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    die_with_parent()
    request = _read_request()
    is_talker = os.environ.get("RANK", "0") == "0"

    def send(**event):
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    def progress(**event):
        if is_talker:
            send(event="progress", **event)

    try:
        _cap_memory(request.get("memory_limit_bytes"))
        answer = serve(request, progress)
        if is_talker:
            _write_result(request["output"], answer)
            send(event="done", protocol=PROTOCOL)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            _leave(0)
    except RequestError as error:
        send(event="error", kind=error.kind, message=str(error), details="")
        _leave(1)
    except MemoryError as error:
        send(event="error", kind="oom", message="MemoryError: %s" % error, details="")
        _leave(1)
    except Exception as error:  # noqa: BLE001  The edge: a cell that fails is a record, not a crash.
        details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = "%s: %s" % (type(error).__name__, str(error)[:600])
        kind = "oom" if is_oom(message) else "raised"
        send(event="error", kind=kind, message=message, details=details[-4000:])
        _leave(1)


def described(framework, version, platform, devices, platform_version=None, **more):
    """What a Python can run on, as every engine answers."""
    return dict(
        more, framework=framework, framework_version=version,
        python_version=sys.version.split()[0], platform=platform,
        platform_version=platform_version, devices=devices,
    )  # fmt: skip


def _leave(status):
    """End at once: a rank that failed must not wait in a collective for the others.

    One that is done must not take the group's threads down either: now and then gloo aborts.
    """
    sys.stderr.flush()
    os._exit(status)


def _read_request():
    if len(sys.argv) > 1:
        with open(sys.argv[1]) as file:
            return json.load(file)
    return json.loads(sys.stdin.readline())


def _write_result(path, answer):
    temporary = path + ".part"
    with open(temporary, "w") as file:
        json.dump(answer, file, separators=(",", ":"))
    os.replace(temporary, path)


def imported(name):
    """A framework, where this Python has it.

    Raises:
        RequestError: It has not.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        text = "this Python has no %s (%s)" % (name, error)
        raise RequestError("no-framework", text) from None


def user_function(entry, request):
    """What stands in the user's module under an entry ``module:name``, and can be called.

    Raises:
        RequestError: Nothing does.
    """
    module_name, _, name = entry.partition(":")
    directory = request.get("directory") or os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    found = getattr(importlib.import_module(module_name), name, None)
    if not callable(found):
        raise RequestError("no-function", "no function `%s`" % entry)
    return found


def is_oom(message):
    """Whether a framework's message says that memory ran out."""
    lowered = message.lower()
    return any(sign in lowered for sign in _OOM_SIGNS)


def die_with_parent():
    """Ask Linux to end this process when the one that started it ends, however it ends."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(1)


def _cap_memory(limit_bytes):
    """Make allocations beyond the cap fail here, instead of the kernel ending somebody else."""
    if not limit_bytes:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit_bytes), hard))


def peak_resident_bytes():
    """Largest resident size this process has had."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def about_cell(request, kind):
    """What every engine tells of a cell beside its times.

    ``kind``: what one item of the model is: ``image``, ``text``, ``language``, ``features``.
    """
    return {
        "sample_unit": {"image": "images", "language": "tokens"}.get(kind, "samples"),
        "seq": request["seq"] if kind in SEQUENCES else None,
        "resident_bytes": peak_resident_bytes(),
    }


def time_steps(step, synchronize, settings, progress, agree=None):
    """Run ``step`` until it is steady, then keep samples until there are enough.

    Args:
        step: Callable that enqueues or runs one step.
        synchronize: Callable that returns when everything enqueued has run.
        settings: ``min_samples``, ``max_samples``, ``min_s``, ``max_s``, ``max_warmup_s``,
            ``min_sample_s``; with ``processors`` times are processor time, which other programs
            on the machine do not lengthen: this thread's, or that of all threads shared by so
            many if it is more.
        progress: Correction about the stages.
        agree: With several ranks, a callable that returns rank 0's value of a number, so that
            all of them do the same steps.

    Returns:
        A dict with every warm-up and every sample in seconds per step, and ``fresh_bytes``: pages
        that the system handed out anew in a step.
    """
    agree = agree or (lambda value: value)
    clock = _clock(settings.get("processors"))
    first_s = _timed(step, synchronize, 1, clock)
    progress(stage="warm-up", step_s=first_s)
    warmup_s, pages, is_steady = _warm_up(step, synchronize, settings, agree, clock)
    per_sample = agree(_steps_per_sample(warmup_s[-1], pages, settings))
    progress(stage="measuring", step_s=warmup_s[-1])
    gc.collect()
    gc.disable()
    before = _handed_out_bytes()
    try:
        samples_s = _sample(step, synchronize, per_sample, settings, agree, clock)
    finally:
        gc.enable()
    fresh = None if before is None else _handed_out_bytes() - before
    return {
        "fresh_bytes": None if fresh is None else fresh / (per_sample * len(samples_s)),
        "first_step_s": first_s,
        "warmup_s": warmup_s,
        "is_steady": is_steady,
        "steps_per_sample": per_sample,
        "samples_s": samples_s,
    }


def _handed_out_bytes():
    """Bytes of pages that this process was given so far; None where a fault gives more than one."""
    try:
        import resource

        with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
            if "[always]" in file.read():
                return None
    except (ImportError, IOError):
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()


def _clock(processors):
    """Clocks of which the one counts that goes furthest."""
    if not processors:
        return lambda: (time.perf_counter(),)
    # What one thread does alone takes its time whole, however many threads there are.
    return lambda: (time.thread_time(), time.process_time() / processors)


def _timed(step, synchronize, count, clock):
    synchronize()
    start = clock()
    for _ in range(count):
        step()
    synchronize()
    return max(end - begin for begin, end in zip(start, clock())) / count


def _warm_up(step, synchronize, settings, agree, clock):
    """Steps until the median of the last five agrees with that of the five before within 5 %.

    Their times, and how many bytes of pages each of them was given.
    """
    taken, pages, begin = [], [], time.perf_counter()
    while True:
        before = _handed_out_bytes()
        taken.append(_timed(step, synchronize, 1, clock))
        pages.append(0 if before is None else _handed_out_bytes() - before)
        is_over = time.perf_counter() - begin > settings["max_warmup_s"]
        verdict = 2 if _is_steady(taken) else (1 if is_over and len(taken) >= 2 else 0)
        verdict = agree(verdict)
        if verdict:
            return taken, pages, verdict == 2


def _is_steady(taken):
    if len(taken) < 10:
        return False
    return abs(median(taken[-5:]) / median(taken[-10:-5]) - 1) < 0.05


def _steps_per_sample(step_s, pages, settings):
    """So many steps that a sample is long against the clock and one synchronisation.

    And so many that the pages of a sample vary by little of its time: a heap gives its end back in
    some steps and not in others, by chance, and training takes the mean of them. Samples take five
    times as long as asked at most.
    """
    step_s = max(step_s, 1e-9)
    last = pages[-10:]
    spread_s = math.sqrt(_variance(last)) / _PAGES_BYTES_PER_S
    wanted = (spread_s / step_s / _SPREAD_FRAC) ** 2
    allowed = 5 * settings["min_s"] / (settings["min_samples"] * step_s)
    return max(1, math.ceil(settings["min_sample_s"] / step_s), int(min(wanted, allowed)))


def _variance(values):
    mean = sum(values) / float(len(values))
    return sum((value - mean) ** 2 for value in values) / len(values)


def _sample(step, synchronize, per_sample, settings, agree, clock):
    taken, begin = [], time.perf_counter()
    while True:
        taken.append(_timed(step, synchronize, per_sample, clock))
        spent = time.perf_counter() - begin
        is_enough = len(taken) >= settings["min_samples"] and spent >= settings["min_s"]
        is_over = spent >= settings["max_s"] or len(taken) >= settings["max_samples"]
        if agree(1 if is_enough or is_over else 0):
            return taken


def median(values):
    """Middle value."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def unsupported(request, **supported):
    """Refuse what an engine cannot do, before anything is built.

    ``supported``: for each key of the request, the values that the engine knows.
    """
    for key, values in supported.items():
        if request[key] not in values:
            text = "this engine has no %s `%s`; it has %s"
            known = ", ".join(str(value) for value in values)
            raise RequestError("unsupported", text % (key, request[key], known))


def sample_inputs(kind, shape, batch, seq, vocabulary, seed=7):
    """The same pseudo-random inputs in every framework: a flat buffer and its shape.

    Images are floats in -1 … 1, tokens 64-bit integers below ``vocabulary``. A linear congruential
    generator keeps them equal across Python and NumPy versions.
    """
    full = [batch] + ([seq] if kind in SEQUENCES else list(shape))
    count = 1
    for extent in full:
        count *= extent
    state, values = seed, []
    for _ in range(min(count, 65521)):
        state = (1103515245 * state + 12345) % 2147483648
        values.append(state >> 8)
    if kind in SEQUENCES:
        unit = array.array("q", [value % vocabulary for value in values])
    else:
        unit = array.array("f", [value / 4194304.0 - 1.0 for value in values])
    buffer = unit * (count // len(unit) + 1)
    del buffer[count:]
    return buffer, full
