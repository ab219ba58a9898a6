"""Run a script as a throwaway, try things in it, and say what slows it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from paceline.errors import InvalidInputError, WorkerError
from paceline.planfile import Interval
from paceline.values import dataclass
from paceline.watch.captured import read_capture
from paceline.watch.capturing import tracing_settings
from paceline.watch.diagnosis.blocks import Crowd, Found, found_in
from paceline.watch.diagnosis.causes import Cause, ranked_causes, without_gain
from paceline.watch.diagnosis.gpu_steps import GpuStep
from paceline.watch.events import RunEvents, read_run
from paceline.watch.folder import Run, now, write_end
from paceline.watch.throwaway import end_throwaway, failed_before, start_throwaway

#: The observer's setting: what is to be tried, as JSON.
TRIALS_VARIABLE = "PACELINE_TRIALS"
_SCRATCH = "scratch"
_POLL_S = 0.1
#: Beside the trials: the start of the script, its first steps, the last block.
_START_S = 600.0
#: Trials that ended the script, left out in another run of it.
_MOST_RUNS = 3
#: From here on a machine is called crowded.
_CROWDED_FRAC = 0.1
_CROWDED_CORES_FRAC = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a script takes what it takes.

    Attributes:
        run: Id of the run folder that has it all.
        command: As typed.
        job: What was read out of the script, as printed.
        num_ranks: Processes that train.
        step_s: A step as it is, without what stands in line for a core.
        wall_s: A step as it is, by the clock.
        device_s: A step with its batch there already; None where no loader was seen.
        loader_batches_per_s: What the loader delivers by itself; None likewise.
        causes: What would help, best first; what changes numbers comes after what does not.
        without_gain: What was tried and helps nothing.
        failed: Trials that ended the script.
        crowd: How crowded the machine was.
        is_crowded: Whether that is to be said.
        seconds: That were spent on trying.
        is_whole: Whether everything came to its end.
        num_saves: Saves of the script that went into a folder that was deleted.
        gpu: Where the time of a step goes on the GPU of the first rank; None without one.
        elsewhere: What the same script would do on other offers, in words.
    """

    run: str
    command: tuple[str, ...]
    job: dict[str, str]
    num_ranks: int
    step_s: Interval
    wall_s: float
    device_s: float | None
    loader_batches_per_s: float | None
    causes: tuple[Cause, ...]
    without_gain: tuple[str, ...]
    failed: tuple[str, ...]
    crowd: Crowd | None
    is_crowded: bool
    seconds: float
    is_whole: bool
    num_saves: int
    gpu: GpuStep | None = None
    elsewhere: tuple[str, ...] = ()


def try_in_script(
    run: Run,
    *,
    limit_s: float = 90.0,
    is_measured_only: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[Found, tuple[str, ...]]:
    """Run a script up to the end of what is tried in it; it may start again where a trial ends it.

    Args:
        run: A new run; what the script prints goes to a file of its folder.
        limit_s: Of the trials.
        is_measured_only: Measure the script as it is, and try nothing.
        say: Told what goes on.

    Returns:
        What was found, and the trials that ended the script.

    Raises:
        InvalidInputError: No such program, or no loop of PyTorch was seen.
        WorkerError: The script failed by itself.
    """
    failed: list[str] = []
    found: Found | None = None
    status: int | None = None
    for _ in range(_MOST_RUNS):
        options = {"limit_s": limit_s, "skip": failed, "is_measured_only": is_measured_only}
        status = _run_once(run, options)
        events = read_run(run.folder)
        found = found_in(events.training) if events.training else None
        if found is None or not found.facts:
            raise _nothing_seen(run, status)
        if found.seconds is not None or not found.trial or not status:
            break
        if found.trial in ("own", "replay", "lines") or found.trial in failed:
            break
        failed.append(found.trial)
        say(f"the script ended while `{found.trial}` was tried: it starts again without that")
        for path in (*run.folder.glob("rank-*.jsonl"), *run.folder.glob("trials-*.json")):
            path.unlink()
    if found is None or not found.named("own"):
        raise _nothing_seen(run, status)
    return found, tuple(failed)


def diagnosis_of(run: Run, found: Found, failed: Sequence[str] = ()) -> Diagnosis:
    """What was found, made into causes."""
    job, _ = read_capture(run.folder)
    own = found.named("own")
    middle = found.step_s("own")
    error_s = max(abs(one.step_s - middle) for one in own)
    drain = found.probes.get("drain", {})
    per_s = drain["num_batches"] / drain["seconds"] if drain.get("seconds") else None
    replay = found.named("replay")
    return Diagnosis(
        run=run.id,
        command=run.command,
        job={} if job is None else job.words,
        num_ranks=len(own[0].by_rank_s),
        step_s=Interval(low=middle - error_s, mid=middle, high=middle + error_s),
        wall_s=sorted(one.wall_s for one in own)[len(own) // 2],
        device_s=found.step_s("replay") if replay else None,
        loader_batches_per_s=per_s,
        causes=ranked_causes(found),
        without_gain=without_gain(found),
        failed=tuple(failed),
        crowd=found.crowd,
        is_crowded=found.crowd is not None and is_crowded(found.crowd),
        seconds=found.seconds or 0.0,
        is_whole=found.seconds is not None,
        num_saves=round(sum(one.saves for one in found.blocks)),
        gpu=found.gpu,
    )


def is_crowded(crowd: Crowd) -> bool:
    """Whether other programs take cores that the script stands in line for.

    >>> is_crowded(Crowd(num_cores=2, others_cores=0.1, stood_frac=0.4))
    False
    """
    others_frac = crowd.others_cores / max(1, crowd.num_cores)
    return others_frac > _CROWDED_CORES_FRAC and crowd.stood_frac > _CROWDED_FRAC


def _run_once(run: Run, options: dict[str, object]) -> int | None:
    """Exit status; None where it was ended."""
    settings = {**tracing_settings(), TRIALS_VARIABLE: json.dumps(options)}
    process = start_throwaway(run, settings, example="paceline diagnose -- python train.py")
    status: int | None = None
    try:
        status = _waited(process, run, float(str(options["limit_s"])))
    finally:
        end_throwaway(process)
        shutil.rmtree(run.folder / _SCRATCH, ignore_errors=True)
        write_end(replace(run, status=0 if status is None else status, ended_at=now()))
    return status


def _waited(process: subprocess.Popen[bytes], run: Run, limit_s: float) -> int | None:
    events = RunEvents(run.folder)
    deadline_s = time.monotonic() + _START_S
    has_begun = False
    while time.monotonic() < deadline_s:
        if (status := process.poll()) is not None:
            return status
        events.read_more()
        if not has_begun and any("trials" in one.events for one in events.ranks):
            has_begun = True
            deadline_s = time.monotonic() + 2 * limit_s
        time.sleep(_POLL_S)
    return None


def _nothing_seen(run: Run, status: int | None) -> InvalidInputError | WorkerError:
    if status:
        return failed_before(run, status, "anything was tried")
    return InvalidInputError(
        "the command took too few steps of an optimizer of PyTorch to try anything in it",
        hint="let it train for longer (some 200 steps); its Python must see PYTHONPATH: not "
        "`python -I`, and not inside a container",
    )
