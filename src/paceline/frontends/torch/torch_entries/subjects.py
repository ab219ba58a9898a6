"""From an entry's name to a model that can be traced on meta tensors.

Standard library and torch (and the model library that the entry names) only.
"""

import contextlib
import importlib
import inspect
import json

import torch
import torch.nn.functional as F
from torch_entries.building import as_workload, build, optimizers_of
from torch_entries.guesses import extents_words, guessed
from torch_entries.made_models import OtherFramework, check_other, imported, raise_other
from torch_entries.request_errors import RequestError, of_size
from torch_networks import zoo
from torch_tracing.choices import Choices
from torch_tracing.pretence import pretended
from torch_tracing.structures import completed, fitting, mapped, tensors_in, total_loss

#: Modules beside this one, by the beginning of an entry.
_PUBLISHED = {
    "published": "torch_networks.published_models",
    "published_gpunet": "torch_networks.published_gpunet",
    "published_images": "torch_networks.published_images",
    "published_yolo": "torch_networks.published_yolo",
}


class Subject:
    """A model, what a batch of its inputs is, and what its passes do.

    Attributes:
        model: On the meta device.
        kind: ``image``, ``features``, ``text`` (one answer per sequence) or ``language``.
        shape: Shape of one item of image or features; None for tokens.
        has_seq: Whether inputs have a length.
        optimizers: PyTorch optimizers whose steps the passes call themselves.
        optimizer: Name of the optimizer to append, where the passes call none.
        makes_tensors: Whether code of the user's own may make tensors on the default device.
        pretends: Whether its code believes in a GPU.
        choices: Answers to its conditions on values; None where such are refused.
        is_fixed: Whether it is known at one length only, as the request asks.
        is_generator: Whether it writes text, token after token, and nothing encodes it first.
        longest: Most tokens that the model takes; None where nothing bounds them.
        shortest: Fewest tokens that an item has.
        usual_length: Of an item where none is asked for; 0 where that is a task's.
        taken: Sizes that were not stated, as they were taken; empty where all were.
        pixels_per_token: Side of the square of pixels that is a token of its text; 0 where pictures
            are not read so.
        side: Of the pictures that were asked for, where the inputs show it in another form.
        described: What one item is, where its inputs do not tell.
        refusal: What is said of an error of its settings, a function of it; None of other models.
    """

    side = None
    described = ""
    makes_tensors = False
    pretends = False
    choices = None
    is_fixed = False
    longest = None
    shortest = 1
    usual_length = 0
    taken = ""
    pixels_per_token = 0
    refusal = None

    def __init__(self, model, kind, shape=None, has_seq=None):
        self.model = model
        self.kind = kind
        self.shape = shape
        self.has_seq = kind in ("text", "language") if has_seq is None else has_seq
        self.is_generator = kind == "language" and isinstance(model, zoo.Transformer)
        self.declared = self.optimizers = ()
        self.twins = {}
        self.optimizer = ""

    def passes(self, task):
        """(name, repeats, where it runs, function of recorder and inputs) of a task."""
        if task == "train":
            return [("step", 1.0, "device", self._step)]
        if self.is_generator:
            return [("prefill", 1.0, "device", None), ("decode", 1.0, "device", None)]
        return [("forward", 1.0, "device", self._forward)]

    def input_description(self):
        """As printed."""
        if self.described:
            return self.described
        return "tokens" if self.shape is None else "×".join(str(n) for n in self.shape[1:])

    def inputs(self, batch, seq):
        """Uninitialised inputs: a tensor, a tuple of positional or a dict of named ones."""
        if self.shape is None:
            return torch.empty((batch, seq), dtype=torch.int64, device="meta")
        return torch.empty((batch, *tuple(self.shape)), device="meta")

    def loss(self, output, inputs):
        """Mean cross-entropy of every tensor of scores, auxiliary ones at a weight of 0.3.

        A model that returns numbers of no size returns its losses: their sum.
        """
        if hasattr(output, "loss") and isinstance(output.loss, torch.Tensor):
            return output.loss
        given = _floating_tensors(output)
        losses = [tensor for tensor in given if not tensor.dim()]
        if losses:
            return sum(losses)
        total = None
        for logits in given:
            logits = logits.reshape(-1, logits.shape[-1])
            target = torch.empty((logits.shape[0],), dtype=torch.int64, device="meta")
            term = F.cross_entropy(logits, target)
            total = term if total is None else total + 0.3 * term
        if total is None:
            raise RequestError("no-output", "its forward returns no tensor to take a loss of")
        return total

    def call(self, inputs):
        """The model on its inputs."""
        positional, named = fitting(self.model.forward, inputs)
        return self.model(*positional, **named)

    def _step(self, recorder, inputs):
        output = self.call(inputs)
        loss = total_loss(self.loss(output, inputs))
        loss.backward()
        self._update(recorder)

    def _update(self, recorder):
        """One update by every optimizer that is declared; by the job's where none is."""
        for optimizer in self.declared:
            recorder.recorded_step(optimizer, self.twins)()
        if not self.declared:
            recorder.optimizer_step(self.optimizer, self.model.parameters())

    def _forward(self, _recorder, inputs):
        self.call(inputs)


class _UserSubject(Subject):
    """What a user's function returned: an object with a model, inputs, and perhaps its own step."""

    makes_tensors = True

    def __init__(self, workload, kind, shape):
        inputs = getattr(workload, "inputs", None)
        has_seq = None if inputs is None else _num_arguments(inputs) > 1
        super().__init__(workload.model, kind, shape, has_seq)
        self._workload = workload
        given = getattr(workload, "optimizer", None)
        if isinstance(given, str):
            self.optimizer = given
        originals, self.twins = getattr(workload, "originals", ((), {}))
        self.declared = tuple(optimizers_of(workload))
        self.optimizers = (*self.declared, *originals)

    def inputs(self, batch, seq):
        """What the user's function makes, on meta; the model's own without such a function."""
        make = getattr(self._workload, "inputs", None)
        if make is None:
            return super().inputs(batch, seq)
        with torch.device("meta"):
            made = make(batch, seq) if self.has_seq else make(batch)
        return on_meta(made)

    def input_description(self):
        """As printed; of inputs of the user's own that nobody named, what their extents say."""
        if self.described or self.kind != "features" or self.has_seq or self.shape is not None:
            return super().input_description()
        with pretended() if self.pretends else contextlib.nullcontext():
            tensors = tensors_in(self.inputs(2, 8))
        return extents_words(tensors) or super().input_description()

    def loss(self, output, inputs):
        """The user's loss, or the usual one of the kind of model."""
        own = getattr(self._workload, "loss", None)
        return super().loss(output, inputs) if own is None else own(output, inputs)

    def passes(self, task):
        """The user's phases or step in training, as (name, repeats, place, run)."""
        phases = getattr(self._workload, "phases", None)
        if phases is not None and task == "train":
            return [self._phase(*_checked_phase(phase)) for phase in phases]
        step = getattr(self._workload, "step", None)
        if step is not None and task == "train":
            return [self._phase("step", 1.0, step)]
        return super().passes(task)

    def _phase(self, name, repeats, step, runs_on="device"):
        def run(recorder, inputs):
            """The step of the user, with its updates recorded."""
            with recorder.replaced_steps(self.optimizers, self.twins):
                is_trained = completed(step, self.model, inputs)
            if name == "step" and not is_trained:
                raise RequestError("no-backward", "its step has no backward pass and no loss")
            if not self.optimizers:
                recorder.optimizer_step(self.optimizer, self.model.parameters())

        return name, float(repeats), runs_on, run


def _checked_phase(phase):
    """A phase as a user wrote it.

    Raises:
        RequestError: It is no (name, repeats, function) or (name, repeats, function, place).
    """
    parts = tuple(phase) if isinstance(phase, (tuple, list)) else ()
    is_phase = len(parts) in (3, 4) and isinstance(parts[1], (int, float)) and callable(parts[2])
    if is_phase and parts[3:] in ((), ("device",), ("host",)):
        return parts
    raise RequestError("bad-phase", "`%s` is no phase" % (phase,))


def build_subject(request):
    """The model that an entry names."""
    subject = _named_subject(request)
    check_side(subject, request)
    subject.is_fixed = bool(request.get("is_fixed"))
    return subject


def check_side(subject, request):
    """Refuse a side of pictures that nothing of the subject has.

    Raises:
        RequestError: It reads none, or others than were asked for.
    """
    side = request.get("image_size")
    if not side or subject.side == side:
        return
    with pretended() if subject.pretends else contextlib.nullcontext():
        tensors = tensors_in(subject.inputs(2, 8))
    if any(one.ndim > 3 and tuple(one.shape[-2:]) == (side, side) for one in tensors):
        return
    if subject.pretends:
        raise of_size(
            "its own code makes its inputs, and none are pictures of %d×%d" % (side, side),
            "change the code that makes them, and leave --image-size out",
        )
    length = "; the length of its text is given with --seq" if subject.has_seq else ""
    if subject.pixels_per_token:
        num_tokens = round(side / subject.pixels_per_token) ** 2
        length = ", and count a picture of %d×%d as %d tokens of its text" % (
            side,
            side,
            num_tokens,
        )
        length += " (--seq, or --prompt-tokens to serve); its encoder is not counted"
    given = "text alone here" if subject.pixels_per_token else _given_to(subject, tensors)
    said = "it takes %s: no side can be asked for" % given
    raise of_size(said, "leave --image-size out" + length)


def _given_to(subject, tensors):
    """What a subject is given, in words."""
    extents = next((one.shape[2:] for one in tensors if one.ndim > 3), None)
    if subject.described or extents is None:
        described = subject.input_description()
        return "no pictures" if described in ("", "tokens") else described
    return "pictures of %s" % "×".join(map(str, extents))


def _named_subject(request):
    entry = request["entry"]
    if entry in zoo.ZOO:
        return _zoo_subject(entry, request)
    if entry == "retinanet":
        from torch_networks.published_models import RetinaNetJob

        return job_subject(build(RetinaNetJob), request)
    if entry.endswith(".pt2"):
        from torch_entries.program import ProgramSubject, load_program

        return ProgramSubject(load_program(entry))
    scheme, _, rest = entry.partition(":")
    if scheme in _PUBLISHED:
        return _published_subject(scheme, rest, request)
    make = {
        "torchvision": _torchvision_subject,
        "detectron2": _detectron2_subject,
        "timm": _timm_subject,
        "hf": _hf_subject,
        "transformer": _transformer_subject,
        "denoiser": _denoiser_subject,
    }.get(scheme)
    return make(rest, request) if make else _user_subject(entry, request)


def _zoo_subject(entry, request):
    """A zoo model, at another image size where one is asked for."""
    builder, kind, settings = zoo.ZOO[entry]
    size, shape = request.get("image_size"), settings.get("shape")
    if not size:
        return Subject(build(builder), kind, shape)
    if kind != "image":
        raise of_size("it takes no images", "leave --image-size out")
    torchvision = zoo.import_torchvision()
    if entry in torchvision.models.list_models(module=torchvision.models):
        return _torchvision_subject(entry, request)
    return Subject(build(builder), kind, (*shape[:-2], size, size))


def subject_of(made, request):
    """The subject of what a function returned."""
    if type(made).__name__ == "ExportedProgram":
        from torch_entries.program import ProgramSubject

        return ProgramSubject(made)
    made = as_workload(made)
    model = made if isinstance(made, torch.nn.Module) else getattr(made, "model", None)
    if not isinstance(model, torch.nn.Module):
        raise_other(made, request)
        kind = type(made).__name__
        raise RequestError("no-model", "it gives %s, not a model" % kind)
    if made is model and not hasattr(model, "inputs"):
        return _guessed_subject(model, request)
    if made is model:
        made = _WithModel(model)
    if hasattr(made, "inputs"):
        return _UserSubject(made, getattr(made, "kind", "features"), None)
    guess = _guessed_subject(model, request)
    return _UserSubject(made, getattr(made, "kind", guess.kind), guess.shape)


class _WithModel:
    """A model that brings its own inputs, seen as a workload."""

    def __init__(self, model):
        self.model = model
        # What a user's model calls a kind may be anything else.
        kind = getattr(model, "kind", "")
        self.kind = kind if kind in ("language", "image") else "features"
        for name in ("inputs", "loss", "optimizer", "step"):
            if callable(getattr(model, name, None)):
                setattr(self, name, getattr(model, name))
        if not hasattr(self, "step") and callable(getattr(model, "training_step", None)):
            self.step = self._training_step

    @staticmethod
    def _training_step(model, inputs):
        """As a trainer of Lightning calls it, with the optimizer left to the job."""
        return model.training_step(inputs, 0)


def _published_subject(scheme, name, request):
    """A model of the modules beside this one: ``published:NAME``, ``published_SUBJECT:NAME``."""
    module = importlib.import_module(_PUBLISHED[scheme])
    job = build(module._MODELS[name])
    subject = job_subject(job, request)
    subject.taken = getattr(subject.model, "taken", subject.taken)
    return subject


def job_subject(job, request):
    """A job of ours, on pictures or volumes of the side that is asked for."""
    size = request.get("image_size")
    can = size and hasattr(job, "side") and not getattr(job, "has_one_size", False)
    if can:
        _resize(job, size)
    subject = subject_of(job, request)
    subject.described = item_of(job)
    if can:
        subject.side = size
    return subject


def _resize(job, size):
    """Let a job have pictures of another size than its release.

    Attributes of the job: ``multiple`` and ``rest`` (a side is so much above a multiple), and
    ``least``, the smallest.
    """
    step, rest = getattr(job, "multiple", 1), getattr(job, "rest", 0)
    least = getattr(job, "least", step + rest)
    if size % step == rest and size >= least:
        job.side = size
        return
    above = "%d above " % rest if rest else ""
    said = "a side is %sa multiple of %d, from %d on" % (above, step, least)
    below = max(least, (size - rest) // step * step + rest)
    raise of_size(said, "give --image-size %d or %d" % (below, below + step))


def item_of(job):
    """What one item of a job of ours is, as printed; empty where a length says it."""
    side = getattr(job, "side", None)
    square = "pictures of %d×%d" % (side, side) if side else ""
    return getattr(job, "described", square)


def _torchvision_subject(name, request):
    from torch_entries.vision import vision_subject

    return vision_subject(name, request)


def _detectron2_subject(name, request):
    from torch_detection.detectron2_networks import detectron2_subject

    return detectron2_subject(name, request)


def _timm_subject(name, request):
    zoo.import_torchvision()
    import timm

    if not timm.is_model(name):
        raise RequestError("unknown-model", json.dumps({"name": name, "known": timm.list_models()}))
    asked = request.get("image_size")
    model = _timm_model(timm, name, asked)
    shape = model.default_cfg.get("input_size", (3, 224, 224))
    return Subject(model, "image", (shape[0], asked, asked) if asked else tuple(shape))


def _hf_subject(name, request):
    from torch_transformers.families import hf_subject

    return hf_subject(name, request)


#: Names that timm maps to the narrowest network of their kind: width of a group in each.
_TIMM_GROUP_WIDTHS = {f"ig_resnext101_32x{width}d": width for width in (16, 32, 48)}


def _timm_model(timm, name, image_size):
    """The model at that size; one without positions or windows takes any and knows no setting."""
    asked = {"pretrained": False}
    if name in _TIMM_GROUP_WIDTHS:
        asked["base_width"] = _TIMM_GROUP_WIDTHS[name]
    if image_size:
        try:
            return build(lambda: timm.create_model(name, img_size=image_size, **asked))
        except TypeError as error:
            if "img_size" not in str(error):
                raise
    return build(lambda: timm.create_model(name, **asked))


def sizes_in(text):
    """Sizes by name, as an entry states them: ``layers=2,hidden=64``."""
    given = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        given[key.strip()] = _number(value.strip())
    return given


def _denoiser_subject(text, request):
    from torch_networks.denoisers import denoiser

    given = sizes_in(text)
    try:
        job = build(lambda: denoiser(**given))
    except (ValueError, TypeError) as error:
        raise RequestError("bad-request", str(error)) from error
    subject = job_subject(job, request)
    subject.taken, subject.usual_length = job.taken, job.spec["patches"]
    return subject


def _transformer_subject(text, _request):
    given = sizes_in(text)
    try:
        model = build(lambda: zoo.transformer(**given))
    except (ValueError, TypeError) as error:
        raise RequestError("bad-request", str(error)) from error
    subject = Subject(model, "text" if given.get("classes") else "language")
    subject.taken = zoo.sizes_taken(given)
    return subject


def _number(text):
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _user_subject(entry, request):
    """What a function of the user's own returns, built as on a machine with an accelerator."""
    with pretended():
        try:
            return _users_subject(entry, request)
        except OtherFramework:
            raise
        except Exception:  # A user's function: whatever it raised is raised again.
            if not zoo.mends_torchvision():
                raise
        return _users_subject(entry, request)


def _users_subject(entry, request):
    return of_users_code(subject_of(build(_user_function(entry, request)), request))


def of_users_code(subject):
    """A subject whose code is a user's own: it believes in a GPU, and may decide by values."""
    subject.pretends, subject.choices = True, Choices()
    return subject


def _user_function(entry, request):
    # Scripted functions are run as they are written: a script has its own ops at its second call.
    torch.jit._state.disable()
    function = imported(entry, request)
    check_other(function, request)
    if isinstance(function, torch.nn.Module):
        return lambda: function
    if not callable(function):
        module_name, _, name = entry.partition(":")
        raise RequestError("no-function", "`%s` has no function `%s`" % (module_name, name))
    return function


def _guessed_subject(model, request):
    """A model without a word about its inputs."""
    guess = guessed(model, request.get("image_size"))
    if guess is None:
        raise RequestError("no-inputs", "the inputs of the model cannot be guessed from its layers")
    subject = _Steps(model, guess) if guess.has_steps else Subject(model, guess.kind, guess.shape)
    subject.taken = guess.taken
    return subject


class _Steps(Subject):
    """A model of sequences of vectors."""

    def __init__(self, model, guess):
        super().__init__(model, guess.kind, None, has_seq=True)
        self._vector, self._steps_first = guess.shape, guess.steps_first

    def input_description(self):
        """As printed."""
        return "steps of %d" % self._vector

    def inputs(self, batch, seq):
        """Uninitialised vectors, in the order of the model's first layer."""
        order = (seq, batch) if self._steps_first else (batch, seq)
        return torch.empty((*order, *self._vector), device="meta")


def on_meta(value):
    """The same structure with every tensor on meta."""
    return mapped(lambda tensor: tensor if tensor.is_meta else tensor.to("meta"), value)


def _floating_tensors(output):
    """Differentiable tensors of a model's output, those of a dataclass-like one by ``logits``."""
    if hasattr(output, "logits") and not isinstance(output, tuple):
        output = output.logits
    return [t for t in tensors_in(output) if t.is_floating_point() and t.requires_grad]


def _num_arguments(function):
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
