"""Marks of a PyTorch loop: waiting for a batch, backward, the optimizer's step, the loss.

Standard library and torch only; runs in the user's Python. No function of PyTorch that can fail for
the user is called through one of ours, so that no traceback shows a frame of the observer.
"""

import importlib
import operator
import resource
import sys

import _paceline_observer as observer

rows = observer.load("rows")
clock = observer.clock
_HERE = __file__
#: How often lines are written before the peak of memory is asked for again.
_LOOKS_PER_PEAK = 4
#: Between losses that are read from a GPU.
_BETWEEN_LOSSES_NS = 500_000_000
#: What is said where memory is full: of a GPU, of a host.
_FULL = ("out of memory", "can't allocate memory")
#: Set where a script is run to be diagnosed (`torch_trials`).
_TRIALS_VARIABLE = "PACELINE_TRIALS"


def install(log):
    """Put the marks in."""
    import torch
    import torch.autograd
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    marks = Marks(log, torch)
    marks.capture = observer.quietly(_capture, log, torch, marks.begins)
    log.facts.append(marks.memory)
    hooks = (
        optimizer.register_optimizer_step_pre_hook(marks.before_update),
        optimizer.register_optimizer_step_post_hook(marks.after_update),
    )
    log.at_off += [hook.remove for hook in hooks]
    log.at_off.append(_watch_loader(dataloader._BaseDataLoaderIter, marks))
    log.at_off.append(_watch_backward(torch.autograd, marks))
    _watch_failures(log, marks)
    if observer.os.environ.get(_TRIALS_VARIABLE):
        marks.trials = observer.load("torch_trials").install(log, torch, marks)
        log.heard = marks.trials.row


def _capture(log, torch, begins):
    """What takes the job out of the first steps."""
    capture = observer.load("torch_capture").Capture(log, torch, begins)
    plain = torch.optim.Optimizer._patch_step_function

    def met(optimizer):
        observer.quietly(capture.meet, optimizer)
        return plain(optimizer)

    torch.optim.Optimizer._patch_step_function = met
    return capture


class Marks:
    """Notes what the training thread comes to; `rows` says what that means."""

    def __init__(self, log, torch):
        self.log = log
        self.put = log.marks.append
        self.torch = torch
        self.tensor = torch.Tensor
        self.is_compiling = getattr(torch.compiler, "is_compiling", lambda: False)
        self.optimizers = {}
        self.capture = None
        self.trials = None
        self.seen_bytes = (0, 0)
        self.num_looks = 0
        self.next_loss_ns = 0
        self.pending = None
        self.stream = None
        self.device = None
        self.began = {}

    def begins(self):
        """Note what the process holds before a step; what is noted before the first one counts."""
        if hasattr(self.torch.optim.Optimizer.add_param_group, "__wrapped__"):
            # An optimizer that is being made loads this next (`torch._disable_dynamo`).
            observer.quietly(importlib.import_module, "torch._dynamo")
        names = {"held_bytes": "VmRSS:", "data_bytes": "VmData:"}
        self.began = {name: _status_bytes(which) for name, which in names.items()}

    def wait_begins(self):
        """A batch is asked for."""
        self.put((rows.MADE, clock(), None))

    def wait_ends(self):
        """The batch is there."""
        self.put((rows.CAME, clock(), None))

    def backward_begins(self, outputs):
        """``backward`` is called."""
        now = clock()
        kept = None
        loss = outputs[0] if len(outputs) == 1 else None
        if isinstance(loss, self.tensor) and loss.numel() == 1:
            if loss.is_cpu:
                # Kept as a tensor, its memory could not be used by the next step.
                kept = loss.item() if type(loss) is self.tensor else loss.detach()
            elif loss.is_cuda and now >= self.next_loss_ns:
                self._take_later(loss, now)
        self.put((rows.BACKWARD, now, kept))
        if self.capture is not None:
            self._captured(self.capture.backward)
        if self.trials is not None:
            self.trials.backward_comes()

    def _take_later(self, loss, now):
        """Keep a loss of a GPU, to be read once it is computed; one in half a second.

        Another thread may not read it: its calls would end a CUDA graph that is being captured.
        """
        cuda = self.torch.cuda
        if self.pending is not None or cuda.is_current_stream_capturing():
            return
        self.next_loss_ns = now + _BETWEEN_LOSSES_NS
        event = cuda.Event()
        event.record(cuda.current_stream(loss.device))
        self.pending = (loss.detach(), event)

    def _read_pending(self):
        """The loss that was kept, where the GPU has computed it; on a stream of its own."""
        cuda, (loss, event) = self.torch.cuda, self.pending
        if cuda.is_current_stream_capturing() or not event.query():
            return
        if self.stream is None:
            self.stream = cuda.Stream(loss.device)
        self.pending = None
        with cuda.stream(self.stream):
            self.put((rows.LOSS, 0, loss.item()))

    def before_update(self, _optimizer, _args, _kwargs):
        """An optimizer's step begins; it may hold a closure with all the rest."""
        if not self.is_compiling():
            self.put((rows.UPDATE, clock(), None))
            if self.trials is not None:
                self.trials.update_begins()

    def after_update(self, optimizer, _args, _kwargs):
        """An optimizer's step has ended: the row is complete."""
        if self.is_compiling():
            return
        now = clock()
        if self.pending is not None:
            observer.quietly(self._read_pending)
        number = self.optimizers.get(id(optimizer))
        if number is None:
            number = self._met(optimizer)
        self.put((rows.UPDATED, now, number))
        if self.capture is not None:
            self.put((rows.MUTED, clock(), None))
            self._captured(self.capture.step, optimizer)
            self.put((rows.HEARD, clock(), None))
        if self.trials is not None:
            self.log.settle()
            self.trials.update_ends(number)

    def _captured(self, seen, *args):
        """Tell the capture, and let it go once it is done."""
        observer.quietly(seen, *args)
        if self.capture.is_done:
            self.capture = None

    def ends_early(self):
        """Memory is full before all that is to be captured was seen: that is told as it is."""
        for optimizer in self.capture.optimizers:
            if id(optimizer) not in self.optimizers:
                self._met(optimizer)
        self.capture.fails()

    def _met(self, optimizer):
        """Number a new optimizer, and say what it is."""
        if not self.log.is_started:
            self.log.start()
        number = self.optimizers[id(optimizer)] = len(self.optimizers)
        observer.quietly(self._describe, optimizer, number)
        return number

    def _describe(self, optimizer, number):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        first = parameters[0]
        self.log.event(
            "optimizer",
            number=number,
            name=type(optimizer).__name__,
            num_parameters=sum(p.numel() for p in parameters),
            dtype=str(first.dtype).replace("torch.", ""),
        )
        if self.device is None:
            self.device = first.device
            self.log.event("device", torch=self.torch.__version__, **self._device_facts())

    def _device_facts(self):
        torch, device = self.torch, self.device
        facts = {"kind": device.type, "name": "", "memory_bytes": None}
        facts["num_threads"] = torch.get_num_threads()
        if device.type == "cuda":
            found = torch.cuda.get_device_properties(device)
            facts.update(name=found.name, memory_bytes=found.total_memory)
        elif device.type == "cpu":
            facts.update(memory_bytes=_allowed_bytes(), heap=_heap(), **self.began)
        return facts

    def memory(self):
        """Events of the peak so far, where it has grown, and of cores; called by the writer."""
        self.num_looks += 1
        if self.num_looks % _LOOKS_PER_PEAK != 1 and not self.log.is_closing:
            return []
        if self.device is not None and self.device.type == "cuda":
            cuda = self.torch.cuda
            seen = (cuda.max_memory_allocated(self.device), cuda.max_memory_reserved(self.device))
        else:
            seen = (0, _status_bytes("VmHWM:"))
        found = _scheduled()
        if max(seen) > 1.01 * max(self.seen_bytes):
            self.seen_bytes = seen
            names = ("allocated_bytes", "reserved_bytes")
            found.append(dict(zip(names, seen), event="memory", t=clock()))
        return found


def _scheduled():
    """How long the training thread has run, and stood in line for a core, where the kernel says."""
    try:
        with open("/proc/self/schedstat") as file:
            ran_ns, stood_ns = map(int, file.read().split()[:2])
    except (OSError, ValueError):
        return []
    return [{"event": "cores", "ran_ns": ran_ns, "stood_ns": stood_ns, "t": clock()}]


def _status_bytes(which):
    """What the process holds (VmRSS), held at most (VmHWM), or has as data (VmData)."""
    try:
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith(which))
    except (OSError, StopIteration):
        return 0


def _heap():
    """Whose heap tensors of a CPU lie in: the C library's, unless another one is put before it."""
    if "malloc" in observer.os.environ.get("LD_PRELOAD", ""):
        return ""
    return observer.quietly(observer.os.confstr, "CS_GNU_LIBC_VERSION") or ""


def _allowed_bytes():
    """The limit of the process's own data, where one is set."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def _watch_backward(autograd, marks):
    """Mark what ``backward`` calls first; ``torch.autograd.grad`` calls it too. What undoes it."""
    frame_of = sys._getframe
    log, plain = marks.log, autograd._make_grads

    def marked(outputs, *args, **kwargs):
        """``backward``, with its begin marked."""
        if frame_of(1).f_code.co_name == "backward":
            try:
                marks.backward_begins(outputs)
            except Exception as error:  # noqa: BLE001  As in `observer.quietly`.
                observer.quietly(log.off, error)
        return plain(outputs, *args, **kwargs)

    def undo():
        autograd._make_grads = plain

    autograd._make_grads = marked
    return undo


class _Plain:
    """What a loader has yielded, where it was marked before; an attribute of its own otherwise."""

    def __get__(self, owner, _kind=None):
        return self if owner is None else owner._paceline_yielded


def _watch_loader(iterator, marks):
    """Mark the first and the last thing that ``__next__`` of a loader does. What undoes it.

    It reads ``_profile_name`` first, once, and sets ``_num_yielded`` last; the name is also the
    last thing that the iterator is given before its workers start (PyTorch 1.9 to 2.13).
    """
    process = observer.os.getpid
    log, put = marks.log, marks.log.marks.append

    def get_name(self):
        put((rows.ASKED, clock(), None))
        return self.__dict__["_profile_name"]

    def set_name(self, value):
        """A loader names its iterator as it makes it: the first sign of one."""
        self.__dict__["_profile_name"] = value
        if process() == marks.process:
            if not log.is_started:
                log.start()
            put((rows.MADE, clock(), None))

    def set_yielded(self, value):
        """A loader counts the batches it hands out."""
        self._paceline_yielded = value
        if value:
            put((rows.CAME, clock(), None))
            if marks.capture is not None:
                observer.quietly(marks.capture.batch, self)

    def undo():
        del iterator._profile_name
        iterator._num_yielded = _Plain()

    marks.process = process()
    iterator._profile_name = property(get_name, set_name)
    iterator._num_yielded = property(operator.attrgetter("_paceline_yielded"), set_yielded)
    return undo


def _watch_failures(log, marks):
    """Write down what ends the script; what it prints stays as it is."""
    plain = sys.excepthook

    def hook(kind, error, trace):
        """Note the failure, then let it be told without our frames."""
        is_full = False
        if log.is_started and not log.is_off:
            is_full = observer.quietly(_note, log, kind, error, trace)
        plain(kind, error, _without_our_frames(trace))
        if is_full and marks.capture is not None:
            observer.quietly(marks.ends_early)

    sys.excepthook = hook


def _note(log, kind, error, trace):
    """Whether memory was full."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.insert(0, [code.co_filename, trace.tb_lineno, code.co_name])
        trace = trace.tb_next
    words = str(error).lower()
    is_full = "OutOfMemory" in kind.__name__ or any(one in words for one in _FULL)
    is_full |= kind is MemoryError
    log.settle()
    log.event(
        "failure",
        kind=kind.__name__,
        message=str(error)[:2000],
        is_out_of_memory=is_full,
        phase="backward" if log.made.is_in_backward else "forward",
        frames=frames[:40],
    )
    return is_full


def _without_our_frames(trace):
    head = trace
    while head is not None and head.tb_frame.f_code.co_filename == _HERE:
        head = head.tb_next
    at = head
    while at is not None:
        while at.tb_next is not None and at.tb_next.tb_frame.f_code.co_filename == _HERE:
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return head
