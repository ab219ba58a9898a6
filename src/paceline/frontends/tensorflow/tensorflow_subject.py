"""From a SavedModel, or a `tf.function`, to a model that can be traced.

Standard library and torch only.
"""

import base64
import json
import os

from onnx_model import Model
from onnx_subject import OnnxSubject
from tensorflow_file import read_saved_model
from tensorflow_operators import OPERATORS
from torch_entries.subjects import check_side


def build_subject(request):
    """The subject of a folder that a request names, or of a function that was described."""
    described = request.get("described")
    graph, functions = read_saved_model(_written(described) if described else request["entry"])
    subject = OnnxSubject(Model(graph, {"": 0}, functions, OPERATORS), graph, request)
    if subject.kind == "image" and subject.shape:
        # Channels stand last.
        subject.described = "×".join(map(str, subject.shape[:-1]))
    check_side(subject, request)
    subject.is_fixed = bool(request.get("is_fixed"))
    return subject


def _written(described):
    """The ``saved_model.pb`` of a description, in its folder."""
    with open(described, encoding="utf-8") as file:
        content = json.load(file)["saved_model"]
    path = os.path.join(os.path.dirname(described), "saved_model.pb")
    with open(path, "wb") as file:
        file.write(base64.b64decode(content))
    return path
