"""What a GPU does in a few steps of a script, and when those steps end on it.

Standard library and torch only; runs in the user's Python. The host runs ahead of a GPU, so steps
are told apart by events that the GPU itself comes to.
"""

import time

#: What activities are called in a record: a collective, a kernel, a copy from pageable memory, one
#: from pinned memory, one to the host, one between GPUs, one within the GPU.
_COLLECTIVE, _KERNEL, _PAGEABLE, _PINNED, _TO_HOST, _BETWEEN, _WITHIN = "nkhpdbw"
#: Words of names of copies, as CUPTI has them; the first that is there decides.
_COPIES = (
    ("HtoD (Pageable", _PAGEABLE),
    ("HtoD", _PINNED),
    ("DtoH", _TO_HOST),
    ("PtoP", _BETWEEN),
)
_MOST_ACTIVITIES = 300_000


class Stamps:
    """When steps end, as the device comes to it.

    Attributes:
        events: One for each end, and one before the first.
    """

    def __init__(self, torch, device):
        self.cuda, self.device = torch.cuda, device
        self.events = []

    def stamp(self):
        """The end of a step has been asked of the GPU."""
        event = self.cuda.Event(enable_timing=True)
        event.record(self.cuda.current_stream(self.device))
        self.events.append(event)

    def steps_ns(self):
        """What each step took; waits for the last."""
        self.cuda.synchronize(self.device)
        pairs = zip(self.events, self.events[1:])
        return [int(1e6 * first.elapsed_time(second)) for first, second in pairs]


class Profile:
    """A profiler that is ready: what it does to be so is no part of a step."""

    def __init__(self, torch, device):
        self.cuda, self.device = torch.cuda, device
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        self.profiler = torch.profiler.profile(activities=kinds)
        self.profiler.prepare_trace()

    def begin(self):
        """Record from now on; the GPU's clock is set beside the host's."""
        self.cuda.synchronize(self.device)
        self.profiler.start_trace()
        self.origin = self.cuda.Event(enable_timing=True)
        self.origin.record(self.cuda.current_stream(self.device))
        self.origin.synchronize()
        self.origin_ns = time.time_ns()

    def end(self, stamps):
        """What the GPU did between stamps, as `record` gives it."""
        self.cuda.synchronize(self.device)
        self.profiler.stop_trace()
        bounds = [int(1e6 * self.origin.elapsed_time(one)) for one in stamps.events]
        activities = self.profiler.profiler.kineto_results.events()
        return record(activities, self.origin_ns, bounds)


def record(activities, origin_ns, bounds_ns):
    """Activities of a profiler as columns.

    Args:
        activities: Of Kineto.
        origin_ns: Its clock, where times of the record begin.
        bounds_ns: Where steps begin and end, since then.

    Returns:
        ``bounds_ns``; of what ran on the device within them ``kinds`` (a letter each), ``streams``,
        ``starts_ns`` and ``durations_ns``; and ``calls`` of the runtime: how many of a name, and
        what they took of the host.
    """
    first_ns, last_ns = bounds_ns[0], bounds_ns[-1]
    rows, calls = [], {}
    for one in activities:
        start_ns, name = one.start_ns() - origin_ns, one.name()
        duration_ns = one.duration_ns()
        if start_ns + duration_ns <= first_ns or start_ns >= last_ns:
            continue
        if "CUDA" in str(one.device_type()):
            if not _is_note(one) and len(rows) < _MOST_ACTIVITIES:
                rows.append((start_ns, duration_ns, one.device_resource_id(), _kind(name)))
        elif name.startswith("cu"):
            number, taken_ns = calls.get(name, (0, 0))
            calls[name] = (number + 1, taken_ns + duration_ns)
    rows.sort()
    return {
        "bounds_ns": bounds_ns,
        "kinds": "".join(row[3] for row in rows),
        "streams": [row[2] for row in rows],
        "starts_ns": [row[0] for row in rows],
        "durations_ns": [row[1] for row in rows],
        "calls": calls,
    }


def _is_note(activity):
    """Whether it is a span that somebody named, with the work inside told besides."""
    told = getattr(activity, "is_user_annotation", None)
    return activity.name().startswith("nccl:") or bool(told is not None and told())


def _kind(name):
    if name.startswith("Memcpy"):
        return next((kind for word, kind in _COPIES if word in name), _WITHIN)
    return _COLLECTIVE if name.startswith("nccl") else _KERNEL
