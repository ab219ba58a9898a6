"""What a function of a user's own makes, by the framework whose model it is.

Standard library only: it runs in Pythons without torch too. A model of another framework than
PyTorch is described by ``NAME_description.py`` in the folder of its front end: a function
``describe(made, request)`` returns what can be written as JSON, for that front end's worker.
"""

import contextlib
import csv
import importlib
import importlib.util
import os
import sys

from torch_entries.request_errors import RequestError

_FRONT_ENDS = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))

#: Backends of Keras, the one that it asks for unless told otherwise first.
_BACKENDS = ("tensorflow", "jax", "torch")


class OtherFramework(Exception):
    """A model that another front end reads.

    Attributes:
        front_end: Its name.
        description: What its worker is given.
    """

    def __init__(self, front_end, description):
        super().__init__(front_end)
        self.front_end = front_end
        self.description = description


def imported(entry, request):
    """What ``module:name`` names."""
    module_name, _, name = entry.partition(":")
    # Keras on PyTorch looks for a GPU when it is imported, and has to be content with none.
    os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")
    _choose_backend()
    directory = request.get("directory") or os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        with _own_modules_aside(module_name):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            raise RequestError("no-module", "no module named `%s`" % module_name) from error
        raise
    if not hasattr(module, name):
        raise RequestError("no-function", "`%s` has no function `%s`" % (module_name, name))
    return getattr(module, name)


@contextlib.contextmanager
def _own_modules_aside(name):
    """A user's module may have the name of one of a front end's, which is imported already."""
    ours, folders = sys.modules.get(name), list(sys.path)
    if not _is_ours(getattr(ours, "__file__", None)):
        yield
        return
    del sys.modules[name]
    sys.path.sort(key=_is_ours)
    try:
        yield
    finally:
        sys.modules[name], sys.path[:] = ours, folders


def _is_ours(path):
    return bool(path) and os.path.abspath(path).startswith(_FRONT_ENDS + os.sep)


def _choose_backend():
    """Let Keras, which asks for TensorFlow, use a backend that this Python has: all read alike."""
    installed = [name for name in _BACKENDS if importlib.util.find_spec(name)]
    if installed and "tensorflow" not in installed:
        os.environ.setdefault("KERAS_BACKEND", installed[0])


def check_other(function, request):
    """Describe what a function makes, where its module speaks another framework than PyTorch.

    Raises:
        OtherFramework: It makes a model that another front end reads.
    """
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    owners = {_package(one) for one in list(vars(module).values())} if module else set()
    named = {one for row in _rows() for one in row["classes"].split("|")}
    if owners & named - {"torch", ""} or front_end_of_object(function) != "torch":
        raise_other(function() if _is_called(function) else function, request)


def raise_other(made, request):
    """Describe a model of another framework.

    Raises:
        OtherFramework: It is one.
    """
    front_end = front_end_of_object(made)
    if front_end == "torch":
        return
    folder = os.path.join(_FRONT_ENDS, front_end)
    sys.path.insert(0, folder)
    try:
        described = importlib.import_module(front_end + "_description").describe(made, request)
    finally:
        sys.path.remove(folder)
    raise OtherFramework(front_end, described)


def front_end_of_object(made):
    """The front end that reads an object, by the packages of its classes; else PyTorch's.

    What is a class of two frameworks (a Keras model on PyTorch) is the higher one's.
    """
    packages = {one.__module__.partition(".")[0] for one in type(made).__mro__}
    for row in reversed(_rows()):
        if packages & set(filter(None, row["classes"].split("|"))):
            return row["name"]
    return "torch"


def _is_called(function):
    """Whether a name is that of a function or class, not of a model that stands in the module."""
    return isinstance(function, type) or front_end_of_object(function) == "torch"


def _package(value):
    name = getattr(value, "__name__", "") if isinstance(value, type(sys)) else ""
    return (name or getattr(value, "__module__", None) or "").partition(".")[0]


def _rows():
    with open(os.path.join(_FRONT_ENDS, "front_ends.csv"), newline="") as file:
        return list(csv.DictReader(file))
