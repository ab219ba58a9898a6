"""Trace a PyTorch model: one request in, one result file out.

Standard library and torch only; runs in the Python that has torch. Reads one JSON line on standard
input, writes JSON lines (progress, done, error) on the original standard output, and the trace
itself to the file the request names. What the user's code prints goes to standard error.
"""

import contextlib
import importlib
import json
import os
import sys
import traceback

PROTOCOL = 1
BATCHES = (3, 5, 7)
SEQUENCES = (11, 17, 23)


class RequestError(Exception):
    """The request cannot be met; the message is for the user."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def main():
    """Serve one request."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    request = json.loads(sys.stdin.readline())
    try:
        answer = serve(request, lambda text: _send(channel, event="progress", message=text))
        with open(request["output"], "w") as file:
            json.dump(answer, file, separators=(",", ":"))
        _send(channel, event="done", protocol=PROTOCOL)
    except RequestError as error:
        _send(channel, event="error", kind=error.kind, message=str(error), details="")
    except Exception as error:
        details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = "%s: %s" % (type(error).__name__, error)
        _send(channel, event="error", kind="raised", message=message, details=details[-4000:])


def _send(channel, **event):
    channel.write(json.dumps(event) + "\n")
    channel.flush()


def serve(request, progress):
    """Trace every pass of the requested entry."""
    try:
        import torch
    except ImportError as error:
        raise RequestError("no-torch", "this Python has no torch (%s)" % error)
    progress("building %s" % request["entry"])
    subject = build_subject(request)
    progress("tracing")
    return {
        "protocol": PROTOCOL,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "num_parameters": sum(p.numel() for p in subject.model.parameters()),
        "kind": subject.kind,
        "input": subject.input_description(),
        "input_shape": subject.settings.get("shape"),
        "passes": [trace_pass(subject, name) for name in subject.pass_names(request["task"])],
    }


class Subject:
    """A model and what one batch of its inputs is."""

    def __init__(self, model, kind, settings):
        self.model = model
        self.kind = kind
        self.settings = settings

    def pass_names(self, task):
        """Passes of a task, in order."""
        if task == "train":
            return ["step"]
        return ["prefill", "decode"] if self.kind == "language" else ["forward"]

    def variables(self, name):
        """What the passes are free in."""
        if self.kind not in ("text", "language"):
            return ["batch", ""]
        return ["batch", "past" if name == "decode" else "seq"]

    def input_description(self):
        """As printed."""
        if "shape" in self.settings:
            return "×".join(str(n) for n in self.settings["shape"][1:]) or "features"
        return "tokens"

    def inputs(self, batch, seq):
        """Uninitialised inputs."""
        if self.kind in ("text", "language"):
            return _tokens(batch, seq)
        return _empty((batch,) + tuple(self.settings["shape"]))

    def loss(self, output, inputs):
        """Mean cross-entropy over everything that the model predicts."""
        import torch.nn.functional as F

        outputs = [o for o in _flatten(output) if o is not None]
        total = None
        for number, logits in enumerate(outputs):
            logits = logits.reshape(-1, logits.shape[-1])
            target = _targets(logits.shape[0])
            term = F.cross_entropy(logits, target)
            total = term if total is None else total + 0.3 * term
        return total


def trace_pass(subject, name):
    """Trace one pass at the corners of a rectangle, and at one point outside it."""
    import torch

    variables = subject.variables(name)
    points = [(b, s) for s in SEQUENCES[:2] for b in BATCHES[:2]] + [(BATCHES[2], SEQUENCES[2])]
    if not variables[1]:
        points = [(b, 1) for b in BATCHES]
    modules = {id(m): number for number, (_, m) in enumerate(subject.model.named_modules())}
    subject.model.train(name == "step")
    first, numbers = None, []
    for batch, seq in points:
        recorder = record(subject, name, modules, batch, seq)
        if first is None:
            first = recorder.topology()
        elif recorder.topology() != first:
            raise RequestError("varies", "its ops change with the batch size or sequence length")
        numbers.append(recorder.numbers())
        del recorder
        for parameter in subject.model.parameters():
            parameter.grad = None
    return {
        "name": name,
        "variables": variables,
        "points": points,
        "modules": [n for n, _ in subject.model.named_modules()],
        "topology": first,
        "numbers": numbers,
        "has_gradients": name == "step" and torch.is_grad_enabled(),
    }


def record(subject, name, modules, batch, seq):
    """One traced execution."""
    import torch
    from torch_recorder import Canonical, ModuleTracker, Recorder

    recorder = Recorder()
    runs = {"step": _step, "forward": _forward, "prefill": _prefill, "decode": _decode}
    grad = contextlib.nullcontext() if name == "step" else torch.no_grad()
    with grad, recorder, ModuleTracker(recorder, modules), Canonical(recorder):
        with recorder.paused():
            recorder.own_model(subject.model)
        runs[name](subject, recorder, batch, seq)
        if name == "step":
            recorder.own_gradients(subject.model)
    recorder.close()
    return recorder


def _step(subject, recorder, batch, seq):
    inputs = _own_inputs(subject, recorder, batch, seq)
    output = subject.model(inputs)
    loss = subject.loss(output, inputs)
    loss.backward()


def _forward(subject, recorder, batch, seq):
    subject.model(_own_inputs(subject, recorder, batch, seq))


def _prefill(subject, recorder, batch, seq):
    caches = _own_caches(subject, recorder, batch, seq)
    subject.model(_own_inputs(subject, recorder, batch, seq), caches, 0, True)


def _decode(subject, recorder, batch, past):
    caches = _own_caches(subject, recorder, batch, past)
    inputs = _own_inputs(subject, recorder, batch, 1)
    subject.model(inputs, caches, past - 1, True)


def _own_inputs(subject, recorder, batch, seq):
    with recorder.paused():
        inputs = subject.inputs(batch, seq)
        for tensor in _flatten(inputs):
            recorder.own(tensor, "input")
    return inputs


def _own_caches(subject, recorder, batch, length):
    spec = subject.model.spec
    shape = (batch, spec["kv_heads"], length, spec["head_size"])
    with recorder.paused():
        caches = [(_empty(shape), _empty(shape)) for _ in range(spec["layers"])]
        for pair in caches:
            recorder.own(pair[0], "kv_cache")
            recorder.own(pair[1], "kv_cache")
    return caches


def build_subject(request):
    """The model that an entry names."""
    import torch_models

    entry = request["entry"]
    if entry in torch_models.ZOO:
        builder, kind, settings = torch_models.ZOO[entry]
        return Subject(_build(builder), kind, dict(settings))
    scheme, _, rest = entry.partition(":")
    if scheme == "torchvision":
        return _torchvision_subject(rest, request)
    if scheme == "transformer":
        return _transformer_subject(rest)
    return _user_subject(entry, request)


def _torchvision_subject(name, request):
    import torch_models

    torchvision = torch_models.import_torchvision()
    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        raise RequestError("unknown-model", json.dumps({"name": name, "known": names}))
    size = request.get("image_size") or _native_size(torchvision, name)
    builder = torch_models.torchvision_classifier(name)
    return Subject(_build(builder), "image", {"shape": (3, size, size)})


def _native_size(torchvision, name):
    weights = list(torchvision.models.get_model_weights(name))
    crop = weights[0].transforms.keywords.get("crop_size", 224) if weights else 224
    return crop[0] if isinstance(crop, (list, tuple)) else crop


def _transformer_subject(text):
    import torch_models

    given = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        try:
            given[key.strip()] = float(value) if "." in value else int(value)
        except ValueError:
            given[key.strip()] = value.strip()
    try:
        model = _build(lambda: torch_models.transformer(**given))
    except (ValueError, TypeError) as error:
        raise RequestError("bad-request", str(error))
    kind = "text" if given.get("classes") else "language"
    return Subject(model, kind, {})


def _user_subject(entry, request):
    import torch

    module_name, _, function_name = entry.partition(":")
    sys.path.insert(0, request.get("directory") or os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise RequestError("no-module", "no module named `%s`" % module_name)
        raise
    function = getattr(module, function_name, None)
    if not callable(function):
        raise RequestError(
            "no-function", "`%s` has no function `%s`" % (module_name, function_name)
        )
    model = _build(function)
    if not isinstance(model, torch.nn.Module):
        raise RequestError(
            "no-model", "`%s` returned %s, not a model" % (entry, type(model).__name__)
        )
    kind, settings = _guess_inputs(model, request)
    return Subject(model, kind, settings)


def _guess_inputs(model, request):
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            size = request.get("image_size") or 224
            return "image", {"shape": (module.in_channels, size, size)}
        if isinstance(module, torch.nn.Embedding):
            return "text", {}
        if isinstance(module, torch.nn.Linear):
            return "features", {"shape": (module.in_features,)}
    raise RequestError("no-inputs", "the inputs of the model cannot be guessed from its layers")


def _build(function):
    """Call ``function`` on meta; else with parameters moved to meta as they are registered."""
    import torch

    try:
        with torch.device("meta"):
            return function()
    except (NotImplementedError, RuntimeError) as first:
        try:
            with _parameters_on_meta():
                built = function()
        except Exception:
            raise first
        return built.to("meta") if isinstance(built, torch.nn.Module) else built


@contextlib.contextmanager
def _parameters_on_meta():
    import torch

    register = torch.nn.Module.register_parameter

    def moved(self, name, parameter):
        register(self, name, parameter)
        if parameter is not None:
            own = self._parameters[name]
            self._parameters[name] = type(own)(own.to("meta"), own.requires_grad)

    torch.nn.Module.register_parameter = moved
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def _empty(shape):
    import torch

    return torch.empty(shape, device="meta")


def _tokens(batch, seq):
    import torch

    return torch.empty((batch, seq), dtype=torch.int64, device="meta")


def _targets(count):
    import torch

    return torch.empty((count,), dtype=torch.int64, device="meta")


def _flatten(value):
    import torch

    if isinstance(value, torch.Tensor) or value is None:
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _flatten(v)]


if __name__ == "__main__":
    main()
