"""A `tf.function` that a user's function returns, as TensorFlow saves it: in the user's Python.

Standard library and the user's own TensorFlow only. Of what is saved, the graph is handed on; the
values of variables are not.
"""

import base64
import os
import tempfile

from torch_entries.request_errors import RequestError


def describe(made, request):
    """The graph of a function with its shapes, as a ``saved_model.pb`` holds it."""
    import tensorflow

    if isinstance(made, tensorflow.Module):
        made = made.__call__
    if not hasattr(made, "structured_input_signature"):
        made = _concrete(made)
    holder = tensorflow.Module()
    holder.kept = list(made.graph.variables)
    with tempfile.TemporaryDirectory() as folder:
        tensorflow.saved_model.save(holder, folder, signatures=made)
        with open(os.path.join(folder, "saved_model.pb"), "rb") as file:
            return {"saved_model": base64.b64encode(file.read()).decode("ascii")}


def _concrete(made):
    if not hasattr(made, "get_concrete_function"):
        raise RequestError("no-model", "it gives %s, not a tf.function" % type(made).__name__)
    try:
        return made.get_concrete_function()
    except TypeError:
        raise RequestError("tf-inputs", "the shapes of its inputs are not known") from None
