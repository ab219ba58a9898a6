"""Scripts written by others become kill-proof by three changed lines each.

    python benchmarks/loop_strangers.py FOLDER [MODULE]

FOLDER holds the wheels that `loop_strangers.toml` names (``pip download --no-deps``), whose
dependencies this Python has. Each script is unpacked and changed, then run twice on small generated
data: undisturbed, and killed by SIGKILL after some of its saves, three times. Both end with a save
of the same step; printed is the largest difference of any tensor in them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

_NUM_KILLS = 3
_NUM_SAMPLES = {"train": 512, "t10k": 64}
#: What runs before a script. Runs are compared, so that both begin with one seed; torchvision's own
#: operators may be built for another PyTorch, and the scripts use its data sets alone.
_BEFORE = """import random
import numpy
import torch
random.seed(0)
numpy.random.seed(0)
torch.manual_seed(0)
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
"""


def changed(script: dict, wheels: Path, folder: Path) -> Path:
    """The unpacked wheel with its script changed."""
    name, _, version = script["wheel"].partition("==")
    (wheel,) = wheels.glob(f"{name}-{version}-*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    path = folder / (script["module"].replace(".", "/") + ".py")
    lines = path.read_text().split("\n")
    if len(script["lines"]) > 3:
        raise SystemExit(f"{script['module']}: more than three lines")
    for before, after in script["lines"]:
        found = [number for number, line in enumerate(lines) if line.strip() == before]
        if len(found) != 1:
            raise SystemExit(f"{script['module']}: `{before}` stands {len(found)} times")
        indent = len(lines[found[0]]) - len(before)
        lines[found[0]] = " " * indent + after
    path.write_text("\n".join(lines))
    return path


def make_data(kind: str, folder: Path) -> None:
    """Small data of the shape that a script reads."""
    drawn = np.random.default_rng(0)
    if kind == "mnist":
        raw = folder / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for part, count in _NUM_SAMPLES.items():
            images = drawn.integers(0, 256, (count, 28, 28), dtype=np.uint8)
            labels = drawn.integers(0, 10, count, dtype=np.uint8)
            head = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in images.shape)
            (raw / f"{part}-images-idx3-ubyte").write_bytes(head + images.tobytes())
            head = b"\0\0\x08\x01" + count.to_bytes(4, "big")
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
    else:
        (folder / "names").mkdir()
        for name in ("one", "two", "three"):
            words = ["".join(map(chr, drawn.integers(97, 123, 8))) for _ in range(400)]
            (folder / "names" / f"{name}.txt").write_text("\n".join(words))


def start(script: dict, unpacked: Path, folder: Path, saves: str) -> subprocess.Popen[bytes]:
    """The changed script, started in the folder of its data."""
    source = Path(__file__).resolve().parents[1] / "src"
    environment = {
        **os.environ, "PYTHONPATH": f"{unpacked}{os.pathsep}{source}", "PYTHONHASHSEED": "0",
        "PACELINE_SAVES": str(folder / saves), "PACELINE_INTERRUPTIONS_PER_HOUR": "1800",
        "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    with (folder / f"{saves}.txt").open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", script["module"], *script.get("words", ())],
            cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=said, stderr=said,
        )  # fmt: skip
    process.stdin.write("\n".join([*script.get("answers", ()), ""]).encode())
    process.stdin.close()
    return process


def kill_after_saves(process: subprocess.Popen[bytes], saves: Path, more: int) -> bool:
    """Kill a process once it has made so many more saves; whether it lived until then."""
    seen = {one.parent.name for one in saves.glob("*/complete.json")}
    fresh: set[str] = set()
    while process.poll() is None and len(fresh) < more:
        fresh |= {one.parent.name for one in saves.glob("*/complete.json")} - seen
        time.sleep(0.002)
    process.kill()
    return process.wait() < 0


def tensors(saves: Path) -> tuple[str, dict[str, np.ndarray]]:
    """The name of the newest save, and all that it holds."""
    newest = max(one.parent for one in saves.glob("*/complete.json"))
    return newest.name[:13], {
        name: value
        for path in sorted(newest.glob("**/*.safetensors"))
        for name, value in load_file(path).items()
    }


def compare(script: dict, wheels: Path, folder: Path) -> str:
    """One row: kills, steps, and the largest difference of any tensor of the last save."""
    folder.mkdir(parents=True)
    unpacked = folder / "unpacked"
    changed(script, wheels, unpacked)
    (unpacked / "sitecustomize.py").write_text(_BEFORE)
    make_data(script["data"], folder)
    if start(script, unpacked, folder, "undisturbed").wait():
        raise SystemExit((folder / "undisturbed.txt").read_text()[-2000:])
    drawn, killed = random.Random(script["module"]), 0
    for _ in range(_NUM_KILLS):
        process = start(script, unpacked, folder, "killed")
        killed += kill_after_saves(process, folder / "killed", drawn.randint(1, 3))
    if start(script, unpacked, folder, "killed").wait():
        raise SystemExit((folder / "killed.txt").read_text()[-2000:])
    step, wanted = tensors(folder / "undisturbed")
    reached, found = tensors(folder / "killed")
    if (step, set(wanted)) != (reached, set(found)):
        raise SystemExit(f"{script['module']}: ended at {reached}, not {step}")
    largest = max(
        float(np.abs(found[name].astype(np.float64) - wanted[name]).max()) for name in wanted
    )
    cells = [
        f"`{script['module']}`", script["wheel"], len(script["lines"]), killed,
        int(step.rpartition("-")[2]), f"{largest:.1e}",
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    wheels, *chosen = sys.argv[1:]
    wanted = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["script"]
    place = Path(wheels) / f"run-{os.getpid()}"
    print("| script | wheel | changed lines | SIGKILLs | steps | largest difference |")
    print("|---|---|---|---|---|---|")
    for number, script in enumerate(wanted):
        if not chosen or script["module"] in chosen:
            print(
                compare(script, Path(wheels).resolve(), place.resolve() / str(number)), flush=True
            )


if __name__ == "__main__":
    main()
