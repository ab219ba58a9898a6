"""Trace a model of JAX: one request in, one result file out.

Standard library, jax and the library of the model (Flax, Equinox, optax) only; runs in the Python
that has jax. The protocol is that of every worker; no array is allocated for weights or data.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(_HERE), "torch"))

from torch_entries.one_request import PROTOCOL, answer_one

LENGTH = 512


class MissingJax(Exception):
    """This Python has no jax."""

    kind = "no-jax"


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
    from jax_primitives import Refused
    from torch_tracing import trace_points

    task, length = request["task"], request.get("seq") or LENGTH
    modules = {}

    def see(point):
        """Rows at one point; their modules are gathered."""
        rows = subject.rows(task, *point)
        modules.update(rows.modules)
        return rows.seen()

    if not subject.has_seq:
        found, shortest = _at_batches(subject, task, modules, see), 1
    elif request.get("is_fixed"):
        found, shortest = trace_points.at_batches(see, length), None
    else:
        found, shortest = trace_points.at_lengths(see, length)
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


def _at_batches(subject, task, modules, see):
    """At three batches: by one trace where the model takes a symbol for a batch, else by three."""
    from jax_symbolic import seen_at
    from torch_tracing import trace_points

    told = seen_at(subject, task, trace_points.BATCHES)
    if told is None:
        return trace_points.at_batches(see, 1)
    views, found = told
    modules.update(found)
    by_batch = dict(zip(trace_points.BATCHES, views))
    return trace_points.at_batches(lambda point: by_batch[point[0]], 1)


if __name__ == "__main__":
    # Shapes are all that is computed: no accelerator is asked for.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    answer_one(serve)
