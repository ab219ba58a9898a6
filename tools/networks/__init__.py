"""Networks of one shape: built here, traced, and shipped as graphs.

A builder is a class or function of `networks.builders` without arguments; it makes a model with
``inputs``, or a job that has one, as users write them. What can be asked for in other sizes
(pictures of any side, families of one design) is built beside the trace worker instead.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.trace.load import workload_from_report
from paceline.trace.workload import Task, Workload
from paceline.trace.zoo_facts import zoo_facts

TRACE = Path(__file__).parents[2] / "src" / "paceline" / "trace"
_OPTIMIZER = "adamw"
#: Module of `networks.builders` of each beginning of an entry; "" has the zoo.
_SCHEMES = {
    "": "zoo", "published": "models", "published_folding": "folding",
    "published_frames": "frames", "published_litgpt": "litgpt", "published_recurrent": "recurrent",
    "published_sequences": "sequences", "published_speech": "speech",
    "published_tables": "tables",
}  # fmt: skip


def worker(name: str) -> Any:
    """A module of the trace worker by its plain name."""
    if str(TRACE / "workers") not in sys.path:
        sys.path.append(str(TRACE / "workers"))
    return importlib.import_module(name)


def all_builders() -> dict[str, Callable[[], Any]]:
    """Builders by entry: ``published_speech:jasper``, ``dcgan``. Needs torch."""
    worker("torch_models")
    found: dict[str, Callable[[], Any]] = {}
    for scheme, home in _SCHEMES.items():
        models = importlib.import_module(f"networks.builders.{home}").MODELS
        found |= {f"{scheme}:{name}" if scheme else name: make for name, make in models.items()}
    return found


def traced(entry: str, task: Task) -> Workload:
    """The workload of a network of one shape, traced in this process."""
    facts = zoo_facts().get(entry)
    request = {"entry": entry, "task": task}
    report = worker("torch_worker").serve(request, lambda _: None, build=subject)
    return workload_from_report(
        json.loads(json.dumps(report)),
        entry=entry,
        task=task,
        optimizer=facts.optimizer if facts else _OPTIMIZER,
    )


def path_of(entry: str, task: Task) -> Path:
    """Where the graph of an entry is shipped."""
    return TRACE / "zoo" / f"{entry.replace(':', '/')}-{task}.npz"


def subject(request: dict[str, Any]) -> Any:
    """What the worker traces of an entry: its job, in the words of its own class."""
    job = worker("torch_building").build(all_builders()[request["entry"]])
    made = worker("torch_subjects").subject_of(job, request)
    made.described = getattr(job, "described", "")
    made.taken = getattr(made.model, "taken", made.taken)
    return made
