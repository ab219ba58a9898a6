"""Measure speed and memory against their targets, and write benchmarks/speed.md.

One core for everything that is timed in this process: the number of threads of the linear algebra
library is set to one before NumPy is imported. Whole processes are timed from outside, each
figure being the median of several runs after one that fills the file cache.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.forecast_choice import choose_forecast
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.search import all_candidates
from paceline.planning.search.all_candidates import run_search
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass

TABLE = Path(__file__).parent / "speed.md"
NUM_RUNS = 7
#: Calculon's exhaustive search on one such core (its own example, re-run), candidates per second.
CALCULON_PER_S = 609
#: Verbs with the largest ratio of their processor time to that of `import numpy`.
FELT = (
    ("plan resnet50", 5.0),
    ("predict resnet50 --device a100", 3.0),
    ("predict hf:llama-2-7b", 8.0),
    ("devices", 3.0),
    ("offers", 3.0),
    ("bill aws/p4d.24xlarge 36h", 3.0),
    ("plan llama-3-8b --rewrite lora_rank=16 --tokens 10M", 25.0),
    ("plan llama-3-8b --tokens 1B", 25.0),
    ("plan llama-3-70b --tokens 1T --max-devices 8192", 80.0),
    ("plan llama-3-70b --task infer --rps 20", 40.0),
    ("plan deepseek-r1 --task infer --rps 20", 80.0),
)
#: Runs of each of them, interleaved with `import numpy`.
NUM_FELT_RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table; ``is_rate`` says whether more is better."""

    name: str
    value: float
    target: float
    unit: str
    is_rate: bool = False
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the figure meets its target."""
        return self.value >= self.target if self.is_rate else self.value <= self.target


def whole_process(*arguments: str) -> tuple[float, float]:
    """Median wall seconds and largest resident bytes of a process, after one warming run.

    That run compiles the sources, as installing a package does, into a folder of its own.
    """
    seconds, resident = [], []
    with tempfile.TemporaryDirectory() as folder:
        for run in range(NUM_RUNS + 1):
            started = time.perf_counter()
            usage = _usage([*arguments], folder)
            if run:
                seconds.append(time.perf_counter() - started)
                resident.append(usage.ru_maxrss * 1024)
    return statistics.median(seconds), max(resident)


def felt_figures() -> list[Figure]:
    """Ratios of whole verbs to `import numpy`, both on one core and interleaved.

    Processor time, which is what passes on a core that nobody else uses: other programs on the
    machine do not count.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        return [_felt(verb, most, folder) for verb, most in FELT]


def _felt(verb: str, most: float, folder: str) -> Figure:
    words = ["-m", "paceline", *verb.split()]
    if verb.startswith("plan"):
        words += ["-o", f"{folder}/plan.yaml"]
    numpy_s, own_s, resident = [], [], 0
    for run in range(NUM_FELT_RUNS + 1):
        numpy, own = _usage(["-c", "import numpy"], folder), _usage(words, folder)
        if run:
            numpy_s.append(numpy.ru_utime + numpy.ru_stime)
            own_s.append(own.ru_utime + own.ru_stime)
            resident = max(resident, own.ru_maxrss * 1024)
    ratio = statistics.median(own_s) / statistics.median(numpy_s)
    note = (
        f"{statistics.median(own_s):.2f} s of a core, {resident / 1e6:,.0f} MB; "
        f"`import numpy` {statistics.median(numpy_s):.3f} s"
    )
    return Figure(name=f"`paceline {verb}`", value=ratio, target=most, unit="×", note=note)


def _usage(arguments: list[str], folder: str) -> resource.struct_rusage:
    """What a process that ends well uses; its sources are compiled into ``folder``."""
    pid = os.posix_spawn(
        sys.executable, [sys.executable, *arguments],
        {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder},
        file_actions=_quiet(folder),
    )  # fmt: skip
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{arguments} ended with status {status}")
    return usage


def _quiet(folder: str) -> list[tuple[object, ...]]:
    flags = os.O_WRONLY | os.O_CREAT
    return [(os.POSIX_SPAWN_OPEN, 1, f"{folder}/out", flags, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, f"{folder}/err", flags, 0o600)]  # fmt: skip


def process_figures() -> list[Figure]:
    """Time and memory of whole processes."""
    plan_file = str(Path(tempfile.gettempdir()) / "paceline-speed-plan.yaml")
    plan_s, plan_bytes = whole_process("-m", "paceline", "plan", "resnet50", "-o", plan_file)
    import_s, _ = whole_process("-c", "import paceline")
    bare_s, _ = whole_process("-c", "pass")
    return [
        Figure(name="`paceline plan resnet50`, whole process", value=plan_s, target=1.0, unit="s"),
        Figure(name="its memory", value=plan_bytes / 1e6, target=200, unit="MB"),
        Figure(
            name="`import paceline`, whole process",
            value=import_s,
            target=0.15,
            unit="s",
            note=f"an empty Python process takes {bare_s:.3f} s",
        ),
    ]


def predictions_per_s() -> Figure:
    """Distinct (device, batch, precision) steps per second, lowering included."""
    workload = load_workload("resnet50")
    catalog = load_catalog()
    fitting = [d for d in catalog.devices if d.memory_bytes and d.memory_bytes_per_s and d.num_sms]
    devices = DeviceTable.from_devices(fitting)
    batches = np.arange(1.0, 33.0)
    points = Points(batch=batches, seq=np.ones(len(batches)))
    precisions = ("bf16", "fp16", "fp32")
    calibration = builtin_calibration()

    def predict_all() -> None:
        for precision in precisions:
            lowered = lower(workload.passes[0].graph, Configuration(precision=precision))
            predict_pass(lowered, devices, points, calibration=calibration)

    num_predictions = len(fitting) * len(batches) * len(precisions)
    return Figure(
        name="predictions of the ResNet-50 training step, per second and core",
        value=num_predictions / median_s(predict_all),
        target=5_000,
        unit="1/s",
        is_rate=True,
        note=f"{len(fitting)} devices × {len(batches)} batches × {len(precisions)} precisions",
    )


def candidates_per_s() -> list[Figure]:
    """Candidates of a whole search, from offers to a ranking, per second."""
    catalog, workload, today = load_catalog(), load_workload("resnet50"), date(2026, 11, 20)
    options = SearchOptions(num_largest_batches=32)
    goal = Goal(max_devices=1024)

    def search() -> int:
        # Kept from question to question, which one process asks once.
        for kept in (all_candidates._ground, all_candidates._evaluated, choose_forecast):
            kept.cache_clear()
        question = resolve_question(workload, goal, Work(), today=today, options=options)
        found = run_search(question, catalog)
        return len(found.candidates)

    num_candidates = search()
    rate = num_candidates / median_s(search)
    note = f"{num_candidates:,} candidates, forecasts included; Calculon {CALCULON_PER_S}/s"
    return [
        Figure(
            name="(offer, count, strategy, batch) candidates ranked, per second and core",
            value=rate,
            target=100_000,
            unit="1/s",
            is_rate=True,
            note=note,
        )
    ]


def median_s(work: Callable[[], object]) -> float:
    """Median seconds of a call, after one that warms up."""
    work()
    seconds = []
    for _ in range(NUM_RUNS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def table(figures: list[Figure]) -> str:
    """The page."""
    rows = [
        f"| {f.name} | {_shown(f.value)} {f.unit} | {'≥' if f.is_rate else '≤'} "
        f"{_shown(f.target)} {f.unit} | {'yes' if f.holds else '**no**'} | {f.note} |"
        for f in figures
    ]
    return "\n".join((
        "# Speed",
        "",
        f"Measured on {date.today()} by `make bench`: {_cpu()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, NumPy {np.__version__}; medians of {NUM_RUNS} runs, "
        "one thread.",
        "",
        "| what | measured | target | holds | note |",
        "|---|--:|--:|---|---|",
        *rows,
        "",
        "Lines in × are the processor time of a whole process over that of `import numpy`, both on",
        f"one core and interleaved; medians of {NUM_FELT_RUNS} runs.",
        "",
        "How long tracing takes stands in [trace_speed.md](trace_speed.md).",
        "",
    ))  # fmt: skip


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def main() -> int:
    """Measure, print and write; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print-only", action="store_true", help="leave speed.md as it is")
    arguments = parser.parse_args()
    # First, as Linux counts the memory of who starts a process with it.
    felt = felt_figures()
    figures = [*process_figures(), predictions_per_s(), *candidates_per_s(), *felt]
    text = table(figures)
    print(text)
    if not arguments.print_only:
        TABLE.write_text(text, encoding="utf-8")
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
