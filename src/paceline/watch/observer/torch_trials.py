"""Experiments inside a training script that is not edited: what a step takes as it is, and changed.

Standard library and torch only; runs in the user's Python. The script's own loop asks a loader for
batches: what it is handed decides what is tried. It gets its own batches, one batch again and
again, batches of the same loader with another number of workers, or several batches as one; and
between two steps a setting is made and taken back (`torch_settings`). A loop that asks no loader
ends its steps where an optimizer has stepped: settings are tried there, and its lines are timed.
When all is tried the process ends; it never comes to the script's own end.

With several ranks the first decides and writes down what is tried next; the others read it at the
same step, so that all stay in step.
"""

import json
import os
import statistics
import sys
import time

import _paceline_observer as observer

#: Set where trials are wanted: JSON with ``limit_s`` and ``skip``, names of trials to leave out.
TRIALS_VARIABLE = "PACELINE_TRIALS"
clock = observer.clock
_NUM_WARM_STEPS = 6
#: Updates of each optimizer without a batch of a loader, after which there is none.
_NUM_UNFED = 20
_NUM_KEPT_BATCHES = 4
_DRAIN_S = 2.0
#: Parts of a step, in the order of a row of `torch_steps`.
_PARTS = ("wait", "forward", "backward", "update")
_PATIENCE_S = 120.0


def install(log, torch, marks):
    """Put the trials in: every loader's ``__next__`` asks them first."""
    from torch.utils.data import dataloader

    trials = Trials(log, torch, marks, json.loads(os.environ[TRIALS_VARIABLE]))
    kind = dataloader._BaseDataLoaderIter
    plain_init, plain_next = kind.__init__, kind.__next__

    def __init__(self, loader):
        plain_init(self, loader)
        self._paceline_loader = loader
        trials.loader_begins(self)

    def __next__(self):
        """The next batch, or one that a trial repeats."""
        if trials.is_inside or trials.is_unfed or os.getpid() != trials.process:
            return plain_next(self)
        return trials.next_of(self, plain_next)

    kind.__init__, kind.__next__ = __init__, __next__
    return trials


class Trials:
    """What is tried now, and what was found."""

    def __init__(self, log, torch, marks, options):
        self.log, self.torch, self.marks, self.options = log, torch, marks, options
        self.process = os.getpid()
        self.settings = observer.load("torch_settings").Settings(torch, marks)
        self.scratch = self.settings.scratch = observer.load("scratch").install(log.folder)
        self.is_inside = self.is_unfed = False
        self.num_unfed = {}
        self.num_steps = 0
        self.has_updated = False
        self.kept = {}
        self.feeds = {}
        self.plan = []
        self.num_chunks = 0
        self.results = []
        self.block = None
        self.called = []
        self.rows = []
        self.began_s = 0.0
        self.since_ns = self.stood_ns = 0
        self.where = (None,)
        self.gpu = self.stamps = self.profile = None

    def loader_begins(self, iterator):
        """The script begins its workers: those that read a few files again begin with them.

        Workers that are begun later inherit what training made of the heap, and may keep memory
        that the script's own workers take anew for each batch.
        """
        workers, sampler = iterator._num_workers, iterator._paceline_loader.batch_sampler
        if self.is_inside or self.num_steps or not workers or sampler is None:
            return
        if os.getpid() == self.process:
            self.is_inside = True
            observer.quietly(self._begin_again, iterator)
            self.is_inside = False

    def _begin_again(self, iterator):
        how = observer.load("trial_plan").READ_AGAIN
        key = (id(iterator._paceline_loader), json.dumps(how))
        if key not in self.feeds:
            feed = self.feeds[key] = observer.load("feeds").feed_of(self.torch, how, iterator, [])
            feed.begin()
            feed.stays = True

    def row(self, row):
        """An optimizer has stepped."""
        self.has_updated = True
        self.rows.append(row)

    def backward_comes(self):
        """``backward`` is called."""
        self.settings.backward_comes()

    def update_begins(self):
        """An optimizer steps: that is none of the script's own lines."""
        if self.settings.lines is not None:
            self.settings.lines.waits(True)

    def update_ends(self, number):
        """The optimizer of a number has stepped."""
        self.num_unfed[number] = self.num_unfed.get(number, 0) + 1
        if self.is_unfed and number == self.ending:
            if self.block is not None and self.block.get("lines") and not self.block["seen"]:
                self.where = observer.load("torch_lines").loop_frame(sys._getframe(2))
            self._end_of_step()
            self.settings.batch_comes(True)
        elif not self.is_unfed and self.block is None and self.num_unfed[number] > _NUM_UNFED:
            self.is_unfed, self.ending = True, number
            self.num_steps = self.since_ns = 0
            self.results, self.called = [], []
        if self.settings.lines is not None:
            self.settings.lines.waits(False)

    def next_of(self, iterator, plain_next):
        """The batch that a loader gives now."""
        self.num_unfed = {}
        is_new_step = self.has_updated
        if is_new_step:
            self.has_updated = False
            self.where = (sys._getframe(2),)
            self._end_of_step()
            self.called = []
        if all(one is not iterator for one in self.called):
            self.called.append(iterator)
        if self.block is None:
            batch = plain_next(iterator)
            kept = self.kept.setdefault(id(iterator._paceline_loader), [])
            kept.append(batch)
            del kept[:-_NUM_KEPT_BATCHES]
        else:
            batch = self._fed(iterator)
        self.settings.batch_comes(is_new_step)
        return batch

    def _fed(self, iterator):
        """A batch of this block."""
        lines = self.settings.lines
        if lines is not None:
            lines.waits(True)
        self.marks.wait_begins()
        self.is_inside = True
        try:
            return self._feed(iterator).next()
        finally:
            self.is_inside = False
            self.marks.wait_ends()
            if lines is not None:
                lines.waits(False)

    def _feed(self, iterator):
        """Where batches come from in this block."""
        loader = iterator._paceline_loader
        how = self.block["feed"]
        key = (id(loader), json.dumps(how))
        if key not in self.feeds:
            kept = self.kept.get(id(loader), [])
            self.feeds[key] = observer.load("feeds").feed_of(self.torch, how, iterator, kept)
        return self.feeds[key]

    def _end_of_step(self):
        """A step is done: it counts, and the next block begins if this one is full."""
        now = clock()
        self.num_steps += 1
        rows, self.rows = self.rows, []
        if self.block is None:
            self._warm_step(now)
        else:
            self._count(now, rows)
        self.stood_ns = stood_ns()
        self.since_ns = clock()

    def _warm_step(self, now):
        device = self.marks.device
        if device is not None and device.type == "cuda":
            self.gpu = observer.load("torch_gpu")
            # A host that runs ahead would take blocks of far more steps than there is time for.
            self.torch.cuda.synchronize(device)
            now = clock()
        if self.since_ns:
            self.results.append((now - self.since_ns) / 1e9)
        if self.num_steps < _NUM_WARM_STEPS:
            return
        step_s = statistics.median(self.results)
        self.began_s = time.monotonic()
        self.facts = self._facts(step_s)
        self.log.event("trials", **self.facts)
        self.results = []
        self.is_inside = True
        self._next_block()
        self.is_inside = False

    def _facts(self, step_s):
        """What decides what is worth a trial."""
        loader = self.called[0]._paceline_loader if self.called else None
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        facts = {
            "step_s": step_s,
            "is_unfed": self.is_unfed,
            "num_cores": cores or 1,
            "num_threads": self.torch.get_num_threads(),
            "num_workers": getattr(loader, "num_workers", None),
            "prefetch_factor": getattr(loader, "prefetch_factor", None) or 2,
            "persistent": bool(getattr(loader, "persistent_workers", False)),
            "pinned": bool(getattr(loader, "pin_memory", False)),
            "batch": _batch_of(loader),
            "epoch_steps": observer.quietly(len, loader),
            "world_size": observer._world_size(),
            "rank": observer._rank(),
            "started_with": os.environ.get("OMP_NUM_THREADS"),
        }
        facts.update(self.settings.facts())
        return facts

    def _count(self, now, rows):
        block = self.block
        block["seen"] += 1
        taken_ns, waited_ns = now - self.since_ns, stood_ns() - self.stood_ns
        if self._has_begun():
            block["begins"].append([len(block["steps"]), taken_ns, waited_ns])
        if block["seen"] <= block["warm"]:
            if block["seen"] == block["warm"]:
                self._measure_begins()
            elif block["seen"] == block["warm"] - 1 and self.profile is not None:
                observer.quietly(self.profile.begin)
            elif block["seen"] == 1 and block.get("lines"):
                self.settings.lines_begin(*self.where)
            return
        block["steps"].append(taken_ns)
        if self.stamps is not None:
            self.stamps.stamp()
        block["stood"].append(waited_ns)
        for place, part in enumerate(_PARTS, 2):
            block["parts"][part] += sum(row[place] for row in rows)
        block["num_batches"] += sum(row[6] for row in rows)
        if len(block["steps"]) >= block["num_steps"] or self._is_hopeless():
            self.is_inside = True
            self._end_block()
            self._next_block()
            self.is_inside = False

    def _has_begun(self):
        """Whether a loader began an epoch in this step."""
        feeds = self._feeds_of(self.block)
        has_begun = any(feed.has_begun for feed in feeds)
        for feed in feeds:
            feed.has_begun = False
        return has_begun

    def _feeds_of(self, block):
        how = json.dumps(block["feed"])
        return [feed for key, feed in self.feeds.items() if key[1] == how]

    def _is_hopeless(self):
        """Whether a block is far slower than the script; ranks stay in step, so one alone asks."""
        steps = self.block["steps"]
        limit_ns = 2e9 * self.block["num_steps"] * self.block.get("times", 1) * self.facts["step_s"]
        if self.block["name"] in ("own", "replay"):
            return False
        return self.facts["world_size"] == 1 and len(steps) > 2 and sum(steps) > limit_ns

    def _measure_begins(self):
        self.block["machine"] = machine_use()
        self.block["cpu_ns"] = time.thread_time_ns()
        self.block["num_saves"] = self.scratch.num_saves
        if self.settings.lines is not None:
            self.settings.lines.settle()
        if self.gpu is not None:
            self.stamps = self.gpu.Stamps(self.torch, self.marks.device)
            self.stamps.stamp()

    def _end_block(self):
        block, self.block = self.block, None
        self._end_on_gpu(block)
        found = {"lines": self.settings.lines_end()} if block.get("lines") else {}
        self.settings.undo()
        block["machine"] = [b - a for a, b in zip(block["machine"], machine_use())]
        block["cpu_ns"] = time.thread_time_ns() - block["cpu_ns"]
        block["num_saves"] = self.scratch.num_saves - block["num_saves"]
        if block["is_last_use"]:
            feeds = [feed for feed in self._feeds_of(block) if not feed.stays]
            self.feeds = {k: v for k, v in self.feeds.items() if v not in feeds}
            for feed in feeds:
                feed.close()
        self.results.append(block)
        told = {k: v for k, v in block.items() if k not in ("seen", "is_last_use", "lines")}
        self.log.event("block", **told, **found)
        self.log.flush()

    def _end_on_gpu(self, block):
        """Steps as the GPU came to their ends, and what it did in them where that is recorded."""
        stamps, self.stamps = self.stamps, None
        profile, self.profile = self.profile, None
        if stamps is None:
            return
        block["steps"] = stamps.steps_ns()
        recorded = profile and observer.quietly(profile.end, stamps)
        if recorded is not None:
            self.log.event("gpu_steps", **recorded)

    def _next_block(self):
        """Begin the next block of the plan; end the process after the last."""
        while True:
            if not self.plan:
                self.plan = self._next_chunk()
            if not self.plan:
                self._finish()
            block = self.plan.pop(0)
            if block.get("probe"):
                observer.quietly(self._probe, block)
                continue
            rest = [one for one in self.plan if one.get("feed") == block["feed"]]
            is_last_use = not rest and block["feed"]["as"] == "loader"
            self.block = dict(block, steps=[], stood=[], begins=[], seen=0, num_batches=0)
            self.block.update(is_last_use=is_last_use, parts=dict.fromkeys(_PARTS, 0))
            for feed in [self._feed(iterator) for iterator in self.called]:
                if block.get("is_new"):
                    feed.renew()
            self.log.event("trial", name=block["name"])
            self.log.flush()
            self.settings.make(block["settings"])
            if block.get("is_profiled"):
                make = self.gpu.Profile
                self.profile = observer.quietly(make, self.torch, self.marks.device)
            if not block["warm"]:
                self._measure_begins()
            return

    def _next_chunk(self):
        """What is tried next, as the first rank decides it."""
        self.num_chunks += 1
        path = os.path.join(self.log.folder, "trials-%d.json" % self.num_chunks)
        if self.facts["rank"] == 0:
            elapsed_s = time.monotonic() - self.began_s
            known = (self.facts, self.results, elapsed_s, self.options, observer.load("doubt"))
            chunk = observer.load("trial_plan").chunk(self.num_chunks, *known)
            observer.write_whole(path, chunk)
            return chunk
        until = time.monotonic() + _PATIENCE_S
        while not os.path.exists(path) and time.monotonic() < until:
            time.sleep(0.005)
        with open(path) as file:
            return json.load(file)

    def _probe(self, block):
        """Measure the loader by itself: what it delivers, and what one batch of it costs."""
        inside = observer.load("torch_input")
        iterator = self.called[0]
        if block["probe"] == "drain":
            self.block = dict(block, feed={"as": "own"})
            found = inside.drained(self._feed(iterator), block["num_skipped"], _DRAIN_S)
            self.block = None
        else:
            found = inside.cost_of_a_batch(self.torch, iterator._paceline_loader)
        if found is not None:
            self.results.append(dict(found, name=block["probe"]))
            self.log.event("probe", name=block["probe"], **found)

    def _finish(self):
        """The end of the throwaway run."""
        self.settings.undo()
        self.log.event("trials_done", seconds=time.monotonic() - self.began_s)
        self.log.close()
        for child in _children():
            child.kill()
        os._exit(0)


def _batch_of(loader):
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size


def stood_ns(task="thread-self"):
    """Nanoseconds that a thread, this one if none is named, stood in line for a core so far."""
    try:
        with open("/proc/%s/schedstat" % task) as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def machine_use():
    """Seconds so far.

    By the clock, that the cores it may use were busy, of this process with its children, that its
    children stood in line for a core, and that the other threads of this process did.
    """
    found = os.times()
    own_s = found.user + found.system + found.children_user + found.children_system
    children = [_child_use(child.pid) for child in _children()]
    own_s += sum(used for used, _ in children)
    stood_s = sum(stood for _, stood in children)
    threads_s = _stood_s(os.getpid()) - stood_ns() / 1e9
    return [time.monotonic(), _busy_s(), own_s, stood_s, threads_s]


def _child_use(pid):
    """Seconds that a worker ran, and that its threads stood in line: a batch waits for them all."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            words = file.read().rpartition(")")[2].split()
        used_s = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0, 0.0
    return used_s, _stood_s(pid)


def _stood_s(pid):
    """Seconds that all threads of a process stood in line for a core."""
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return 0.0
    return sum(stood_ns("%d/task/%s" % (pid, task)) for task in tasks) / 1e9


def _busy_s():
    """Seconds that the cores which this process may use were busy so far."""
    ticks = 0
    try:
        cores = {"cpu%d" % one for one in os.sched_getaffinity(0)}
        with open("/proc/stat") as file:
            for line in file:
                name, *times = line.split()
                if name in cores:
                    user, nice, system, _, _, irq, soft, steal = map(int, times[:8])
                    ticks += user + nice + system + irq + soft + steal
    except (OSError, ValueError, AttributeError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK")


def _children():
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing.active_children() if multiprocessing else ()
