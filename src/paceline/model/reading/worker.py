"""Run a trace worker in the Python that has the framework, and read what it reports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from paceline.errors import InvalidInputError, UnknownNameError, WorkerError, close_names
from paceline.model.names import front_ends as table
from paceline.model.names.front_ends import FRONT_ENDS, FrontEnd, front_end_of
from paceline.model.names.registry import known_models, names_of, origin_of
from paceline.values import dataclass

#: Code that traces models of PyTorch, in the Python that has it.
WORKERS = FRONT_ENDS / "torch"
_TIMEOUT_S = 600.0
_NUM_LAST_LINES = 12


def find_python(
    python: str | None = None, *, framework: str = "torch", others: Sequence[str] = ()
) -> str:
    """The interpreter with a framework: the one named, else this, else the active environment's.

    Args:
        python: The one named.
        framework: What it must have.
        others: Where none is active, this one serves too if it has one of these.

    Raises:
        InvalidInputError: A named interpreter does not exist, or none has the framework.
    """
    if python is not None:
        if not Path(python).exists():
            raise InvalidInputError(
                f"no Python at `{python}`",
                hint=f"give the path of an interpreter that has {framework}",
            )
        return python
    if find_spec(framework) is not None:
        return sys.executable
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        candidate = Path(os.environ.get(variable, "/nonexistent")) / "bin" / "python"
        if candidate.exists() and str(candidate) != sys.executable:
            return str(candidate)
    if any(find_spec(package) is not None for package in others):
        return sys.executable
    raise InvalidInputError(
        f"this Python has no {framework}, and no other environment is active",
        hint=f"activate the environment that has {framework}, or name its Python with "
        "--python PATH",
    )


def run_worker(
    request: Mapping[str, Any],
    *,
    python: str | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, Any]:
    """Trace in a worker process.

    Args:
        request: What to trace (``entry``, ``task`` and settings).
        python: Interpreter to use; found if not given.
        timeout_s: When to give up.

    Returns:
        The worker's report.

    Raises:
        InvalidInputError: No Python with torch, or the request cannot be met as it stands.
        UnknownNameError: No such model.
        WorkerError: The user's code raised, or the worker died, hung or reported garbage.
    """
    front_end = front_end_of(str(request["entry"]))
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        run = _Run(request=request, folder=Path(folder), timeout_s=timeout_s)
        interpreter = find_python(
            python, framework=front_end.module, others=_described_by(front_end, request)
        )
        described, report = run.of(front_end, interpreter)
        if described is None:
            return report
        return run.of_description(described, python)


def run_description(
    description: Mapping[str, Any], request: Mapping[str, Any], front_end: FrontEnd
) -> dict[str, Any]:
    """Trace the model that a description stands for. Errors as of `run_worker`."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        path = Path(folder) / _DESCRIPTION
        path.write_text(json.dumps(description), encoding="utf-8")
        run = _Run(request=request, folder=Path(folder), timeout_s=_TIMEOUT_S)
        return run.of_description(front_end, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One request to one or two workers: a model of another framework is described, then traced."""

    request: Mapping[str, Any]
    folder: Path
    timeout_s: float

    def of(
        self, front_end: FrontEnd, interpreter: str, **more: str
    ) -> tuple[FrontEnd | None, dict[str, Any]]:
        """(None, report), or the front end that is to read the description that was left."""
        result, entry = self.folder / "trace.json", str(self.request["entry"])
        paths = {"output": str(result), "description": str(self.folder / _DESCRIPTION)}
        full = {**self.request, **paths, "directory": os.getcwd(), **more}
        command = [interpreter, "-u", str(front_end.worker)]
        event, talk = _converse(command, full, self.timeout_s)
        if event.get("event") == "error":
            raise reported_error(event, entry, interpreter)
        if event.get("event") == "described":
            rows = (*table.front_ends(front_end.folder.parent), *table.front_ends(FRONT_ENDS))
            return next(one for one in rows if one.name == event["front_end"]), {}
        return None, _load(result, event, interpreter, talk)

    def of_description(self, front_end: FrontEnd, python: str | None) -> dict[str, Any]:
        """The report on what the description in the folder stands for."""
        interpreter = _python_beside(python, front_end)
        described = str(self.folder / _DESCRIPTION)
        _, report = self.of(front_end, interpreter, described=described)
        return report


def _described_by(front_end: FrontEnd, request: Mapping[str, Any]) -> tuple[str, ...]:
    """Packages whose models a Python without torch describes, where code of a user's is run."""
    is_code = ":" in str(request["entry"]) and front_end is table.default_front_end()
    rows = table.front_ends(FRONT_ENDS) if is_code else ()
    return tuple(package for one in rows for package in one.classes)


def _python_beside(python: str | None, front_end: FrontEnd) -> str:
    """The Python that traces a description: this one, else the one whose code was run."""
    if python is None or find_spec(front_end.module) is not None:
        return find_python(framework=front_end.module)
    return python


_DESCRIPTION = "description.json"
#: Tells the worker of a plug-in where the recorder and the protocol are.
_SHIPPED = "PACELINE_FRONT_ENDS"


def _converse(
    command: Sequence[str], request: Mapping[str, Any], timeout_s: float
) -> tuple[dict[str, Any], str]:
    """The worker's last event, and what it wrote to standard error."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as talk:
        process = _start(command, talk)
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            event = _listen(process, json.dumps(dict(request)))
        finally:
            timed_out = not timer.is_alive()
            timer.cancel()
            process.kill()
            process.wait()
            _close_pipes(process)
        talk.seek(0)
        lines = talk.read().splitlines()[-_NUM_LAST_LINES:]
    if event is None:
        raise _silent_death(command[0], process.returncode, timed_out, timeout_s, "\n".join(lines))
    return event, "\n".join(lines)


def _start(command: Sequence[str], talk: IO[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
            errors="replace",
            env={**os.environ, _SHIPPED: str(FRONT_ENDS)},
        )
    except OSError as error:
        raise InvalidInputError(
            f"`{command[0]}` cannot be run: {error.strerror}",
            hint="give the path of an interpreter that has the framework with --python PATH",
        ) from None


def _close_pipes(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            # What was written to a worker that has died cannot be flushed any more.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _listen(process: subprocess.Popen[str], request: str) -> dict[str, Any] | None:
    """The first closing event, past what the worker says of its progress; None without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request + "\n")
        process.stdin.close()
    except BrokenPipeError:
        return None
    for line in process.stdout:
        event = _parse_event(line)
        if event.get("event") in ("done", "error", "described"):
            return event
    return None


def _parse_event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _silent_death(
    interpreter: str, status: int, timed_out: bool, timeout_s: float, talk: str
) -> WorkerError:
    if timed_out:
        return WorkerError(
            f"tracing took longer than {timeout_s:g} s in `{interpreter}`",
            hint="trace a smaller input, or build the model without loading data or weights",
            details=talk,
        )
    return WorkerError(
        f"the trace worker in `{interpreter}` ended (status {status}) without a result",
        hint="its last lines are above; run the function in that Python to see why",
        details=talk,
    )


def _load(result: Path, event: Mapping[str, Any], interpreter: str, talk: str) -> dict[str, Any]:
    try:
        report = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        report = None
    if not isinstance(report, dict) or report.get("protocol") != event.get("protocol"):
        raise WorkerError(
            f"the trace worker in `{interpreter}` left no readable result",
            hint="its last lines are above; run the function in that Python to see why",
            details=talk,
        )
    return report


def reported_error(
    event: Mapping[str, Any], entry: str, interpreter: str
) -> InvalidInputError | UnknownNameError | WorkerError:
    """The error that a worker's closing event stands for."""
    kind, message = event.get("kind"), str(event.get("message", ""))
    if kind == "unknown-model":
        return _unknown(entry, json.loads(message), interpreter)
    if kind == "size":
        refused = json.loads(message)
        return InvalidInputError(f"`{entry}`: {refused['said']}", hint=refused["hint"])
    if kind == "raised":
        details = str(event.get("details", ""))
        return WorkerError(
            f"`{entry}` failed in `{interpreter}`: {message}",
            hint=_hint_of(entry, message, details),
            details=_from_the_users_code_on(details),
        )
    hint = _HINTS.get(str(kind), _HINTS[""])
    if kind == "no-module":
        hint = _meant(entry) + hint
    return InvalidInputError(f"`{entry}`: {message}", hint=hint)


def _unknown(
    entry: str, names: Mapping[str, Any], interpreter: str
) -> InvalidInputError | UnknownNameError:
    """Of a name that is listed here, the library there is too old; of all others, what is near."""
    name, library = names["name"], _library_of(entry.partition(",")[0])
    if library:
        return InvalidInputError(
            f"`{entry}`: the {library} of `{interpreter}` has no `{name}`",
            hint=f"install a newer one, `{interpreter} -m pip install -U {library}`, or name "
            "another Python with --python PATH",
        )
    command = _LISTS.get(entry.partition(":")[0], _LISTS[""])
    return UnknownNameError.from_name("model", name, names["known"], command=command)


def _library_of(entry: str) -> str:
    """The library that a listed name is of; empty for all that is not listed, or of no library."""
    scheme = entry.partition(":")[0]
    is_listed = scheme in _LISTS and entry in names_of(origin_of(entry)).entries
    return _LIBRARIES.get(scheme, scheme) if is_listed else ""


def _meant(entry: str) -> str:
    """What begins like a model's known name and is spelt otherwise, as a question; or nothing."""
    known = {one.entry for one in known_models() if ":" in one.entry}
    scheme, _, name = entry.partition(":")
    near = close_names(scheme, {one.partition(":")[0] for one in known})
    meant = close_names(f"{near[0]}:{name}", known) if near else []
    return f"did you mean `{meant[0]}`? or " if meant else ""


def _hint_of(entry: str, message: str, traceback: str) -> str:
    function = re.escape(entry.partition(":")[2])
    if re.match(rf"TypeError: {function}(\.__init__)?\(\) missing", message):
        return _ARGUMENTS
    known = (hint for pattern, hint in _KNOWN if re.search(pattern, message, re.IGNORECASE))
    found = next(known, None)
    if found is not None:
        return found
    if library := _library_of(entry):
        return _OF_LIBRARY % library
    is_ours = [file.startswith(str(FRONT_ENDS)) for file in _FRAME.findall(traceback)]
    return _CALLS if message.startswith("TypeError") and is_ours[-1:] == [True] else _RAISED


def _from_the_users_code_on(traceback: str) -> str:
    """A traceback without the frames of the worker that led to the user's code, or to its call."""
    frames = list(_FRAME.finditer(traceback))
    if not frames:
        return traceback
    foreign = (frame for frame in frames if not _LEADS_THERE.search(frame[1]))
    first = next(foreign, frames[-1])
    return traceback[: frames[0].start()] + traceback[first.start() :]


_FRAME = re.compile(r'^  File "([^"]+)"', re.MULTILINE)
#: Files of the worker, and what imports a module for it.
_LEADS_THERE = re.compile(rf"^{re.escape(str(FRONT_ENDS))}|importlib[./\\_]")
_ARGUMENTS = (
    "it is called without arguments: write a function that calls it with yours, and name that"
)
_CALLS = (
    "of a workload, `inputs(batch)` or `inputs(batch, length)` is called, then "
    "`step(model, inputs)`, or the model with `loss(output, inputs)`, where `inputs` is what the "
    "first returned"
)
_RAISED = "the traceback above is your model's own; correct it, or its inputs"
_OF_LIBRARY = (
    "another release of %s may do: name its Python with --python PATH; or name a function of "
    "yours that builds the model, `MODULE:FUNCTION`"
)
_READS_VALUES = (
    "the traceback above shows where it reads values that a trace has not (whole numbers, truth "
    "values): trace a step that does not decide by them, or keep sizes as numbers of the program"
)
#: What leads out of failures that are known by their messages.
_KNOWN: Sequence[tuple[str, str]] = (
    (r"^ModuleNotFoundError", "install that module in that Python, or name another with --python"),
    (
        r"URLError|ConnectionError|Name or service not known|LocalEntryNotFound|offline mode",
        "weights are not needed: build the model from its configuration, without `pretrained` or "
        "`from_pretrained`, or name it as hf:NAME, timm:NAME or torchvision:NAME",
    ),
    (
        r"NaN to integer|cannot be converted to type int|'float' object cannot be interpreted|"
        r"meta tensor",
        _READS_VALUES,
    ),
    (
        r"Expected inputs of BF16",
        "its experts have kernels for BF16 only: return `model.to(torch.bfloat16)`",
    ),
    (
        r"is not on the expected device meta",
        "as on a GPU, a tensor lies on the CPU that meets one of the device: make it with "
        "`device=x.device`, or register it as a buffer of the module",
    ),
)
#: The library of a scheme that has another name.
_LIBRARIES: Mapping[str, str] = {"hf": "transformers"}
#: What lists the names of a scheme.
_LISTS: Mapping[str, str] = {
    "": "paceline models",
    "keras": 'python -c "import keras; print(dir(keras.applications))"',
    "timm": 'python -c "import timm; print(timm.list_models())"',
    "torchvision": 'python -c "import torchvision.models as m; print(m.list_models())"',
    "hf": 'python -c "from transformers import CONFIG_MAPPING; print(list(CONFIG_MAPPING))"',
}
_HINTS: Mapping[str, str] = {
    "": "see `paceline trace --help`",
    "no-torch": "name a Python that has torch with --python PATH",
    "no-module": "run paceline in the folder of the module, or install it in that Python",
    "no-function": "name a function of the module as `module:function`",
    "no-model": "the function must return an nn.Module, or a workload with a model and inputs",
    "no-inputs": "return the model with an example batch, `return model, x`, or an object with "
    "`model` and `inputs` (a function of batch and length)",
    "no-backward": "call `loss.backward()` in it, or return the loss",
    "sparse": "make its matrices dense, or pass them as edges",
    "endless": "its end depends on values, which a trace has not: run the loop a fixed number of "
    "times, as many as it takes on average",
    "bad-phase": "write (name, how often per step, function of model and inputs), and a fourth "
    "`'host'` for what runs on the CPU",
    "varies": "its step must do the same operations at every batch size",
    "static": "export it with a free batch, and a free length where it has one: "
    "`dynamic_shapes={'x': {0: torch.export.Dim('batch')}}`",
    "no-file": "give the path of a file that is there, as its exporter wrote it",
    "no-program": "export it again with the torch of this Python, or name its Python with --python",
    "no-class": "install a newer transformers in that Python, or name another with --python PATH; "
    "without `architectures` in its config.json the library's own class is taken",
    "bad-config": "give the config.json of a model of transformers, or the folder that holds it",
    "bad-keras": "docs/how-to/models-of-keras.md lists what is read; export a model with code of "
    "its own to ONNX or a SavedModel by `model.export`, or build it of layers of Keras",
    "bad-caffe": "docs/how-to/models-of-caffe.md lists the layers that are read",
    "bad-gguf": "docs/how-to/gguf-models.md says what is read; give the config.json of others",
    "bad-model": "the file says what no framework can run: write it again, or name another",
    "bad-request": "see `paceline trace --help`",
    "bad-file": "export the model again; the file is damaged, or was made to mislead",
    "onnx-op": "replace it before the export, or trace the model that the file was exported from",
    "onnx-opset": "export it again, or convert it with `onnx.version_converter`",
    "onnx-loop": "export it with loops that run a fixed number of times, or trace its own code",
    "onnx-node": "check the file with `onnx.checker`; its batch must be free, or fixed, all along",
    "onnx-values": "simplify the file first, or export it with sizes as constants",
    "tf-inputs": "give it an `input_signature=[tf.TensorSpec(…)]`, or return "
    "`f.get_concrete_function(tf.TensorSpec(…))`",
    "tf-signature": "export it with a signature, as `model.export` of Keras does",
    "jax-op": "write that part in operations of JAX, or give a function without it",
    "jax-loop": "run the loop a fixed number of times (`scan`, `fori_loop`), as many as on average",
    "no-jax": "name a Python that has jax with --python PATH",
}
