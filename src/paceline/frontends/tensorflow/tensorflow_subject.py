"""From a SavedModel to a model that can be traced.

Standard library and torch only.
"""

from onnx_model import Model
from onnx_subject import OnnxSubject
from tensorflow_file import read_saved_model
from tensorflow_operators import OPERATORS
from torch_entries.subjects import check_side


def build_subject(request):
    """The subject of a folder that a request names."""
    graph, functions = read_saved_model(request["entry"])
    subject = OnnxSubject(Model(graph, {"": 0}, functions, OPERATORS), graph, request)
    if subject.kind == "image" and subject.shape:
        # Channels stand last.
        subject.described = "×".join(map(str, subject.shape[:-1]))
    check_side(subject, request)
    subject.is_fixed = bool(request.get("is_fixed"))
    return subject
