"""Measure a PyTorch model: forward, forward and backward, or the whole step.

Standard library and torch only; the models come from the tracer's file of models, whose folder
the request names, so that what is measured is what was traced.
"""

import contextlib
import copy
import functools
import inspect
import os
import sys
import time

from engine import (
    SEQUENCES,
    RequestError,
    about_cell,
    described,
    imported,
    main,
    sample_inputs,
    time_steps,
    unsupported,
    user_function,
)

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
COMPILERS = ("eager", "compiled")


def serve(request, progress):
    """Build, time, and describe one cell."""
    sys.path[:0] = request["paths"]
    torch = imported("torch")
    if request["action"] == "hello":
        return describe(torch)
    if request["action"] == "export":
        return _export_onnx(torch, request)
    unsupported(request, precision=PRECISIONS, compiler=COMPILERS)
    if request.get("threads"):
        torch.set_num_threads(request["threads"])
    return measure(torch, request, progress)


def describe(torch):
    """What this Python can run on."""
    has_cuda = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    kind, release = "rocm" if torch.version.hip else "cuda", torch.version.hip or torch.version.cuda
    return described(
        "torch", torch.__version__, kind if has_cuda else "cpu", names,
        platform_version=release if has_cuda else None,
    )  # fmt: skip


def measure(torch, request, progress):
    """Time one cell on this rank."""
    ranks = Ranks(torch, request)
    progress(stage="building")
    subject = build(torch, request, ranks)
    step = subject.step_function(request["mode"])
    started = time.perf_counter()
    if request["compiler"] == "compiled":
        progress(stage="compiling")
        step()
        ranks.synchronize()
    compile_s = time.perf_counter() - started if request["compiler"] == "compiled" else None
    if ranks.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    timing = time_steps(step, ranks.synchronize, request["timing"], progress, ranks.agree)
    answer = dict(describe(torch), **timing)
    answer["compile_s"] = compile_s
    answer["optimizer"] = optimizer_name(subject.optimizer)
    answer["num_parameters"] = sum(p.numel() for p in subject.model.parameters())
    answer["allocated_bytes"] = torch.cuda.max_memory_allocated() if ranks.is_cuda else None
    answer["reserved_bytes"] = torch.cuda.max_memory_reserved() if ranks.is_cuda else None
    answer.update(about_cell(request, subject.kind))
    if request.get("profile"):
        profile(torch, step, ranks, request["profile"])
    if request["compiler"] == "compiled":
        answer["numerical_difference"] = subject.compiled_difference()
    ranks.close()
    return answer


class Ranks(object):
    """This process among the others, or alone."""

    def __init__(self, torch, request):
        self.torch = torch
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.is_cuda = request["device"] == "cuda"
        if self.is_cuda:
            if torch.cuda.device_count() <= self.local_rank:
                raise RequestError("unsupported", "fewer than %d GPUs are visible" % self.size)
            torch.cuda.set_device(self.local_rank)
        self.device = torch.device("cuda", self.local_rank) if self.is_cuda else torch.device("cpu")
        if self.size > 1:
            torch.distributed.init_process_group("nccl" if self.is_cuda else "gloo")

    def synchronize(self):
        """Return when this device is idle."""
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def agree(self, value):
        """Rank 0's value, on every rank."""
        if self.size == 1:
            return value
        tensor = self.torch.tensor([float(value)], device=self.device)
        self.torch.distributed.broadcast(tensor, 0)
        return int(tensor.item())

    def close(self):
        """Wait for the others; the engine then ends at once, with the group."""
        if self.size > 1:
            self.torch.distributed.barrier()


class Subject(object):
    """A model on its device with one batch of inputs, and what a step of it is."""

    def __init__(self, torch, model, run, kind, inputs, optimizer, precision, is_cuda):
        self.torch = torch
        self.model = model
        self.run = run
        self.kind = kind
        self.inputs = inputs
        self.optimizer = optimizer
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        self.device_type = "cuda" if is_cuda else "cpu"
        use_scaler = precision == "fp16" and is_cuda
        self.scaler = torch.amp.GradScaler("cuda") if use_scaler else None
        self.targets = None

    def step_function(self, mode):
        """The callable that is timed."""
        self.model.train(mode != "forward")
        return {"forward": self._forward, "forward-backward": self._both, "step": self._step}[mode]

    def _cast(self):
        if self.dtype is None:
            return contextlib.nullcontext()
        return self.torch.autocast(self.device_type, dtype=self.dtype)

    def _outputs(self, run):
        return run(self.inputs)

    def _forward(self):
        return self._answer(self.run)

    def _answer(self, run):
        """Inference, as it is traced: of a language model its prefill, which tells one token."""
        with self.torch.no_grad(), self._cast():
            return self._outputs(functools.partial(run, **asked_of(self.model, self.kind)))

    def _loss(self):
        with self._cast():
            outputs = [o for o in _flatten(self._outputs(self.run)) if o is not None]
            losses = [output for output in outputs if not output.dim()]
            return sum(losses or map(self._term, outputs))

    def _term(self, output):
        logits = output.reshape(-1, output.shape[-1])
        if self.targets is None or self.targets.shape[0] != logits.shape[0]:
            shape = (logits.shape[0],)
            self.targets = self.torch.zeros(shape, dtype=self.torch.int64, device=logits.device)
        return self.torch.nn.functional.cross_entropy(logits.float(), self.targets)

    def _both(self):
        self.model.zero_grad(set_to_none=True)
        loss = self._loss()
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def _step(self):
        self._both()
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def compiled_difference(self):
        """Largest difference that compiling makes to the outputs, relative to the largest."""
        self.model.train(False)
        compiled, eager = (_flatten(self._answer(run))[0].float() for run in (self.run, self.model))
        return float((compiled - eager).abs().max() / eager.abs().max().clamp(min=1e-30))


class _OwnSubject(Subject):
    """A workload of the user's own: its batch, and its loss, step or phases, as it is traced.

    Attributes:
        workload: What the user's function returned.
    """

    workload = None

    def _outputs(self, run):
        from torch_tracing.structures import fitting

        positional, named = fitting(self.model.forward, self.inputs)
        return run(*positional, **named)

    def _loss(self):
        own = getattr(self.workload, "loss", None)
        if not callable(own):
            return Subject._loss(self)
        from torch_tracing.structures import total_loss

        with self._cast():
            return total_loss(own(self._outputs(self.run), self.inputs))

    def _both(self):
        phases = self._phases()
        if not phases:
            return Subject._both(self)
        if self.has_own_optimizer:
            raise RequestError(
                "unsupported", "its step ends with its own optimizer: measure a step"
            )
        return self._phased(phases)

    def _step(self):
        if self._phases() and self.has_own_optimizer:
            return self._phased(self._phases())
        return Subject._step(self)

    def _phases(self):
        step = getattr(self.workload, "step", None)
        phases = getattr(self.workload, "phases", None)
        return phases or ([("step", 1, step)] if callable(step) else [])

    def _phased(self, phases):
        from torch_tracing.structures import completed

        self.model.zero_grad(set_to_none=True)
        for phase in phases:
            for _ in range(int(phase[1])):
                with self._cast():
                    completed(phase[2], self.run, self.inputs)

    @property
    def has_own_optimizer(self):
        """Whether PyTorch's optimizers are the workload's own, which its steps call."""
        given = getattr(self.workload, "optimizer", None)
        many = getattr(self.workload, "optimizers", None)
        return bool(many) or not (given is None or isinstance(given, str))


def build(torch, request, ranks):
    """The requested model with weights and inputs on its device."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = request["precision"] == "tf32"
    torch.backends.cudnn.allow_tf32 = request["precision"] == "tf32"
    made = _made_by_user(request)
    if callable(getattr(made, "inputs", None)):
        return _own_subject(torch, made, request, ranks)
    model, kind, shape = make_model(torch, request, made)
    layout = torch.channels_last if request.get("channels_last") else torch.contiguous_format
    model = model.to(ranks.device)
    inputs = _make_inputs(torch, kind, shape, request).to(ranks.device)
    if kind == "image":
        model, inputs = model.to(memory_format=layout), inputs.to(memory_format=layout)
    run = _as_run(torch, model, request, ranks)
    return Subject(
        torch, model, run, kind, inputs, make_optimizer(torch, model, request),
        request["precision"], ranks.is_cuda,
    )  # fmt: skip


def _as_run(torch, model, request, ranks):
    """The model as it is called: compiled, and on every rank alike."""
    run = torch.compile(model) if request["compiler"] == "compiled" else model
    if ranks.size == 1 or request["mode"] == "forward":
        return run
    return torch.nn.parallel.DistributedDataParallel(
        run, device_ids=[ranks.local_rank] if ranks.is_cuda else None
    )


def _made_by_user(request):
    """What a function of the user's own gave, as a workload; None where the entry names none."""
    from torch_entries.building import as_workload

    entry = request["entry"]
    return as_workload(user_function(entry, request)()) if _is_users_own(entry) else None


def _is_users_own(entry):
    return ":" in entry and not entry.startswith(("torchvision:", "timm:"))


def _own_subject(torch, workload, request, ranks):
    """A workload of the user's own on its device."""
    from torch_tracing.structures import mapped

    model = workload if isinstance(workload, torch.nn.Module) else workload.model
    model.to(ranks.device)
    has_length = len(inspect.signature(workload.inputs).parameters) > 1
    sizes = (request["batch"], request["seq"]) if has_length else (request["batch"],)
    subject = _OwnSubject(
        torch,
        model,
        _as_run(torch, model, request, ranks),
        getattr(workload, "kind", "features"),
        mapped(lambda tensor: tensor.to(ranks.device), workload.inputs(*sizes)),
        _own_optimizer(torch, workload, model) or make_optimizer(torch, model, request),
        request["precision"],
        ranks.is_cuda,
    )
    subject.workload = workload
    return subject


def make_model(torch, request, made):
    """Model, what one item of it is, and the shape of an item; ``made`` is a user's own model."""
    entry = request["entry"]
    if _is_users_own(entry):
        return _user_model(torch, made, request)
    if entry.startswith("timm:"):
        import timm

        model = timm.create_model(entry.partition(":")[2])
        return model, "image", model.default_cfg["input_size"]
    from torch_entries.vision import native_size
    from torch_networks import zoo

    if entry in zoo.ZOO:
        builder, kind, settings = zoo.ZOO[entry]
        return builder(), kind, settings.get("shape")
    name = entry.partition(":")[2] or entry
    torchvision = zoo.import_torchvision()
    if name not in torchvision.models.list_models(module=torchvision.models):
        if name in torchvision.models.list_models():
            said = "`%s` is no classifier, and of torchvision only these are run by name: name a "
            said += "function that returns it with a step of its own (docs/how-to/own-model.md)"
            raise RequestError("unsupported", said % name)
        raise RequestError("unknown-model", "torchvision has no model `%s`" % name)
    size = request.get("image_size") or native_size(name)
    return zoo.torchvision_classifier(name)(), "image", (3, size, size)


def _user_model(torch, model, request):
    """A model without a word about its inputs, with those that it is traced with."""
    from torch_entries.guesses import guessed

    if not isinstance(model, torch.nn.Module):
        message = "`%s` returned %s" % (request["entry"], type(model).__name__)
        raise RequestError("no-model", message)
    guess = guessed(copy.deepcopy(model).to("meta"), request.get("image_size"))
    if guess is None or guess.has_steps:
        raise RequestError("no-inputs", "the inputs of the model cannot be guessed from its layers")
    return model, guess.kind, guess.shape


def _make_inputs(torch, kind, shape, request):
    """One batch, the same numbers in every framework."""
    values, full = sample_inputs(kind, shape, request["batch"], request["seq"], 1000)
    dtype = torch.int64 if kind in SEQUENCES else torch.float32
    return torch.frombuffer(values, dtype=dtype).reshape(full)


def asked_of(model, kind):
    """What inference asks of a model beside its inputs: a writer of text tells its next token."""
    is_writer = kind == "language" and "last_only" in inspect.signature(model.forward).parameters
    return {"last_only": True} if is_writer else {}


def make_optimizer(torch, model, request):
    """The optimizer of the request, as it is traced, at a learning rate that changes nothing."""
    kinds = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.9, weight_decay=1e-4),
        "adam": lambda p: torch.optim.Adam(p, lr=0.0),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.0),
    }
    return kinds[request.get("optimizer") or "sgd"](model.parameters())


def optimizer_name(optimizer):
    """An optimizer by its class; ``sgd`` has momentum, as that of a request, else ``sgd-plain``."""
    name = type(optimizer).__name__.lower()
    has_momentum = any(group.get("momentum") for group in optimizer.param_groups)
    return name if name != "sgd" or has_momentum else "sgd-plain"


def _own_optimizer(torch, workload, model):
    """The optimizer that a workload states, at the learning rate that changes nothing.

    One that the workload's own step calls is left as it is. None where nothing is stated.
    """
    given = getattr(workload, "optimizer", None)
    if isinstance(given, str):
        return _named_optimizer(torch, given, model)
    has_step = callable(getattr(workload, "step", None)) or getattr(workload, "phases", None)
    if given is not None and not has_step:
        for group in given.param_groups:
            group["lr"] = 0.0
    return given


def _named_optimizer(torch, name, model):
    """One of PyTorch's, named as where models are traced: ``sgd`` has no momentum there."""
    if name == "sgd-momentum":
        return torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)
    kinds = {kind.lower(): made for kind, made in vars(torch.optim).items() if kind[0].isupper()}
    if name not in kinds or name in ("optimizer", "lbfgs"):
        message = "its optimizer `%s` is none of PyTorch's: state it as an object" % name
        raise RequestError("unsupported", message)
    return kinds[name](model.parameters(), lr=0.0)


def profile(torch, step, ranks, path):
    """Write a Chrome trace of three steps."""
    from torch.profiler import ProfilerActivity

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if ranks.is_cuda else [])
    with torch.profiler.profile(activities=kinds) as recorded:
        for _ in range(3):
            step()
        ranks.synchronize()
    if ranks.local_rank == 0:
        recorded.export_chrome_trace(path)


def _export_onnx(torch, request):
    """Write the model as ONNX with a fixed batch, and its outputs for comparison."""
    torch.manual_seed(0)
    model, kind, shape = make_model(torch, request, _made_by_user(request))
    model.eval()
    inputs = _make_inputs(torch, kind, shape, request)
    asked = asked_of(model, kind)
    torch.onnx.export(model, (inputs,), request["onnx"], kwargs=asked, input_names=["input"],
                      output_names=["output"], dynamo=True, verbose=False)  # fmt: skip
    with torch.no_grad():
        outputs = model(inputs, **asked).reshape(-1)[:64].tolist()
    return {"onnx": request["onnx"], "kind": kind, "shape": shape, "reference": outputs}


def _flatten(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flatten(item)]
    return [value]


if __name__ == "__main__":
    main(serve)
