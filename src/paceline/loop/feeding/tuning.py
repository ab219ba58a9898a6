"""How many threads: from what a sample costs, confirmed within two seconds, corrected later.

A sample takes ``work_s`` of a core and waits ``wait_s`` for storage. On ``cores`` cores, ``n``
threads make ``min(n / (work_s + wait_s), cores / work_s)`` samples a second, so that
``cores * (1 + wait_s / work_s)`` of them are busy; one more works while another hands over.
"""

import math
import os
import time
from collections import namedtuple

#: What was chosen, and the samples per second that the model expects and that were then measured.
Choice = namedtuple("Choice", ["num_threads", "expected_per_s", "measured_per_s"])
#: Core time of a sample, and what it waits for storage.
Cost = namedtuple("Cost", ["work_s", "wait_s"])

_MOST_THREADS = 128
#: A number is tried in so many windows of this length, by turns with the model's. More threads are
#: kept if they give so much more. Fewer are kept unless they give less than this: a thread that is
#: not needed is in the way of whoever trains. More are tried only where the model's number gives
#: less of what it expects.
_NUM_WINDOWS, _WINDOW_S = 3, 0.2
_GAIN_OF_MORE, _GAIN_OF_FEWER, _SHORT_FRAC = 1.04, 0.98, 0.9
#: The work is read again from a window whose rate is below this share of what its own samples
#: promise, so many times: cores that sleep between samples take longer for each. The wait stays as
#: it was read first, by few threads that did not queue for cores.
_READ_AGAIN_FRAC, _MOST_READINGS = 0.95, 3
#: Settled numbers are tried again after so long, if the consumer waits.
_AGAIN_S = 20.0
#: Samples from which the model is read, after the first batch, in which all is new.
_LEARNED_FROM = 24


def num_cores():
    """Cores that this process may use: its affinity, and the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)


def threads_per_core():
    """Processors of this process that share a core, as the system tells; 1 where it does not."""
    try:
        place = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
        mine = os.sched_getaffinity(0)
        cores = {open(place % cpu).read() for cpu in mine}  # noqa: SIM115 - a line of the kernel
    except (OSError, AttributeError):
        return 1
    return max(1, round(len(mine) / len(cores)))


def expected_per_s(cost, num_threads, cores):
    """Samples per second of so many threads, from what a sample costs."""
    return min(num_threads / (cost.work_s + cost.wait_s), cores / cost.work_s)


def enough_threads(cost, cores):
    """Fewest threads that use all cores, and a spare one."""
    busy = cores * (1 + cost.wait_s / cost.work_s)
    return max(1, min(_MOST_THREADS, math.ceil(busy + 0.75)))


def cost_of(spent):
    """What a sample costs, from where the time of some went.

    Waiting for a core or the interpreter shows in the work, too: only what reading waits beyond
    that is storage.
    """
    core_s = spent.work_cpu_s + spent.read_cpu_s + spent.around_cpu_s
    late_s = max(0.0, spent.work_s - spent.work_cpu_s)
    wait_s = max(0.0, spent.read_s - spent.read_cpu_s - late_s)
    return Cost(max(core_s / spent.samples, 1e-9), wait_s / spent.samples)


class Tuner:
    """Sets the number of threads of an engine while batches are taken from it.

    Args:
        engine: With ``resize``, ``spent`` and ``num_filled``.
        cores: To be used.
        clock: For the tests.

    Attributes:
        choice: Of type ``Choice``; None until samples were seen.
    """

    def __init__(self, engine, cores, clock=time.perf_counter):
        self.engine, self.cores, self.clock = engine, cores, clock
        self.choice, self.num_threads = None, cores
        self._start, self._filled, self._waited_s = clock(), 0, 0.0
        self._rates, self._trials, self._settled_at = {}, None, None
        self._before = self._cost = self._more = None
        self._num_readings = 0

    def after_batch(self, waited_s):
        """Note how long a batch was waited for; change the number if it is time for that."""
        self._waited_s += waited_s
        if self.choice is None:
            self._choose()
        elif self.clock() - self._start >= _WINDOW_S:
            self._end_window()

    def _choose(self):
        if self._before is None:
            self._before = self.engine.spent
        spent = self._spent()
        if spent.samples >= _LEARNED_FROM:
            self._cost = cost_of(spent)
            self._follow_model()

    def _spent(self):
        """Where the time of the samples since this window began went."""
        spent = self.engine.spent
        return type(spent)(*(now - before for now, before in zip(spent, self._before)))

    def _follow_model(self):
        self._num_readings += 1
        number = enough_threads(self._cost, self.cores)
        self.choice = Choice(number, expected_per_s(self._cost, number, self.cores), None)
        self._begin(number, number + max(1, number // 2))

    def _wants_more(self, rate):
        """Whether cores are idle by what samples cost now; notes that cost if so."""
        spent = self._spent()
        if self._rates or self._num_readings == _MOST_READINGS or not spent.samples:
            return False
        cost = self._cost._replace(work_s=cost_of(spent).work_s)
        number = enough_threads(cost, self.cores)
        is_short = rate < _READ_AGAIN_FRAC * expected_per_s(cost, number, self.cores)
        if number <= self.num_threads or not is_short:
            return False
        self._cost = cost
        return True

    def _begin(self, number, more):
        """Try a number by turns with fewer, and with ``more`` if it falls short."""
        fewer = max(1, number - max(1, number // 8))
        self._more, self._rates = min(_MOST_THREADS, more), {}
        self._trials = [] if fewer == number else [fewer, number] * (_NUM_WINDOWS - 1) + [fewer]
        self._try(number)

    def _try(self, number):
        self.num_threads = number
        self.engine.resize(number)
        self._start, self._filled, self._waited_s = self.clock(), self.engine.num_filled, 0.0
        self._before = self.engine.spent

    def _end_window(self):
        """A window counts only if the consumer waited in it: else it shows the device's rate."""
        now = self.clock()
        seconds = now - self._start
        rate = (self.engine.num_filled - self._filled) / seconds
        is_bound = self._waited_s > 0.2 * seconds
        if self._trials is None:
            self._rest(now, is_bound)
        elif not is_bound:
            self._trials = None
            self._settle(self.choice.num_threads, rate, now)
        elif self._wants_more(rate):
            self._follow_model()
        else:
            self._rates.setdefault(self.num_threads, []).append(rate)
            self._next_trial(now)

    def _next_trial(self, now):
        """Try what is left, or settle for what gave most for what it must give.

        Of a number's windows the best counts: other programs only ever slow one.
        """
        first = self.choice.num_threads
        rates = {number: max(found) for number, found in self._rates.items()}
        is_short = rates[first] < _SHORT_FRAC * self.choice.expected_per_s
        if not self._trials and is_short and self._more not in rates:
            self._trials = [self._more, first] * _NUM_WINDOWS
        if self._trials:
            self._try(self._trials.pop(0))
            return
        best = max(rates, key=lambda number: rates[number] / _needed(number, first))
        self._trials = None
        self._settle(best, rates[best], now)

    def _settle(self, number, rate, now):
        self.choice = self.choice._replace(num_threads=number, measured_per_s=rate)
        self._settled_at = now
        self._try(number)

    def _rest(self, now, is_bound):
        """Settled: look again after a while, if the consumer still waits."""
        self._start, self._filled, self._waited_s = now, self.engine.num_filled, 0.0
        if is_bound and now - self._settled_at > _AGAIN_S:
            number = self.choice.num_threads
            self._begin(number, number + 1)


def _needed(number, first):
    """What a number must give against the first to be taken instead."""
    return 1.0 if number == first else _GAIN_OF_MORE if number > first else _GAIN_OF_FEWER
