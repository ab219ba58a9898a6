"""Jobs as people write them on this machine's GPU, beside what paceline answers.

Usage: PYTHONPATH=tools python -m gpu.asked measure [--jobs FILE] [--out FILE] [--start 0]
       PYTHONPATH=tools python -m gpu.asked before --gpu NAME [--jobs FILE] [--out FILE]
       PYTHONPATH=tools python -m gpu.asked page [--records FILE] [--out FILE]
``measure`` runs every job of a file in the Python that has the libraries, and writes a line of JSON
each. ``before`` writes what ``paceline predict`` answers before anything is measured. ``page`` sets
today's answers beside what was measured. What the measurements say calibrates nothing by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pages import deliver

_TOOLS = Path(__file__).parent
_RECORDS = Path("benchmarks/gpu_asked.jsonl")
_BEFORE = Path("benchmarks/gpu_asked_before.jsonl")
_JOBS = tuple(_TOOLS / name for name in ("asked.toml", "asked_h100.toml", "asked_h200.toml"))
_FINDINGS = _TOOLS / "asked_findings.md"
_RELEASED = Path("src/paceline/frontends/torch/torch_transformers/hf_models.json")
Job = dict[str, Any]


def read_jobs(paths: Sequence[Path] = _JOBS) -> list[Job]:
    """The jobs of some files, with configurations in place of their names."""
    released = json.loads(_RELEASED.read_text(encoding="utf-8"))["models"]
    jobs: list[Job] = []
    for whole in (tomllib.loads(path.read_text(encoding="utf-8")) for path in paths):
        for job in whole["job"]:
            worker = job["worker"]
            if "config" in worker:
                worker["config"] = whole["configs"][worker["config"]]
            elif "released" in worker:
                worker["config"] = released[worker["released"]]
            jobs.append(job)
    return jobs


def measure(jobs: Sequence[Job], python: str) -> Iterator[dict[str, Any]]:
    """What came of each job, as it ends; a job that ends the worker costs only itself."""
    left = list(jobs)
    while left:
        worker = subprocess.Popen(
            [python, str(_TOOLS / "workers" / "asked_worker.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        )  # fmt: skip
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps([job["worker"] for job in left]))
        worker.stdin.close()
        for line in worker.stdout:
            yield _record(left.pop(0), json.loads(line))
        worker.wait()
        if left:
            yield _record(left.pop(0), {"reason": "it ended the worker"})


def _record(job: Job, seen: Mapping[str, Any]) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"title": job["title"], "gpu": _gpu_name(), "recorded_at": now, **seen}


def _gpu_name() -> str | None:
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return None


def answer(job: Job, gpu: str) -> dict[str, Any]:
    """The only cell of what ``paceline predict`` says of a job, or its message."""
    from paceline.app.main import main as paceline

    words = ["predict", job["model"], *shlex.split(job["words"])]
    words += ["--device", gpu, "--devices", "1", "--json"]
    said, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
        status = paceline(words)
    if status or not said.getvalue():
        return {"reason": complaint.getvalue().strip()[:200]}
    cell: dict[str, Any] = json.loads(said.getvalue())["cells"][0]
    return cell


def page(seen: Sequence[Mapping[str, Any]], jobs: Sequence[Job]) -> str:
    """The whole page: each measured job beside today's answer."""
    by_title = {job["title"]: job for job in jobs if "model" in job}
    rows = [
        (found["title"], found, answer(job, found["gpu"]), job)
        for found in seen
        if "median_s" in found and (job := by_title.get(found["title"])) is not None
    ]
    lines = [
        "# Jobs as people write them, on GPUs that no fit saw them on", "",
        "`make gpu-asked` ran them, `make gpu-asked-page` sets `paceline predict` beside them: a "
        "step, and what the allocator reserves beside what a process is told to take.", "",
        _FINDINGS.read_text(encoding="utf-8").strip(), "",
        *_scores("Today", [(found, cell, job) for _, found, cell, job in rows]),
        *_scores("Before they ran", _beforehand(rows)), "",
        "| job | GPU | measured ms | told ms | told / measured | inside | reserved GB | told GB |",
        "|---|---|--:|--:|--:|---|--:|--:|",
        *(_line(title, found, cell, job) for title, found, cell, job in rows),
    ]  # fmt: skip
    return "\n".join(lines)


def _scores(when: str, rows: Sequence[tuple[Any, Any, Job]]) -> Iterator[str]:
    """A line for each GPU: how many lie inside, and the median error."""
    for gpu in dict.fromkeys(found["gpu"] for found, _, _ in rows):
        told = [one for one in rows if one[0]["gpu"] == gpu and "step_s" in one[1]]
        off = [abs(_told_s(cell, job)["mid"] / found["median_s"] - 1) for found, cell, job in told]
        inside = sum(_is_inside(found, cell, job) for found, cell, job in told)
        yield (
            f"- {when}, {gpu}: **{inside} of {len(told)}** lie inside the 80 % interval; median "
            f"error {100 * statistics.median(off):.0f} %."
        )


def _beforehand(rows: Sequence[tuple[str, Any, Any, Job]]) -> list[tuple[Any, Any, Job]]:
    """The same jobs as they were answered before they ran, where that was kept."""
    kept = {
        (one["title"], one["gpu"]): {"step_s": one["told_s"], "ttft_s": one["told_s"]}
        for one in map(json.loads, _BEFORE.read_text(encoding="utf-8").splitlines())
        if "told_s" in one
    }
    pairs = [(found, kept.get((title, found["gpu"])), job) for title, found, _, job in rows]
    return [(found, cell, job) for found, cell, job in pairs if cell is not None]


def _told_s(cell: Mapping[str, Any], job: Job) -> dict[str, float]:
    """Low, middle and high seconds of a step; of a prompt, of its first token."""
    told: dict[str, float] = cell["ttft_s" if job["worker"]["kind"] == "prefill" else "step_s"]
    return told


def _is_inside(found: Mapping[str, Any], cell: Mapping[str, Any], job: Job) -> bool:
    told_s = _told_s(cell, job)
    return bool(told_s["low"] <= found["median_s"] <= told_s["high"])


def _line(title: str, found: Mapping[str, Any], cell: Mapping[str, Any], job: Job) -> str:
    measured_s = found["median_s"]
    if "step_s" not in cell:
        return f"| {title} | {found['gpu']} | {1e3 * measured_s:.1f} | {cell['reason']} | | | | |"
    told_s, memory = _told_s(cell, job)["mid"], cell.get("memory_bytes") or {}
    cells = (
        title, found["gpu"], f"{1e3 * measured_s:.1f}", f"{1e3 * told_s:.1f}",
        f"{told_s / measured_s:.2f}", "yes" if _is_inside(found, cell, job) else "no",
        f"{found['reserved_bytes'] / 1e9:.1f}", f"{memory.get('mid', math.nan) / 1e9:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def before(jobs: Sequence[Job], gpu: str) -> Iterator[dict[str, Any]]:
    """What is answered of each job before it is measured: seconds and bytes, or the message."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for job in jobs:
        if "model" not in job:
            continue
        cell = answer(job, gpu)
        told = {"reason": cell["reason"]} if "step_s" not in cell else {
            "told_s": _told_s(cell, job), "told_bytes": cell.get("memory_bytes"),
        }  # fmt: skip
        yield {"title": job["title"], "gpu": gpu, "asked_at": now, **told}


def main() -> None:
    """Measure, answer beforehand, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "before", "page"))
    parser.add_argument("--jobs", type=Path, nargs="+", default=_JOBS)
    parser.add_argument("--records", type=Path, default=_RECORDS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--start", type=int, default=0, help="number of the first job")
    parser.add_argument("--gpu", help="name of the GPU that jobs will run on")
    asked = parser.parse_args()
    own = [str(_TOOLS / "workers"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(own)  # Where models by hand are read from.
    jobs = read_jobs(asked.jobs)[asked.start :]
    if asked.what == "page":
        lines = asked.records.read_text(encoding="utf-8").splitlines()
        deliver(page([json.loads(line) for line in lines], jobs), asked.out)
        return
    found = before(jobs, asked.gpu) if asked.what == "before" else measure(jobs, asked.python)
    usual = _BEFORE if asked.what == "before" else _RECORDS
    with (asked.out or usual).open("a", encoding="utf-8") as out:
        for seen in found:
            out.write(json.dumps(seen) + "\n")
            out.flush()
            print(seen["title"], seen.get("median_s", seen.get("reason")), flush=True)


if __name__ == "__main__":
    main()
