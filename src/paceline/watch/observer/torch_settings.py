"""Settings that are made between two steps of a script, and taken back.

Standard library and torch only; runs in the user's Python. Nothing of the script is edited: what is
changed is the process around it (threads), what its models and optimizers hold (precision, which
parameters want gradients) and what its wrappers do (DDP).
"""

import gc

import _paceline_observer as observer


class Settings:
    """What is set now, and how it is taken back."""

    def __init__(self, torch, marks):
        self.torch, self.marks = torch, marks
        self.scratch = None
        self.lines = None
        self._undo = []
        self._autocast = None
        self._entered = None
        self._accumulation = None
        self.was_autocast = False
        hooks = torch.nn.modules.module
        self._seeing = hooks.register_module_forward_pre_hook(self._see_precision)

    def _see_precision(self, module, _args):
        """In the first steps: whether the script has autocast already."""
        kind = "cpu" if self.marks.device is None else self.marks.device.type
        self.was_autocast |= self.torch.is_autocast_enabled(kind)

    def facts(self):
        """What decides which settings are worth a trial."""
        torch = self.torch
        self._seeing.remove()
        optimizers = _alive(torch.optim.Optimizer)
        trained = {id(p) for one in optimizers for g in one.param_groups for p in g["params"]}
        parameters = [p for one in optimizers for g in one.param_groups for p in g["params"]]
        first = parameters[0]
        wrapped = _alive(torch.nn.parallel.DistributedDataParallel)
        weights = {str(p.dtype) for p in parameters if p.is_floating_point()}
        return {
            "device": first.device.type,
            "weights": max(weights, key=len) if len(weights) == 1 else "",
            "num_frozen": 0 if wrapped else len(self._needless(trained)),
            "may_bf16": weights == {"torch.float32"} and self._may_bf16(first.device),
            "may_tf32": first.device.type == "cuda" and self._may_tf32(first.device),
            "num_saves": 0 if self.scratch is None else self.scratch.num_saves,
            "is_ddp": bool(wrapped),
            "finds_unused": any(one.find_unused_parameters for one in wrapped),
            "has_no_unused": all(p.grad is not None for p in parameters if p.requires_grad),
        }

    def _may_bf16(self, device):
        torch = self.torch
        if self.was_autocast:
            return False
        if device.type == "cuda":
            return torch.cuda.is_bf16_supported()
        try:
            with open("/proc/cpuinfo") as file:
                flags = next((line for line in file if line.startswith("flags")), "")
        except OSError:
            return False
        return device.type == "cpu" and ("avx512_bf16" in flags or "amx_bf16" in flags)

    def _may_tf32(self, device):
        """Whether FP32 could be multiplied by tensor cores, and is not (Ampere and later)."""
        is_able = self.torch.cuda.get_device_capability(device) >= (8, 0)
        return (
            is_able
            and not self.was_autocast
            and self.torch.get_float32_matmul_precision() == "highest"
        )

    def _needless(self, trained):
        """Parameters that get gradients and belong to no optimizer."""
        found = {}
        for module in _alive(self.torch.nn.Module):
            for p in (module.__dict__.get("_parameters") or {}).values():
                if p is not None and id(p) not in trained and p.grad is not None:
                    found[id(p)] = p
        return list(found.values())

    def make(self, wanted):
        """Make settings; what goes wrong is taken back."""
        for name, value in wanted.items():
            getattr(self, "_set_" + name)(value)

    def undo(self):
        """Take everything back, the last first."""
        self._leave_autocast()
        while self._undo:
            self._undo.pop()()

    def batch_comes(self, is_new_step):
        """A batch is handed out: the forward pass begins.

        Args:
            is_new_step: Whether it is the first of its step.
        """
        if self._accumulation is not None and is_new_step:
            self._accumulation.step_begins()
        if self._autocast is not None and self._entered is None:
            self._entered = self.torch.autocast(*self._autocast)
            self._entered.__enter__()

    def backward_comes(self):
        """``backward`` is called."""
        self._leave_autocast()

    def _leave_autocast(self):
        if self._entered is not None:
            self._entered.__exit__(None, None, None)
            self._entered = None

    def _set_threads(self, number):
        before = self.torch.get_num_threads()
        self.torch.set_num_threads(number)
        self._undo.append(lambda: self.torch.set_num_threads(before))

    def _set_autocast(self, dtype):
        kind = self.marks.device.type if self.marks.device is not None else "cpu"
        self._autocast = (kind, getattr(self.torch, dtype))

        def off():
            self._autocast = None

        self._undo.append(off)

    def _set_tf32(self, _value):
        before = self.torch.get_float32_matmul_precision()
        self.torch.set_float32_matmul_precision("high")
        self._undo.append(lambda: self.torch.set_float32_matmul_precision(before))

    def _set_saves(self, value):
        scratch, before = self.scratch, self.scratch.is_saving
        scratch.is_saving = value
        self._undo.append(lambda: setattr(scratch, "is_saving", before))

    def _set_frozen(self, _value):
        optimizers = _alive(self.torch.optim.Optimizer)
        trained = {id(p) for one in optimizers for g in one.param_groups for p in g["params"]}
        found = self._needless(trained)
        for p in found:
            p.requires_grad_(False)
        self._undo.append(lambda: [p.requires_grad_(True) for p in found])

    def _set_find_unused(self, value):
        for one in _alive(self.torch.nn.parallel.DistributedDataParallel):
            self._rebuild(one, value)
            self._undo.append(lambda one=one: self._rebuild(one, not value))

    def _rebuild(self, wrapped, value):
        """Give a DDP a new reducer that looks for unused parameters or does not."""
        wrapped.find_unused_parameters = value
        parameters, is_sparse = wrapped._build_params_for_reducer()
        names = wrapped._build_debug_param_to_name_mapping(parameters)
        wrapped._ddp_init_helper(parameters, is_sparse, names, wrapped.static_graph)

    def _set_sync(self, value):
        for one in _alive(self.torch.nn.parallel.DistributedDataParallel):
            before, one.require_backward_grad_sync = one.require_backward_grad_sync, value
            self._undo.append(
                lambda one=one, before=before: setattr(one, "require_backward_grad_sync", before)
            )

    def _set_accumulated(self, every):
        self._accumulation = Accumulation(
            every,
            _alive(self.torch.optim.Optimizer),
            _alive(self.torch.nn.parallel.DistributedDataParallel),
            self.marks,
        )

        def off():
            self._accumulation.undo()
            self._accumulation = None

        self._undo.append(off)

    def _set_fp32(self, _value):
        torch = self.torch
        changed = [t for t in self._doubles() if t.is_floating_point()]
        _cast(torch, changed, torch.float32)
        handle = torch.nn.modules.module.register_module_forward_pre_hook(self._as_float)

        def back():
            """The methods of the optimizer as they were."""
            handle.remove()
            _cast(torch, changed, torch.float64)

        self._undo.append(back)

    def _doubles(self):
        """Parameters, buffers and states of optimizers in FP64."""
        torch = self.torch
        found = {}
        for module in _alive(torch.nn.Module):
            for name in ("_parameters", "_buffers"):
                for t in (module.__dict__.get(name) or {}).values():
                    if t is not None and t.dtype == torch.float64:
                        found[id(t)] = t
        for optimizer in _alive(torch.optim.Optimizer):
            for state in optimizer.state.values():
                for t in state.values() if isinstance(state, dict) else ():
                    if isinstance(t, torch.Tensor) and t.dtype == torch.float64 and t.ndim:
                        found[id(t)] = t
        return list(found.values())

    def _as_float(self, _module, args):
        double = self.torch.float64
        if any(isinstance(one, self.torch.Tensor) and one.dtype == double for one in args):
            return tuple(
                one.float() if isinstance(one, self.torch.Tensor) and one.dtype == double else one
                for one in args
            )
        return None

    def lines_begin(self, *where):
        """Time the script's own lines from now on."""
        self.lines = observer.load("torch_lines").Lines(self.torch)
        self.lines.begin(*where)

    def lines_end(self):
        """What they took."""
        lines, self.lines = self.lines, None
        return lines.end()


class Accumulation:
    """All-reduce and update in one of so many steps; in the others gradients are added up."""

    def __init__(self, every, optimizers, wrapped, marks):
        self.every, self.wrapped, self.marks = every, wrapped, marks
        self.num_steps = 0
        self._undo = []
        for one in optimizers:
            self._replace(one)

    def step_begins(self):
        """The last of them reduces."""
        self.num_steps += 1
        for one in self.wrapped:
            one.require_backward_grad_sync = self._is_last()

    def undo(self):
        """Each step for itself, as it was."""
        for one in self.wrapped:
            one.require_backward_grad_sync = True
        while self._undo:
            self._undo.pop()()

    def _is_last(self):
        return self.num_steps % self.every == 0

    def _replace(self, optimizer):
        kept = {name: optimizer.__dict__.get(name) for name in ("step", "zero_grad")}
        plain_step, plain_zero = optimizer.step, optimizer.zero_grad
        has_stepped = True

        def step(*args, **kwargs):
            """Update weights at the last microbatch alone; the others leave the marks of a step."""
            nonlocal has_stepped
            if self._is_last():
                has_stepped = True
                return plain_step(*args, **kwargs)
            self.marks.before_update(optimizer, args, kwargs)
            self.marks.after_update(optimizer, args, kwargs)
            return None

        def zero_grad(*args, **kwargs):
            """Clear gradients after an update alone."""
            nonlocal has_stepped
            if has_stepped:
                has_stepped = False
                plain_zero(*args, **kwargs)

        def back():
            """The methods of the optimizer as they were."""
            for name, value in kept.items():
                if value is None:
                    delattr(optimizer, name)
                else:
                    setattr(optimizer, name, value)

        optimizer.step, optimizer.zero_grad = step, zero_grad
        self._undo.append(back)


def _cast(torch, tensors, dtype):
    with torch.no_grad():
        for t in tensors:
            if isinstance(t, torch.nn.Parameter):
                t.grad = None
            t.data = t.data.to(dtype)


def _alive(kind):
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
