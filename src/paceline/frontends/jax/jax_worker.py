"""Trace a model of JAX: one request in, one result file out.

Standard library, jax and the library of the model (Flax, Equinox, optax) only; runs in the Python
that has jax. The protocol is that of every worker; no array is allocated for weights or data.
"""

import json
import os
import sys
import traceback

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(_HERE), "torch"))

PROTOCOL = 1
LENGTH = 512


class MissingJax(Exception):
    """This Python has no jax."""

    kind = "no-jax"


def main():
    """Serve one request."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    request = json.loads(sys.stdin.readline())
    # Shapes are all that is computed: no accelerator is asked for.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        answer = serve(request, lambda text: _send(channel, event="progress", message=text))
        with open(request["output"], "w") as file:
            json.dump(answer, file, separators=(",", ":"))
        _send(channel, event="done", protocol=PROTOCOL)
    except Exception as error:  # noqa: BLE001  The edge: whatever is raised is sent to the parent.
        _send(channel, **_error_event(error))


def _send(channel, **event):
    channel.write(json.dumps(event) + "\n")
    channel.flush()


def _error_event(error):
    if getattr(error, "kind", None):
        return {"event": "error", "kind": error.kind, "message": str(error), "details": ""}
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    message = "%s: %s" % (type(error).__name__, error)
    return {"event": "error", "kind": "raised", "message": message, "details": details[-4000:]}


def serve(request, progress):
    """Trace the pass of the requested entry at several batches and lengths."""
    try:
        import jax
    except ImportError as error:
        raise MissingJax("this Python has no jax (%s)" % error) from error
    from jax_models import subject_of

    entry = request["entry"]
    progress("building %s" % entry)
    subject = subject_of(request)
    progress("tracing %s" % entry)
    found = _traced(subject, request)
    return {
        "protocol": PROTOCOL,
        "framework": "jax",
        "torch": jax.__version__,
        "python": sys.version.split()[0],
        "num_parameters": subject.num_parameters,
        "kind": subject.kind,
        "input": subject.described,
        "taken": ", ".join(subject.taken),
        "input_shape": subject.shape,
        "usual_length": LENGTH,
        "passes": [found],
    }


def _traced(subject, request):
    import torch_points
    from jax_primitives import Refused

    task, length = request["task"], request.get("seq") or LENGTH
    modules = {}

    def see(point):
        rows = subject.rows(task, *point)
        modules.update(rows.modules)
        return rows.seen()

    if not subject.has_seq:
        found, shortest = torch_points.at_batches(see, 1), 1
    elif request.get("is_fixed"):
        found, shortest = torch_points.at_batches(see, length), None
    else:
        found, shortest = torch_points.at_lengths(see, length)
    if found is None:
        raise Refused("its ops change with the batch size", "varies")
    points, topology, numbers = found
    return {
        "name": "step" if task == "train" else "forward",
        "repeats": 1.0,
        "runs_on": "device",
        "variables": ["batch", "seq" if subject.has_seq and shortest else ""],
        "length": None if shortest else length,
        "shortest": shortest,
        "points": points,
        "modules": sorted(modules, key=modules.get),
        "topology": topology,
        "numbers": numbers,
    }


if __name__ == "__main__":
    main()
