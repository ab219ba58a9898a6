"""Which models `measure` can build, by any of their names, and near names of those it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.app.requests.python_files import without_file
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.execution.stacks import StackSpec, stack_specs
from paceline.model.names.front_ends import default_front_end, front_end_of
from paceline.model.names.lookup import entry_of, library_names, torchvision_name
from paceline.model.names.zoo_facts import zoo_facts
from paceline.reading import is_file

#: Models of the zoo whose inputs the tracer knows by shape alone: no engine has values for them.
TRACED_ONLY = frozenset(
    {
        "cifar10-cnn", "clip-vit-b-32", "dcgan", "dlrm", "dqn", "gnmt", "mixtral-8x7b", "ncf",
        "ppo", "retinanet", "sd15-unet", "t5-base", "unet", "vae", "whisper-small",
    }
)  # fmt: skip
#: Beginnings and endings of entries that are sizes or graphs, and no program to run.
_TRACED_SCHEMES = ("hf", "transformer", "denoiser", "published", "detectron2")
_GRAPH_FILES = (".npz", ".pt2")
_FOREIGN = (
    "the reason is that of the framework that runs it: give it a whole file (with the files of "
    "weights that it names beside it), or a Python that has what it asks for with --python"
)
_LIBRARIES = {
    "timm": 'python -c "import timm; print(timm.list_models())"',
    "torchvision": 'python -c "import torchvision.models as m; print(m.list_models())"',
}


def measured_entry(typed: str) -> str:
    """The entry that engines build for what a user typed; torchvision's have no prefix.

    >>> measured_entry("ResNet-50"), measured_entry("mobilenet_v3"), measured_entry("train:build")
    ('resnet50', 'mobilenet_v3_large', 'train:build')

    Raises:
        UnknownNameError: No such model; near names are in the hint.
        InvalidInputError: It is known by its sizes alone: no engine has it with values to run on.
    """
    typed = without_file(typed)
    bare = torchvision_name(typed)
    if bare is not None:
        return bare
    entry = entry_of(typed)
    facts = zoo_facts().get(entry)
    asked = facts.entry if facts else entry
    if entry in TRACED_ONLY or _is_traced_alone(asked):
        raise InvalidInputError(
            f"`{typed}` can be predicted, not measured: it is known by its sizes alone",
            hint="write a function that returns the model, or a workload with its inputs, and "
            "name that: `paceline measure module:function` (docs/how-to/own-model.md)",
        )
    return typed if ":" in typed else asked.removeprefix("torchvision:")


def check_engine(typed: str, specs: Sequence[StackSpec]) -> None:
    """Refuse a model of another framework's than the engines of these stacks run.

    Raises:
        InvalidInputError: Its front end has another engine, or its file is not there.
    """
    front_end = front_end_of(typed)
    if front_end is default_front_end() or not front_end.engine:
        return
    wrong = next((one.name for one in specs if one.engine != front_end.engine), None)
    if wrong is not None:
        fitting = [one.name for one in stack_specs().values() if one.engine == front_end.engine]
        raise InvalidInputError(
            f"`{typed}` does not run on the stack `{wrong}`",
            hint=f"give --stack {' or '.join(fitting)}, with --python for a Python that has it",
        )
    if ":" not in typed and not is_file(Path(typed)):
        raise InvalidInputError(
            f"there is no file `{typed}`", hint="give the path of a file that is there"
        )


def failure_hint(entry: str) -> str:
    """What may help where no cell of ``entry`` could be measured: near names of its library."""
    if front_end_of(entry) is not default_front_end():
        return _FOREIGN
    scheme, _, name = entry.partition(":")
    library, name = (scheme, name) if scheme in _LIBRARIES else ("torchvision", entry)
    known = library_names(library)
    if (":" in entry and scheme not in _LIBRARIES) or name in known:
        return "check the model's name, or the environment with `paceline doctor`"
    command = _LIBRARIES[library]
    return UnknownNameError.from_name("model", name, known, command=command).hint


def _is_traced_alone(entry: str) -> bool:
    scheme = entry.partition(":")[0] if ":" in entry else ""
    front_end = front_end_of(entry)
    is_rebuilt = front_end is not default_front_end() and not front_end.engine
    return is_rebuilt or scheme.startswith(_TRACED_SCHEMES) or entry.endswith(_GRAPH_FILES)
