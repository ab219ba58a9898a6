"""Measure DataLoader pipelines on generated images, and predict them from one of them.

Usage: python benchmarks/input_pipeline.py fit      stage costs -> prediction/data/stage_costs.csv
       python benchmarks/input_pipeline.py measure  pipelines  -> benchmarks/input_pipeline.csv
       python benchmarks/input_pipeline.py report   table      -> benchmarks/input_pipeline.md

Images are octaves of noise over gradients, so that JPEG and PNG compress about as photographs do.
A pipeline decodes, crops and resizes to 224 x 224, turns into normalised float32 and batches by 32.
Every figure is the best of several short windows: other work on the machine only ever slows it.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from scipy.optimize import nnls
from torch.utils.data import DataLoader, Dataset

from paceline.prediction.input_side import (
    Encoding,
    InputHost,
    InputPipeline,
    SampleFormat,
    calibrated_host,
    predict_input,
)

Row = dict[str, Any]
Thing = TypeVar("Thing")
ROOT = Path(__file__).resolve().parent.parent
STAGES = ROOT / "src/paceline/prediction/data/stage_costs.csv"
TABLE = Path(__file__).with_suffix(".csv")
REPORT = Path(__file__).with_suffix(".md")
SIZES = ((256, 256), (500, 375), (1024, 768))
ENCODINGS = ("jpeg", "png", "raw")
OUT, BATCH, NUM_IMAGES, NUM_COLD = 224, 32, 96, 12
CALIBRATED_ON = ("jpeg", 500, 375, 1)


def image(width: int, height: int, seed: int) -> np.ndarray:
    """A picture that compresses about as photographs do."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    total = np.stack([(x / width), (y / height), (x + y) / (width + height)], axis=-1) * 120
    for octave in range(6):
        cells = 4 * 2**octave
        coarse = generator.normal(size=(cells, cells, 3))
        rows, columns = (y * cells // height), (x * cells // width)
        total += coarse[rows, columns] * 40 / 1.6**octave
    total += generator.normal(scale=2.0, size=(height, width, 3))
    return np.asarray(np.clip(total + 60, 0, 255), np.uint8)


def encode(pixels: np.ndarray, encoding: str) -> bytes:
    """The picture as a file of that encoding."""
    buffer = io.BytesIO()
    if encoding == "raw":
        np.save(buffer, pixels)
    elif encoding == "jpeg":
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    else:
        Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


class Images(Dataset[torch.Tensor]):
    """Files of one encoding and size, each decoded, resized and normalised on access."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self.paths[index % len(self.paths)]
        pixels = decode(path.read_bytes(), path.suffix[1:])
        return to_float(resize(pixels))


def decode(data: bytes, encoding: str) -> np.ndarray:
    """Pixels of a file."""
    if encoding == "raw":
        return np.asarray(np.load(io.BytesIO(data)))
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(picture)


def resize(pixels: np.ndarray) -> np.ndarray:
    """The centre, at the size that models take."""
    picture = Image.fromarray(pixels)
    side = min(picture.size)
    left, top = (picture.size[0] - side) // 2, (picture.size[1] - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(picture.resize((OUT, OUT), Image.Resampling.BILINEAR, box=box))


def to_float(pixels: np.ndarray) -> torch.Tensor:
    """Normalised float32, channels first."""
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1).to(torch.float32)
    return tensor.div_(255).sub_(0.45).div_(0.225)


def best_s(function: Callable[[Thing], object], things: Sequence[Thing]) -> float:
    """Processor time of one call, things taken in turn (cold): the best of several windows."""
    for thing in things[:3]:
        function(thing)
    found = []
    for _ in range(5):
        calls, begin = 0, time.process_time()
        while time.process_time() - begin < 0.25:
            function(things[calls % len(things)])
            calls += 1
        found.append((time.process_time() - begin) / calls)
    return min(found)


def files(folder: Path, encoding: str, width: int, height: int) -> list[Path]:
    """Files of generated pictures."""
    paths = []
    for seed in range(NUM_IMAGES if width < 1000 else 24):
        path = folder / f"{width}x{height}-{seed}.{encoding}"
        path.write_bytes(encode(image(width, height, seed), encoding))
        paths.append(path)
    return paths


def least_squares(features: list[list[float]], times: list[float]) -> np.ndarray:
    """Non-negative coefficients that minimise the relative error."""
    scale = 1 / np.array(times)
    solution, _ = nnls(np.array(features) * scale[:, None], np.ones(len(times)))
    return np.asarray(solution)


def fit() -> None:
    """Measure stages and write ``stage_costs.csv``."""
    torch.set_num_threads(1)
    rows = [stage(f"decode-{encoding}", *decode_costs(encoding)) for encoding in ENCODINGS]
    sides = (96, 160, 256, 320, 480, 768, 1200)  # not 224: no resize at all
    resized = [best_s(resize, squares(side)) for side in sides]
    rows.append(stage("resize", *per_pixel(sides, resized)))
    floated = [best_s(to_float, squares(side)) for side in sides[:5]]
    rows.append(stage("to-float32", *per_pixel(sides[:5], floated)))
    rows.extend(loader_stages())
    write(STAGES, rows)


def squares(side: int) -> list[np.ndarray]:
    """Square pictures of one side."""
    return [image(side, side, seed) for seed in range(NUM_COLD)]


def decode_costs(encoding: str) -> np.ndarray:
    """Seconds per file, byte and pixel."""
    features, times = [], []
    for width, height in (
        (160, 120),
        (256, 256),
        (400, 300),
        (640, 480),
        (1024, 768),
        (1600, 1200),
    ):
        data = [encode(image(width, height, seed), encoding) for seed in range(NUM_COLD)]
        times.append(best_s(lambda one: decode(one, encoding), data))
        features.append([1.0, float(len(data[0])), float(width * height)])
    return least_squares(features, times)


def per_pixel(sides: tuple[int, ...], times: list[float]) -> tuple[float, float, float]:
    """Seconds per call and pixel; none per byte."""
    fixed_s, s_per_pixel = least_squares([[1.0, float(s * s)] for s in sides], times)
    return fixed_s, 0.0, s_per_pixel


def loader_stages() -> list[Row]:
    """What the loader adds per sample and byte, in the worker and in the main process."""
    sides = (64, 128, 224, 320)
    features = [[1.0, float(side * side * 3 * 4)] for side in sides]
    used = [empty_loader(side) for side in sides]
    rows = []
    for name, times in (
        ("loader-worker", [u[0] for u in used]),
        ("loader-main", [u[1] for u in used]),
    ):
        fixed_s, s_per_byte = least_squares(features, times)
        rows.append(stage(name, fixed_s, s_per_byte, 0.0))
    return rows


class Blank(Dataset[torch.Tensor]):
    """Samples without any work, to see what the loader itself costs."""

    def __init__(self, side: int) -> None:
        self.sample = torch.zeros(3, side, side)

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.sample


def empty_loader(side: int) -> tuple[float, float]:
    """Processor time per sample in the worker, and in the main process."""
    batches = iter(DataLoader(Blank(side), batch_size=BATCH, num_workers=1))
    (worker,), found = worker_pids(batches), []
    for _ in range(5):
        next(batches)
    for _ in range(4):
        count, begin = 0, time.perf_counter()
        before = (cpu_s(worker), time.process_time())
        while time.perf_counter() - begin < 1.5:
            next(batches)
            count += BATCH
        found.append(
            ((cpu_s(worker) - before[0]) / count, (time.process_time() - before[1]) / count)
        )
    return min(f[0] for f in found), min(f[1] for f in found)


def worker_pids(batches: Any) -> list[int]:
    """Processes of a running loader, which only its private attribute tells."""
    return [worker.pid for worker in batches._workers]


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stage(name: str, fixed_s: float, s_per_byte: float, s_per_pixel: float) -> Row:
    """One row of ``stage_costs.csv``."""
    return {
        "stage": name,
        "fixed_s": f"{fixed_s:.4g}",
        "s_per_byte": f"{s_per_byte:.4g}",
        "s_per_pixel": f"{s_per_pixel:.4g}",
        "source": f"benchmarks/input_pipeline.py fit, one core of {cpu_name()}, Pillow",
        "read_on": str(date.today()),
    }


def write(path: Path, rows: list[Row]) -> None:
    """Write rows that all have the keys of the first."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def cpu_name() -> str:
    """The processor, as it names itself."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [x.split(":", 1)[1].strip() for x in text.splitlines() if x.startswith("model name")]
    return names[0] if names else platform.processor()


def rate(paths: list[Path], num_workers: int) -> tuple[float, float]:
    """Samples per second of a loader: as delivered, and without waiting for other programs.

    The second takes away the time in which a worker was ready but another program had its core
    (the kernel counts it); on an idle machine both are one. Best and median of the windows.
    """
    torch.set_num_threads(1)
    loader = DataLoader(Images(paths), batch_size=BATCH, num_workers=num_workers)
    batches, delivered, undisturbed = iter(loader), [], []
    workers = worker_pids(batches)
    for _ in range(2 * num_workers + 2):
        next(batches)
    for _ in range(4):
        count, begin = 0, time.perf_counter()
        waited = [waited_s(pid) for pid in workers]
        while time.perf_counter() - begin < 1.0 or count < 3 * num_workers * BATCH:
            next(batches)
            count += BATCH
        window_s = time.perf_counter() - begin
        free_s = [window_s - waited_s(pid) + was for pid, was in zip(workers, waited, strict=True)]
        delivered.append(count / window_s)
        undisturbed.append(sum(count / num_workers / s for s in free_s))
    return max(delivered), statistics.median(undisturbed)


def waited_s(pid: int) -> float:
    """Time for which a process was ready to run and had no core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def measure() -> None:
    """Measure every pipeline and write the table."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for encoding in ENCODINGS:
            for width, height in SIZES:
                paths = files(Path(name), encoding, width, height)
                size = statistics.mean(p.stat().st_size for p in paths)
                for num_workers in (1, 2):
                    delivered, undisturbed = rate(paths, num_workers)
                    rows.append({
                        "encoding": encoding, "width": width, "height": height,
                        "disk_bytes": round(size), "num_workers": num_workers,
                        "samples_per_s": round(delivered, 1),
                        "undisturbed_samples_per_s": round(undisturbed, 1),
                        "num_cores": os.cpu_count(), "cpu": cpu_name(),
                        "load_1min": round(os.getloadavg()[0], 2), "measured_on": str(date.today()),
                    })  # fmt: skip
                    print(rows[-1], file=sys.stderr)
    write(TABLE, rows)


def predicted() -> list[Row]:
    """Every measured pipeline with its prediction, calibrated on one of them."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ours = next(r for r in rows if identity(r) == CALIBRATED_ON)
    host = InputHost(num_cores=int(ours["num_cores"]))
    host = calibrated_host(host, pipeline(ours), float(ours["undisturbed_samples_per_s"]))
    return [
        row
        | {"predicted": predict_input(pipeline(row), host).samples_per_s, "speed": host.core_speed}
        for row in rows
    ]


def identity(row: Row) -> tuple[Encoding, int, int, int]:
    """What tells one pipeline from another."""
    return row["encoding"], int(row["width"]), int(row["height"]), int(row["num_workers"])


def pipeline(row: Row) -> InputPipeline:
    """The measured pipeline, as the predictor takes it."""
    encoding, width, height, num_workers = identity(row)
    sample = SampleFormat(
        encoding=encoding, width=width, height=height, disk_bytes=float(row["disk_bytes"])
    )
    return InputPipeline(sample=sample, width=OUT, height=OUT, batch=BATCH, num_workers=num_workers)


def report_lines(rows: list[Row]) -> list[str]:
    """The page, line by line."""
    first = rows[0]
    lines = [
        "# Input pipelines: predicted against measured",
        "",
        f"{first['cpu']}, {first['num_cores']} cores, {first['measured_on']}; other programs ran"
        " beside (load in the last column), so the time that workers waited for a core is taken"
        " away (*undisturbed*). Predictions are calibrated on the marked row alone"
        f" (core speed {first['speed']:.2f}).",
        "",
        "| file | size | workers | delivered /s | undisturbed /s | predicted /s | error | load |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    errors = []
    for row in rows:
        truth, guess = float(row["undisturbed_samples_per_s"]), float(row["predicted"])
        is_ours = identity(row) == CALIBRATED_ON
        errors += [] if is_ours else [abs(guess / truth - 1)]
        lines.append(
            f"| {row['encoding']} | {row['width']}x{row['height']} | {row['num_workers']} |"
            f" {float(row['samples_per_s']):.0f} | {truth:.0f} | {guess:.0f} |"
            f" {'calibrated' if is_ours else f'{guess / truth - 1:+.0%}'} | {row['load_1min']} |"
        )
    median, largest = statistics.median(errors), max(errors)
    summary = f"Median error {median:.1%}, largest {largest:.1%}, {len(errors)} rows."
    return [
        *lines,
        "",
        summary,
        "",
        "Renew: `python benchmarks/input_pipeline.py measure` and `report`.",
    ]


def report() -> None:
    """Write and print the page."""
    REPORT.write_text("\n".join(report_lines(predicted())) + "\n", encoding="utf-8")
    print(REPORT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    {"fit": fit, "measure": measure, "report": report}[sys.argv[1]]()
