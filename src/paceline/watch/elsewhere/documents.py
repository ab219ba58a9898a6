"""Tasks of engines that take a document: what `deploy` writes, or a plain one, with ``start.sh``.

A document is plain data; what a user wrote goes in as a value and is never read as its format.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.errors import InvalidInputError, MissingFactError
from paceline.values import dataclass
from paceline.watch.elsewhere.start_script import START

Document = dict[str, Any]
_VOLUME = "paceline"
_KEPT_S = 86_400
#: A pod waits 15 minutes for the run's folder, and at its end ten for whoever fetches it.
_POD = """\
here="$1" waited=0
until [ -e "$here/sent" ]; do
  waited=$((waited + 1))
  [ "$waited" -le 900 ] || exit 75
  sleep 1
done
sh "$here/@START@" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM
status=0
wait "$child" || status=$?
while kill -0 "$child" 2>/dev/null; do
  status=0
  wait "$child" || status=$?
done
waited=0
until [ -e "$here/fetched" ] || [ "$waited" -ge 600 ]; do waited=$((waited + 1)); sleep 1; done
exit "$status"
""".replace("@START@", START)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a document is written from.

    Attributes:
        name: Of the job.
        folder: Of the run, here.
        there: Of the run, where it runs.
        command: As typed.
        launch: Documents of the plan's launch file; empty without a plan.
        facts: Given in the place of a plan.
    """

    name: str
    folder: str
    there: str
    command: tuple[str, ...]
    launch: tuple[Document, ...]
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A document, and the words that ``start.sh`` runs."""

    document: Document
    command: tuple[str, ...]


def task_of(engine: str, asked: Asked) -> Task:
    """What is submitted to an engine that takes documents.

    Raises:
        InvalidInputError: The plan needs several machines, which have one folder each.
        MissingFactError: A fact that the document needs is not given.
    """
    return _TASKS[engine](asked)


def _kubernetes(asked: Asked) -> Task:
    """A job of one pod, which waits for the run's folder."""
    jobs = [one for one in asked.launch if one.get("kind") == "Job"]
    job = copy.deepcopy(jobs[0]) if jobs else _plain_job(asked.facts)
    spec = job["spec"]
    if spec.get("completions", 1) > 1:
        raise InvalidInputError(
            "this plan needs several pods, and the folder of a run is sent to one",
            hint="`paceline deploy PLAN --to kubernetes` writes the job for kubectl",
        )
    job["metadata"]["name"] = asked.name
    for key in ("podFailurePolicy", "podReplacementPolicy"):
        spec.pop(key, None)
    spec |= {"backoffLimit": 0, "ttlSecondsAfterFinished": _KEPT_S}
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    # `start.sh` runs them, and it is Kubernetes alone that reads two dollars as one.
    listed = (*container.get("command", ()), *container.pop("args", ()))
    words = tuple(word.replace("$$", "$") for word in listed) or asked.command
    container["command"] = ["sh", "-c", _POD, "paceline", asked.there]
    mount = {"name": _VOLUME, "mountPath": asked.there.rpartition("/")[0]}
    container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    pod["volumes"] = [*pod.get("volumes", ()), {"name": _VOLUME, "emptyDir": {}}]
    return Task(document=job, command=words)


def _plain_job(facts: Mapping[str, str]) -> Document:
    container: Document = {"name": "trainer", "image": facts["image"]}
    if gpus := facts.get("gpus"):
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    spec = {"completions": 1, "parallelism": 1, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec}


def _skypilot(asked: Asked) -> Task:
    """A task that takes the run's folder along; of several nodes the first one's is fetched."""
    found = copy.deepcopy(asked.launch[0]) if asked.launch else _plain_task(asked.facts)
    empty = [name for name, value in (found.get("envs") or {}).items() if value is None]
    if empty:
        raise MissingFactError(
            f"not set in the launch file: {_named(empty)}",
            hint="give `--set data=s3://…` and `--set checkpoints=s3://…`",
        )
    words = ("bash", "-c", found["run"]) if "run" in found else asked.command
    # Recovery belongs to managed jobs, whose machines nobody can look at.
    found.get("resources", {}).pop("job_recovery", None)
    mounts = {**(found.get("file_mounts") or {}), f"~/{asked.there}": asked.folder}
    run = f'sh "$HOME/{asked.there}/{START}"'
    return Task(document={**found, "name": asked.name, "file_mounts": mounts, "run": run},
                command=tuple(words))  # fmt: skip


def _plain_task(facts: Mapping[str, str]) -> Document:
    return {"workdir": ".", "resources": dict(facts)}


_TASKS: Mapping[str, Callable[[Asked], Task]] = {"kubernetes": _kubernetes, "skypilot": _skypilot}


def check_facts(facts: Mapping[str, str], known: Mapping[str, bool], engine: str) -> None:
    """Refuse facts that a document without a plan has no place for, and missing ones.

    Raises:
        InvalidInputError: Another fact.
        MissingFactError: One that is needed.
    """
    others = _named(sorted(facts.keys() - known.keys()))
    if others:
        raise InvalidInputError(
            f"`--set {others}` says nothing at {engine} without a plan",
            hint=f"without one it takes {_named(sorted(known))}",
        )
    missing = _named([name for name, needed in known.items() if needed and not facts.get(name)])
    if missing:
        raise MissingFactError(
            f"{engine} must be told the {missing} of a command without a plan",
            hint=f"give `--set {missing}=…`",
        )


def _named(names: Sequence[str]) -> str:
    return ", ".join(names)
