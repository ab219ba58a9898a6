"""Read damaged model files of every format, and say what became of them.

``python benchmarks/frontends_soak.py [--count 10000] [FORMAT ...]`` damages small files of each
format and reads every one as the worker of its front end does, tracing included: each must end as
a model, or in one message. A hook on Python's audit events counts what no reader may do: start a
program, write a file, open a socket, unpickle. Each format has a process of its own, whose
largest resident size is told. The table stands in ``frontends.md``.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
TESTS = ROOT / "tests" / "unit"
FRONT_ENDS = ROOT / "src" / "paceline" / "frontends"
PAGE = HERE / "frontends.md"
#: Where each worker finds its modules, and files to damage.
FORMATS = {
    "keras": ("rebuilt", "keras"), "onnx": ("onnx",),
    "tensorflow": ("onnx", "rebuilt", "tensorflow"),
    "caffe": ("rebuilt", "caffe"), "gguf": ("gguf",),
}  # fmt: skip
NAMES = {
    "keras": "`.keras`", "onnx": "ONNX", "tensorflow": "SavedModel", "caffe": "prototxt",
    "gguf": "GGUF",
}  # fmt: skip
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect",
             "pickle.find_class", "os.remove", "os.rename", "shutil.rmtree")  # fmt: skip
START, END = "<!-- damaged files -->", "<!-- end of damaged files -->"


class Watch:
    """Counts what no reader may do."""

    def __init__(self) -> None:
        self.is_on, self.seen = False, Counter[str]()

    def __call__(self, event: str, arguments: tuple) -> None:
        if not self.is_on:
            return
        is_write = (
            event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        )
        if event in FORBIDDEN or is_write:
            self.seen[event] += 1


def makers(name: str, folder: Path):
    """(path to name, function of a chance that writes a damaged file there)."""
    from mutated import damaged, damaged_bytes

    if name == "keras":
        from keras_here import cases, keras_file

        known, path = [one["settings"] for one in cases().values()], folder / "m.keras"

        def write(chance):
            settings = chance.choice(known)
            keras_file(path, damaged(settings, chance) if chance.random() < 0.75 else settings)
            if chance.random() < 0.25:
                path.write_bytes(damaged_bytes(path.read_bytes(), chance))

        return path, write
    sources = {
        "onnx": [
            TESTS / "model/data/onnx/mobilenet_v3_small.onnx",
            TESTS / "model/data/onnx/resnet18.onnx",
        ],
        "tensorflow": [TESTS / "model/data/tensorflow/small/saved_model.pb"],
        "caffe": [TESTS / "frontends/data/alexnet.prototxt"],
        "gguf": [
            TESTS / "model/data/gguf/small.gguf",
            TESTS / "model/data/gguf/written.gguf",
        ],
    }[name]
    path = folder / {"tensorflow": "saved_model.pb", "caffe": "m.prototxt"}.get(name, f"m.{name}")
    texts = [source.read_bytes() for source in sources]
    return (folder if name == "tensorflow" else path), lambda chance: path.write_bytes(
        damaged_bytes(chance.choice(texts), chance)
    )


def builder(name: str):
    """What makes a subject of a request, in this process."""
    sys.path[:0] = [str(FRONT_ENDS / one) for one in (*FORMATS[name], "torch")]
    import importlib

    if name in ("onnx", "tensorflow"):
        return importlib.import_module(f"{name}_subject").build_subject
    return importlib.import_module(f"{name}_worker").subject


def answer(build, path, task, write, chance, watch=None):
    """(``model``, ``message`` or ``traceback``, its text, CPU seconds) of one damaged file."""
    import torch_worker
    from torch_entries.one_request import error_event

    write(chance)
    started, kind, details = time.process_time(), "model", ""
    if watch is not None:
        watch.is_on = True
    try:
        torch_worker.serve({"entry": str(path), "task": task}, lambda _: None, build)
    except Exception as error:  # noqa: BLE001  Told in the table.
        event = error_event(error)
        is_one = event["kind"] != "raised" and 0 < len(event["message"].strip()) < 2000
        kind, details = "message" if is_one else "traceback", event["details"][-1500:]
    finally:
        if watch is not None:
            watch.is_on = False
    return kind, details, time.process_time() - started


def soak(name: str, count: int) -> dict[str, object]:
    """What became of so many damaged files of one format."""
    sys.path.append(str(TESTS / "frontends"))
    build = builder(name)
    chance, found, tracebacks, longest_s = random.Random(31), Counter[str](), [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        path, write, watch = *makers(name, Path(folder)), Watch()
        for _ in range(20):  # what libraries do when they are first used is not the file's doing
            answer(build, path, "train", write, chance)
        sys.addaudithook(watch)
        for number in range(count):
            task = "infer" if number % 4 else "train"
            kind, details, spent_s = answer(build, path, task, write, chance, watch)
            found[kind] += 1
            tracebacks += [details] if kind == "traceback" else []
            longest_s = max(longest_s, spent_s)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"format": name, "files": count, **found, "forbidden": dict(watch.seen),
            "peak_gb": peak / 1e9, "longest_s": longest_s, "tracebacks": tracebacks}  # fmt: skip


def row(found: dict) -> str:
    """A line of the table."""
    acts = sum(found["forbidden"].values())
    return (
        f"| {NAMES[found['format']]} | {found['files']:,} | {found.get('model', 0):,} "
        f"| {found.get('message', 0):,} | {found.get('traceback', 0):,} "
        f"| {acts} | {found['peak_gb']:.2f} | {found['longest_s']:.1f} |"
    )


def main(arguments: list[str]) -> int:
    """Every format in a process of its own; 1 where one fails."""
    count = (
        int(arguments.pop(0).partition("=")[2]) if arguments[:1] and "=" in arguments[0] else 10_000
    )
    if arguments[:1] == ["--one"]:
        print(json.dumps(soak(arguments[1], count)))
        return 0
    rows, is_bad = [], False
    for name in arguments or FORMATS:
        command = [sys.executable, __file__, f"--count={count}", "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                              env={**os.environ, "PYTHONWARNINGS": "ignore"})  # fmt: skip
        found = json.loads(done.stdout.splitlines()[-1])
        rows.append(row(found))
        print(rows[-1], *found["tracebacks"][:5], found["forbidden"] or "", sep="\n", flush=True)
        is_bad |= bool(found["tracebacks"] or found["forbidden"] or found["peak_gb"] > 1.0)
    if not arguments:
        write_table(rows)
    return int(is_bad)


def write_table(rows: list[str]) -> None:
    """Put the table into the page."""
    head = ["| files | damaged | models | one message | tracebacks | forbidden "
            "acts | peak GB | longest, CPU s |",
            "|---|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    PAGE.write_text("\n".join([f"{before}{START}", *head, *rows, END]) + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
