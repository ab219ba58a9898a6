"""Trace a PyTorch model: one request in, one result file out.

Standard library and torch only; runs in the Python that has torch.
"""

import contextlib
import functools
import sys

from torch_entries.made_models import check_other, imported
from torch_entries.one_request import PROTOCOL, answer_one, error_event
from torch_tracing import trace_points

#: Length of a model whose ops depend on it, where none is asked for.
LENGTH = 512
#: Of sequences that generators of text are trained on, where nothing is said and they take so many.
TRAINED_LENGTH = 2048
#: What is taken of masks whose hits a step counts: nobody knows them.
_WHOLE_MASKS = "every element of a mask is a hit"
_EVEN = "batches that are multiples of %d" % trace_points.EVEN_BATCHES[0]


def main(build=None):
    """Serve one request; ``build`` makes a subject of it, where it is no entry of PyTorch's."""
    answer_one(lambda request, progress: serve(request, progress, build))


class MissingTorch(Exception):
    """This Python has no torch."""

    kind = "no-torch"


def serve(request, progress, build=None):
    """Trace every pass of the requested entry, or of the subject that ``build`` makes of it."""
    try:
        import torch
    except ImportError as error:
        if build is None and ":" in request["entry"]:
            check_other(imported(request["entry"], request), request)
        raise MissingTorch("this Python has no torch (%s)" % error) from error
    from torch_entries.subjects import build_subject

    torch.backends.mha.set_fastpath_enabled(False)
    progress("building %s" % request["entry"])
    subject, build = None, build or build_subject
    try:
        subject = build(request)
        progress("tracing %s" % request["entry"])
        return report(subject, request["task"], request.get("seq") or LENGTH)
    except Exception as error:
        refused = _refused(request, error, subject, build)
        if refused is None:
            raise
        raise refused from error


def _refused(request, error, subject, build):
    """What is said of a size or of settings that were asked for; None of all other errors."""
    is_own = subject is not None and subject.pretends
    if getattr(error, "kind", None):
        return None
    if request.get("image_size") and not is_own:
        return _refused_side(request, error, build)
    refuse = getattr(subject, "refusal", None)
    return refuse and refuse(error)


def _refused_side(request, error, build):
    """The refusal of a side that a model of ours or of a library fails at."""
    from torch_entries.subjects import of_size

    usual = build({**request, "image_size": None}).input_description()
    side = request["image_size"]
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    said = "it cannot take pictures of %d×%d (%s)" % (side, side, reason)
    return of_size(said, "leave --image-size out for its own, %s" % usual)


def report_or_event(made, request):
    """(error event, None) or (None, report) of a model object of this process."""
    import torch
    from torch_entries.building import on_meta_twin
    from torch_entries.subjects import check_side, of_users_code, subject_of

    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        subject = of_users_code(subject_of(on_meta_twin(made), request))
        check_side(subject, request)
        subject.is_fixed = bool(request.get("is_fixed"))
        return None, report(subject, request["task"], request.get("seq") or LENGTH)
    except Exception as error:  # noqa: BLE001  The edge, as in `main`.
        return error_event(error), None
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)


def report(subject, task, length=LENGTH):
    """What the parent reads; a pass whose ops depend on the length is traced at ``length``."""
    import torch

    with _no_padding():
        passes = [_trace_pass(subject, task, one, length) for one in subject.passes(task)]
    if subject.choices is not None:
        subject.taken = ", ".join(filter(None, (subject.taken, *subject.choices.taken())))
    return {
        "protocol": PROTOCOL,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "num_parameters": sum(p.numel() for p in subject.model.parameters()),
        "kind": subject.kind,
        "input": subject.input_description(),
        "taken": subject.taken,
        "released": getattr(subject, "released", ""),
        "input_shape": subject.shape,
        "usual_length": _usual_length(subject, task),
        "shortest_item": subject.shortest,
        "passes": passes,
    }


def _usual_length(subject, task):
    if subject.usual_length:
        return subject.usual_length
    usual = TRAINED_LENGTH if task == "train" and subject.is_generator else LENGTH
    return min(usual, subject.longest or usual)


def _no_padding():
    """Where the transformers library is loaded, its models read no values of their inputs."""
    if "transformers.masking_utils" not in sys.modules:
        return contextlib.nullcontext()
    from torch_transformers.families import whole_sequences

    return whole_sequences()


def _trace_pass(subject, task, one, length):
    """Trace one pass at several batches and lengths, or at one length where its ops depend on it.

    ``length`` is the one length that such a pass is traced at.
    """
    from torch_entries.subjects import RequestError

    name, repeats, runs_on, _ = one
    modules = list(subject.model.named_modules())
    index = {id(m): number for number, (_, m) in enumerate(modules)}
    subject.model.train(task == "train")
    see = functools.partial(_seen, subject, task, one, index)
    found, shortest = _found(subject, see, length)
    if found is None:
        raise RequestError("varies", "its ops change with the batch size")
    second = ("past" if name == "decode" else "seq") if subject.has_seq and shortest else ""
    points, topology, numbers = found
    return {
        "name": name,
        "repeats": repeats,
        "runs_on": runs_on,
        "variables": ["batch", second],
        "length": None if shortest else length,
        "shortest": shortest,
        "points": points,
        "modules": [path for path, _ in modules],
        "topology": topology,
        "numbers": numbers,
    }


def _found(subject, see, length):
    """What is seen at enough points, and from which length on; at even batches where it must be."""
    error = None
    try:
        found, shortest = _at_points(subject, see, length, trace_points.BATCHES)
    except Exception as caught:  # noqa: BLE001  A user's step; raised below unless even batches pass.
        found, shortest, error = None, None, caught
    if found is None and subject.pretends:
        # Where even batches fail too, the first error is the one that the user understands.
        with contextlib.suppress(Exception):
            found, shortest = _at_points(subject, see, length, trace_points.EVEN_BATCHES)
            subject.taken = ", ".join(filter(None, (subject.taken, _EVEN)))
    if found is None and error is not None:
        raise error
    return found, shortest


def _at_points(subject, see, length, batches):
    if not subject.has_seq:
        return trace_points.at_batches(see, 1, batches), 1
    if subject.is_fixed:
        return trace_points.at_batches(see, length, batches), None
    return trace_points.at_lengths(see, length, batches, subject.longest)


def _seen(subject, task, one, modules, point):
    """(topology without deaths, deaths, numbers) of one traced execution."""
    recorder = _recorded(subject, task, one, modules, *point)
    topology = recorder.topology()
    return topology, topology.pop("death"), recorder.numbers()


def _recorded(subject, task, one, modules, batch, seq):
    """One traced execution, with other answers to its conditions where the first ones fail."""
    if subject.choices is None:
        return record(subject, task, one, modules, batch, seq)
    while True:
        subject.choices.start()
        try:
            return record(subject, task, one, modules, batch, seq)
        except Exception:  # A user's code; raised again once no condition is left to reverse.
            if not subject.choices.reversed():
                raise


def record(subject, task, one, modules, batch, seq):
    """One traced execution."""
    import torch
    from torch_tracing.pretence import pretended
    from torch_tracing.recorder import ModuleTracker, Recorder
    from torch_tracing.stand_ins import Canonical
    from torch_tracing.values import Values
    from torch_tracing.waits import full_masks

    name, _, _, run = one
    recorder = Recorder(Values() if subject.pretends else None, subject.choices)
    grad = contextlib.nullcontext() if task == "train" else torch.no_grad()
    device = torch.device("meta") if subject.makes_tensors else contextlib.nullcontext()
    masks = full_masks() if subject.makes_tensors else contextlib.nullcontext()
    place = pretended() if subject.pretends else contextlib.nullcontext()
    seen = ModuleTracker(recorder, modules)
    try:
        with grad, device, masks, recorder, seen, Canonical(recorder), place:
            with recorder.paused():
                recorder.own_model(subject.model)
            if run is None:
                _generate(subject, recorder, name, batch, seq)
            else:
                run(recorder, _own_inputs(subject, recorder, batch, seq))
    finally:
        recorder.close()
        for parameter in subject.model.parameters():
            parameter.grad = None
    if subject.makes_tensors and recorder.takes_whole_masks and _WHOLE_MASKS not in subject.taken:
        subject.taken = ", ".join(filter(None, (subject.taken, _WHOLE_MASKS)))
    return recorder


def _generate(subject, recorder, name, batch, seq):
    """Prefill ``seq`` tokens into a cache, or decode one more with a cache of ``seq``."""
    caches = _own_caches(subject, recorder, batch, seq)
    is_decode = name == "decode"
    inputs = _own_inputs(subject, recorder, batch, 1 if is_decode else seq)
    subject.model(inputs, caches, seq - 1 if is_decode else 0, True)


def _own_inputs(subject, recorder, batch, seq):
    from torch_tracing.structures import tensors_in

    with recorder.paused():
        inputs = subject.inputs(batch, seq)
        for tensor in tensors_in(inputs):
            recorder.own(tensor, "input")
    return inputs


def _own_caches(subject, recorder, batch, length):
    import torch

    spec = subject.model.spec
    shape = (batch, spec["kv_heads"], length, spec["head_size"])
    with recorder.paused():
        caches = [
            (torch.empty(shape, device="meta"), torch.empty(shape, device="meta"))
            for _ in range(spec["layers"])
        ]
        for pair in caches:
            recorder.own(pair[0], "kv_cache")
            recorder.own(pair[1], "kv_cache")
    return caches


if __name__ == "__main__":
    main()
