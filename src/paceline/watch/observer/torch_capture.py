"""Takes the job out of the first steps: models, inputs, optimizer, precision, accumulation.

Standard library and torch only; runs in the user's Python. The models are found by the parameters
that optimizers hold, and seen for one step by hooks of their own. What is traced is a copy without
values, by the code that traces models in a worker; the folder of that code is given by the watcher.
"""

import _thread
import contextlib
import gc
import importlib
import os
import random
import sys
import time
import types
import warnings

import _paceline_observer as observer

#: Folder of the code that traces; nothing is traced without.
WORKERS_VARIABLE = "PACELINE_TRACE_WORKERS"
#: Set where the script is run for its job alone: it ends when that is written.
ONLY_VARIABLE = "PACELINE_CAPTURE_ONLY"
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "_FabricModule": "_forward_module",
}
_INTEGERS = ("torch.int64", "torch.int32")


class Capture:
    """Watches until each optimizer has stepped once, then writes what it saw."""

    def __init__(self, log, torch, begins):
        self.log = log
        self.begins = begins
        self.torch = torch
        self.is_done = False
        self.optimizers = []
        self.loader = None
        self._stepped = []
        self._handles = []
        self._segments = [[]]
        self._precision = self._channels_last = None
        self._has_looked = False
        self._num_unseen = 0

    def meet(self, optimizer):
        """An optimizer is made."""
        if not self.is_done and not any(one is optimizer for one in self.optimizers):
            self.optimizers.append(optimizer)
            self._has_looked = False
            self.begins()

    def batch(self, iterator):
        """A batch has come: the models that it goes to are looked for before they are called."""
        if self.is_done or not self.optimizers:
            return
        if not self._has_looked:
            self.begins()
        sampler = getattr(iterator, "_index_sampler", None)
        self.loader = {
            "num_workers": getattr(iterator, "_num_workers", None),
            "batch": getattr(sampler, "batch_size", None),
        }
        self._look()

    def backward(self):
        """A backward pass begins: what is called next belongs to another one.

        Where the gradients that the same pass made before are gone, no update followed it: a scaler
        of losses left that step out, and it is none.
        """
        if self.is_done or not self._segments[-1]:
            return
        called = [call["module"] for call in self._segments[-1]]
        is_again = any(_is_same_pass(one, called) for one in self._segments[:-1])
        if is_again and observer.quietly(_is_clear, called):
            del self._segments[:-1]
        self._segments.append([])

    def step(self, optimizer):
        """An optimizer has stepped; the job is known once all have, after they were seen."""
        if self.is_done:
            return
        is_again = any(one is optimizer for one in self._stepped)
        if not any(one is optimizer for one in self.optimizers):
            self.optimizers.append(optimizer)
        self._stepped.append(optimizer)
        if not any(self._segments):
            # No batch was seen to come: the models are looked for now, and seen in the next step.
            self._stepped = []
            self._num_unseen += 1
            if self._num_unseen > 3 * len(self.optimizers):
                self._end(None)
            else:
                self._look()
            return
        if is_again or len(self._stepped) >= len(self._alive()):
            self._finish()

    def fails(self):
        """The script ends before all that it has stepped: its job is what was seen so far."""
        if not self.is_done and any(self._segments):
            self._stepped = self._stepped or self._alive()
            self._finish()

    def _alive(self):
        return [one for one in self.optimizers if one.param_groups[0]["params"]]

    def _look(self):
        if self._has_looked:
            return
        self._has_looked = True
        self._remove()
        for module in _hooked_modules(self.torch, self._trained()):
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after, with_kwargs=True))
        leaf = _first_leaf(self.torch, self._trained())
        if leaf is not None:
            self._handles.append(leaf.register_forward_pre_hook(self._see_precision))

    def _trained(self):
        return {
            id(p) for one in self.optimizers for group in one.param_groups for p in group["params"]
        }

    def _remove(self):
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _is_idle(self, module):
        compiling = getattr(self.torch.compiler, "is_compiling", lambda: False)
        return compiling() or not module.training or not self.torch.is_grad_enabled()

    def _before(self, module, args, kwargs):
        if self._is_idle(module):
            return
        observer.quietly(self._note_call, module, args, kwargs)

    def _after(self, module, _args, _kwargs, output):
        if self._is_idle(module):
            return
        for call in reversed(self._segments[-1]):
            if call["module"] is module and call["output"] is None:
                call["output"] = [list(t.shape) for t in _tensors(self.torch, output)]
                return

    def _note_call(self, module, args, kwargs):
        spec = _spec(self.torch, (args, kwargs))
        call = {"module": module, "inputs": spec, "output": None}
        self._segments[-1].append(call)
        if self._precision is None:
            self._precision = _autocast(self.torch, module)
            self._channels_last = _is_channels_last(self.torch, module, (args, kwargs))

    def _see_precision(self, module, _args):
        if not self._is_idle(module):
            found = observer.quietly(_autocast, self.torch, module)
            self._precision = found or self._precision

    def _finish(self):
        self._remove()
        began = time.perf_counter()
        job = observer.quietly(self._job)
        if job is not None and os.environ.get(WORKERS_VARIABLE) and observer._rank() == 0:
            self._trace(job)
        self._end(job)
        self.log.event("captured", seconds=time.perf_counter() - began)

    def _end(self, job):
        self.is_done = True
        self._remove()
        if observer._rank() == 0:
            facts = None if job is None else job["facts"]
            found = {"facts": facts, "report": job and job["report"], "error": job and job["error"]}
            path = os.path.join(self.log.folder, "capture.json")
            if not os.path.exists(path):
                observer.write_whole(path, found)
        if os.environ.get(ONLY_VARIABLE):
            self.log.close()
            os._exit(0)
        self.optimizers = self._stepped = self._segments = ()

    def _job(self):
        """Facts of the step, and what the tracer needs."""
        calls, num_seen = _one_microbatch([one for one in self._segments if one])
        count = [sum(one is other for other in self._stepped) for one in self._stepped]
        microbatches = max(1, num_seen // max(count))
        calls = _outermost(calls)
        wrappers = sorted({type(c["module"]).__name__ for c in calls} & set(_WRAPPERS))
        models = [_unwrapped(c["module"]) for c in calls]
        is_compiled = "OptimizedModule" in wrappers or any(
            getattr(m, "_compiled_call_impl", None) is not None for m in models
        )
        wrappers += [
            type(p).__name__
            for p in _holders(self.torch, models)
            if type(p).__name__ in _WRAPPERS and type(p).__name__ not in wrappers
        ]
        batch, place = _batch_of(calls[0]["inputs"], self.loader)
        length = _length_of(calls[0]["inputs"], place)
        parameters = {id(p): p for m in models for p in m.parameters()}
        facts = {
            "model": " + ".join(dict.fromkeys(type(m).__name__ for m in models)),
            "num_parameters": sum(p.numel() for p in parameters.values()),
            "num_models": len({id(m) for m in models}),
            "batch": batch,
            "seq": length,
            "optimizer": [_optimizer(one) for one in self._distinct_stepped()],
            "precision": self._precision,
            "channels_last": self._channels_last,
            "compiler": "compiled" if is_compiled or "OptimizedModule" in wrappers else "eager",
            "microbatches": microbatches,
            "world_size": observer._world_size(),
            "wrappers": [w for w in wrappers if w != "OptimizedModule"],
            "loader": self.loader,
            "inputs": [t[:2] for t in _leaves(calls[0]["inputs"])],
        }
        how = {"calls": calls, "models": models, "batch": batch, "place": place, "length": length}
        return {"facts": facts, "report": None, "error": None, "how": how}

    def _distinct_stepped(self):
        return list({id(one): one for one in self._stepped}.values())

    def _trace(self, job):
        try:
            with _as_if_nothing_happened(self.torch):
                job["report"], job["error"] = _traced(self.torch, job["facts"], **job["how"])
        except Exception as error:  # noqa: BLE001  A model's own code raises anything.
            job["error"] = "%s: %s" % (type(error).__name__, error)


def _is_same_pass(segment, modules):
    return [call["module"] for call in segment] == modules


def _is_clear(modules):
    """Whether modules have no gradients: none at all, or zeros in what comes last."""
    found = [p.grad for m in modules for p in m.parameters() if p.grad is not None]
    if not found:
        return True
    last = found[-1].to_local() if hasattr(found[-1], "to_local") else found[-1]
    return not bool(last.any())


def _one_microbatch(segments):
    """Calls of one microbatch, and how many a step has; all calls where backward passes differ."""
    signatures = [[id(call["module"]) for call in one] for one in segments]
    if all(one == signatures[0] for one in signatures):
        return segments[0], len(segments)
    return [call for one in segments for call in one], 1


def _outermost(calls):
    """Calls without those that another call made."""
    inside = {id(m) for call in calls for m in list(call["module"].modules())[1:]}
    return [call for call in calls if id(call["module"]) not in inside] or calls


def _modules(torch):
    return [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]


def _holds(module, trained):
    return any(id(p) in trained for p in module.parameters())


def _hooked_modules(torch, trained):
    """Modules that may be called with a batch: roots that hold what is trained, and below them.

    Below a root, the children that hold something of it, down to where they are several.
    """
    everything = _modules(torch)
    children = {id(child) for m in everything for child in m._modules.values() if child is not None}
    found = []
    for root in everything:
        if id(root) in children or "_parameters" not in root.__dict__:
            continue
        at = [root] if _holds(root, trained) else []
        while at:
            found += at
            below = [
                c for m in at for c in m._modules.values() if c is not None and _holds(c, trained)
            ]
            is_loose = len(at) == 1 and (len(below) == 1 or _is_never_called(at[0]))
            at = below if is_loose else []
    return found


def _is_never_called(module):
    """Whether a module has no forward of its own, or a training step beside it."""
    is_plain = getattr(type(module).forward, "__name__", "") == "_forward_unimplemented"
    return is_plain or callable(getattr(module, "training_step", None))


def _first_leaf(torch, trained):
    for module in _modules(torch):
        own = module.__dict__.get("_parameters") or {}
        weight = own.get("weight")
        if weight is not None and id(weight) in trained and weight.ndim > 1:
            return module
    return None


def _holders(torch, models):
    wanted = {id(m) for m in models}
    return [m for m in _modules(torch) if any(id(c) in wanted for c in m._modules.values())]


def _unwrapped(module):
    while type(module).__name__ in _WRAPPERS:
        module = getattr(module, _WRAPPERS[type(module).__name__])
    return module


def _autocast(torch, module):
    """Precision as it is where a module is called."""
    parameter = next((p for p in module.parameters() if p.is_floating_point()), None)
    kind = "cpu" if parameter is None else parameter.device.type
    try:
        is_on, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    except TypeError:
        is_on = torch.is_autocast_enabled() if kind == "cuda" else torch.is_autocast_cpu_enabled()
        dtype = torch.get_autocast_gpu_dtype()
    stored = "float32" if parameter is None else str(parameter.dtype).replace("torch.", "")
    active = str(dtype).replace("torch.", "") if is_on else None
    tf32 = kind == "cuda" and torch.get_float32_matmul_precision() != "highest"
    return {"weights": stored, "autocast": active, "tf32": tf32}


def _is_channels_last(torch, module, inputs):
    """Whether convolutions of images run in NHWC, as weights or batches lie; None without any."""
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    weights = [m.weight for m in module.modules() if isinstance(m, kinds)]
    images = [t for t in (*weights, *_tensors(torch, inputs)) if t.ndim == 4]
    nhwc = torch.channels_last
    strict = [t.is_contiguous(memory_format=nhwc) and not t.is_contiguous() for t in images]
    return any(strict) if weights else None


def _optimizer(optimizer):
    """Name, the PyTorch class it descends from, and tensors of state per parameter."""
    own = [c.__name__ for c in type(optimizer).__mro__ if c.__module__.startswith("torch.optim")]
    states = [s for s in optimizer.state.values() if isinstance(s, dict)]
    kept = [
        sum(getattr(v, "ndim", 0) > 0 for v in state.values()) for state in states[:50]
    ]  # Scalars such as the step count are no state to speak of.
    return {
        "name": type(optimizer).__name__,
        "family": next((name for name in own if name != "Optimizer"), None),
        "momentum": any(group.get("momentum") for group in optimizer.param_groups),
        "states": max(kept, default=0),
    }


def _tensors(torch, value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for one in value for t in _tensors(torch, one)]
    return []


class _Leaf(tuple):
    """(shape, dtype, whether it takes a gradient) of a tensor."""


def _spec(torch, value):
    """The structure of arguments, with a `_Leaf` for each tensor."""
    if isinstance(value, torch.Tensor):
        return _Leaf((list(value.shape), str(value.dtype), bool(value.requires_grad)))
    if isinstance(value, dict):
        return {key: _spec(torch, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [list if isinstance(value, list) else tuple, [_spec(torch, one) for one in value]]
    return value if isinstance(value, (int, float, bool, str, type(None))) else None


def _leaves(spec):
    if isinstance(spec, _Leaf):
        return [spec]
    if isinstance(spec, dict):
        return [leaf for one in spec.values() for leaf in _leaves(one)]
    if isinstance(spec, list):
        return [leaf for one in spec[1] for leaf in _leaves(one)]
    return []


def _batch_of(spec, loader):
    """Items of a microbatch, and the extent that counts them: the loader's, else the first."""
    leaves = [leaf for leaf in _leaves(spec) if leaf[0]]
    wanted = (loader or {}).get("batch")
    for place in (0, 1):
        if any(len(leaf[0]) > place and leaf[0][place] == wanted for leaf in leaves):
            return wanted, place
    return (leaves[0][0][0] if leaves else 1), 0


def _length_of(spec, place):
    """Tokens of a sequence, where whole numbers come in two extents."""
    for shape, dtype, _ in _leaves(spec):
        if dtype in _INTEGERS and len(shape) == 2:
            return shape[1 - place]
    return None


def _made(torch, spec, sizes):
    """Arguments on meta, with other batches and lengths."""
    if isinstance(spec, _Leaf):
        shape, dtype, takes_gradient = spec
        extents = [sizes.get((place, n), sizes.get(n, n)) for place, n in enumerate(shape)]
        kind = getattr(torch, dtype.replace("torch.", ""))
        return torch.empty(extents, dtype=kind, device="meta").requires_grad_(takes_gradient)
    if isinstance(spec, dict):
        return {key: _made(torch, one, sizes) for key, one in spec.items()}
    if isinstance(spec, list):
        return spec[0](_made(torch, one, sizes) for one in spec[1])
    return spec


def _traced(torch, facts, calls, models, batch, place, length):
    """(report, error) of the tracer on copies of the models."""
    folder = os.environ[WORKERS_VARIABLE]
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        worker = importlib.import_module("torch_worker")
        building = importlib.import_module("torch_entries.building")
        twins = {id(m): _plain_twin(building, m) for m in models}
        workload = _workload(torch, facts, calls, [twins[id(m)] for m in models], batch, place)
        request = {"entry": facts["model"], "task": "train", "seq": length, "is_fixed": True}
        event, report = worker.report_or_event(workload, request)
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if os.path.dirname(getattr(sys.modules[name], "__file__", None) or "") == folder:
                del sys.modules[name]
    return report, None if event is None else event.get("message")


def _plain_twin(building, model):
    """A copy on meta that calls nothing of the user's but the modules themselves."""
    twin = building.on_meta_twin(model)
    for module in twin.modules():
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            hooks = module.__dict__.get(name) or {}
            for key, hook in list(hooks.items()):
                if not type(hook).__module__.startswith("torch.nn"):
                    del hooks[key]
        module.__dict__["_compiled_call_impl"] = None
    return twin


def _workload(torch, facts, calls, twins, batch, place):
    """What the tracer takes: a model, its inputs, its loss; a step where there are several."""
    specs = [call["inputs"] for call in calls]
    length = facts["seq"]

    def inputs(size, seq=None):
        """Made inputs of so many items and tokens."""
        sizes = {(place, batch): size}
        if length is not None and length != batch:
            sizes[length] = seq
        return [_made(torch, spec, sizes) for spec in specs]

    def whole(output):
        """One number of an output: its own loss, or that of classes."""
        loss = getattr(output, "loss", None)
        if isinstance(loss, torch.Tensor):
            return loss
        if hasattr(output, "logits"):
            output = output.logits
        total = 0.0
        for one in _tensors(torch, output):
            if not (one.is_floating_point() and one.requires_grad):
                continue
            if one.ndim < 2:
                total = total + one.sum()
                continue
            scores = one.reshape(-1, one.shape[-1])
            target = torch.empty((scores.shape[0],), dtype=torch.int64, device="meta")
            total = total + torch.nn.functional.cross_entropy(scores, target)
        return total

    distinct = list({id(m): m for m in twins}.values())
    model = distinct[0] if len(distinct) == 1 else torch.nn.ModuleList(distinct)
    called = [next(n for n, m in enumerate(distinct) if m is twin) for twin in twins]

    def step(traced, made):
        """Forward of each part that the script called, and one backward."""
        parts = [traced] if len(distinct) == 1 else list(traced)
        total = 0.0
        for n, (args, kwargs) in zip(called, made):
            total = total + whole(parts[n](*args, **kwargs))
        total.backward()

    step.__name__ = "step"
    outputs = calls[0]["output"] or []
    kind = "features"
    if length is not None:
        per_token = any(len(shape) == 3 and length in shape for shape in outputs)
        kind = "language" if per_token else "text"
    elif any(len(leaf[0]) == 4 for leaf in _leaves(specs[0])):
        kind = "image"
    made = types.SimpleNamespace(model=model, step=step, kind=kind)
    # How many arguments it takes tells the tracer whether there is a length.
    made.inputs = inputs if length is not None else (lambda size: inputs(size))
    return made


class _Muted:
    """A stream that drops what one thread writes."""

    def __init__(self, stream):
        self._stream = stream
        self._thread = _thread.get_ident()

    def write(self, text):
        """Write what other threads print; drop what the traced step prints a second time."""
        if _thread.get_ident() == self._thread:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextlib.contextmanager
def _as_if_nothing_happened(torch):
    """Inside, what is printed is dropped; random states are afterwards as before."""
    numpy = sys.modules.get("numpy")
    states = (torch.get_rng_state(), random.getstate(), numpy and numpy.random.get_state())
    streams = (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = _Muted(streams[0]), _Muted(streams[1])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.set_grad_enabled(True), _eager(torch):
                yield
    finally:
        sys.stdout, sys.stderr = streams
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        if numpy:
            numpy.random.set_state(states[2])


def _eager(torch):
    """Compiled functions inside of models run as they are written."""
    stance = getattr(torch.compiler, "set_stance", None)
    return contextlib.nullcontext() if stance is None else stance("force_eager")
