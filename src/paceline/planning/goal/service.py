"""Who serves a language model: an engine, unless a plain loop is named."""

from __future__ import annotations

import math

from paceline.catalog.entities import Device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Platform
from paceline.model.graph.rows import Window
from paceline.model.graph.workload import Workload
from paceline.planning.goal.goal import Goal, Work
from paceline.stack.engines import (
    PORTABLE_ENGINE,
    USUAL_ENGINE,
    USUAL_LOOP,
    EngineProfile,
    engines,
    find_engine,
    runs_models,
)
from paceline.units import format_percent
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Who serves the requests of a job.

    Attributes:
        engine: The one that is asked for, or the usual one.
        elsewhere: What serves on devices that it has no kernels for; None where it is asked for.
        is_stated: Whether the user named it, or stated what only engines do; a device that nothing
            serves on then has no answer, where it else runs a plain loop.
    """

    engine: EngineProfile
    elsewhere: EngineProfile | None
    is_stated: bool

    def on(self, device: Device, platform: Platform) -> EngineProfile | None:
        """What serves on a device; None where nothing has kernels for it."""
        able = (one for one in (self.engine, self.elsewhere) if one is not None)
        return next((one for one in able if one.serves_on(device, platform)), None)

    def excludes(self, device: Device, platform: Platform) -> bool:
        """Whether a device has no answer since the user wants an engine."""
        return self.is_stated and self.on(device, platform) is None


def widened_words(devices: str) -> str:
    """What becomes of weights that were asked for in FP8 on some devices."""
    return f"{devices}: weights alone in FP8 (told as int8), widened by kernels: no FP8 units"


def service_of(goal: Goal, workload: Workload) -> Service | None:
    """Who serves the workload; None where it is run as it is, as encoder-decoders always are.

    Raises:
        InvalidInputError: An engine is named for what generates nothing, or told how to launch.
    """
    engine = goal.engine
    if engine is None:
        if not workload.generates or workload.encodes:
            return None
        return _usual(goal, needs=workload.needs_engine)
    if not engine.serves:
        _check_trains(goal, workload)
        if engine.is_own:
            _check_trained(engine, workload)
            _check_launch(engine, goal)
        return None
    if workload.task == "train":
        raise InvalidInputError(
            f"{_named(engine)} answers requests, and {workload.title} is trained here",
            hint="leave --framework out, or write --framework torch; adapters that requests name: "
            "--adapters count=8,rank=16",
        )
    if not workload.generates:
        raise InvalidInputError(
            f"{_named(engine)} serves language models, and {workload.title} writes no tokens here",
            hint=f"leave --framework out, or write --framework {USUAL_LOOP}",
        )
    if workload.encodes:
        return None
    _check_launch(engine, goal)
    return Service(engine=engine, elsewhere=None, is_stated=True)


def _named(engine: EngineProfile) -> str:
    if not engine.stands_for:
        return engine.title
    return f"{engine.stands_for} is predicted as {engine.title}, which"


def kernels_words(goal: Goal, workload: Workload) -> str:
    """Whose kernels stand for those of software that was in no table; empty of all else."""
    if goal.engine is not None and goal.engine.serves and workload.encodes:
        return (
            f"{goal.engine.stands_for or goal.engine.title} runs an encoder-decoder as whole "
            "batches here: predicted as compiled PyTorch runs the graph"
        )
    loop = goal.engine
    if loop is not None and loop.runs_on:
        return f"{loop.stands_for} is predicted on {loop.title}: {loop.why}"
    if loop is not None and loop.stands_for:
        like = f"predicted as {loop.title}, the nearest: {loop.why}"
        return f"{loop.stands_for} has no profile of its own: {like}"
    if loop is not None and loop.writes_by_op and workload.generates:
        return (
            f"{loop.title} runs the exported graph of a language model op by op: predicted as "
            "eager PyTorch runs it"
        )
    if loop is not None and loop.is_own:
        inside = ", with short chains inside products" if loop.compiler == "tensorrt" else ""
        return (
            f"{loop.title} has kernels of its own: predicted as compiled PyTorch runs the graph"
            f"{inside}"
        )
    if loop is None or loop.serves or loop.host == loop.framework:
        return ""
    like = engines()[loop.host].title
    return f"steps are predicted as {like}'s kernels run them; those of {loop.title} may differ"


def rounds_of(work: Work) -> float:
    """Requests of one place in flight that come one after the other: without end at a rate."""
    return 1.0 if work.requests_per_s is None else math.inf


def arrival_words(work: Work) -> str:
    """How requests come: by themselves at a rate, else all that are in flight at once."""
    come = "at once" if work.requests_per_s is None else "by themselves (Poisson, simulated)"
    return f"requests in flight come {come}"


def service_words(
    engine: EngineProfile, arrivals: str, *, is_stated: bool, window: Window | None = None
) -> str:
    """How requests are served, as an assumption.

    Args:
        engine: By what.
        arrivals: Of `arrival_words`; empty where the load is said beside it.
        is_stated: Whether the user asked for it.
        window: Of the model's attention; None where all layers see everything.
    """
    reads = "in steps that write tokens" if engine.mixes else "between steps"
    others = "; --framework names another engine, or torch for a plain batch"
    kept = _window_words(engine, window)
    told = ", ".join(filter(None, (arrivals, f"prompts are read {reads}", kept)))
    return f"served by {engine.title}: {told}" + ("" if is_stated else others)


def _window_words(engine: EngineProfile, window: Window | None) -> str:
    """What is kept of the past by layers that see a window of it alone."""
    if window is None:
        return ""
    every = window.full_every
    layers = f"{format_percent(1.0 - 1.0 / every)} of layers" if every else "layers"
    if engine.rolls:
        return f"{layers} keep the last {window.tokens:,} tokens alone"
    return f"{layers} keep all tokens and see {window.tokens:,} of them"


def _usual(goal: Goal, *, needs: bool) -> Service:
    engine = find_engine(("" if needs else goal.engine_of_files) or USUAL_ENGINE)
    _check_launch(engine, goal)
    elsewhere = None if needs else find_engine(PORTABLE_ENGINE)
    return Service(engine=engine, elsewhere=elsewhere, is_stated=needs)


def _check_trains(goal: Goal, workload: Workload) -> None:
    """Refuse inference by what trains.

    Raises:
        InvalidInputError: A trainer is named, and the workload is inference.
    """
    named = goal.framework or ""
    if workload.task == "infer" and not runs_models(named):
        raise InvalidInputError(
            f"`{named}` trains, and {workload.title} infers here",
            hint=f"leave --framework out, or write --framework {USUAL_LOOP}",
        )


def _check_trained(engine: EngineProfile, workload: Workload) -> None:
    """Refuse to train with what runs trained models.

    Raises:
        InvalidInputError: The workload is a training.
    """
    if workload.task == "train":
        raise InvalidInputError(
            f"{engine.title} runs trained models, and {workload.title} is trained here",
            hint=f"add --task infer, or write --framework {USUAL_LOOP}",
        )


def _check_launch(engine: EngineProfile, goal: Goal) -> None:
    """Refuse another way to launch what launches its own graphs.

    Raises:
        InvalidInputError: One is stated.
    """
    stated = (goal.pins["compiler"],) if "compiler" in goal.pins else goal.compilers
    if stated and set(stated) != {engine.compiler}:
        raise InvalidInputError(
            f"{engine.title} launches its own graphs, and `{', '.join(stated)}` would change "
            "nothing",
            hint=f"leave the compiler out; `--framework {USUAL_LOOP}` runs a plain batch with it",
        )
