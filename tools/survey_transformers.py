"""Trace the causal and masked language models of transformers at their own default sizes.

Usage: python tools/survey_transformers.py OUT.csv [EVERY]

Writes one line per class: whether its default config builds, and whether a training step and an
inference trace. EVERY takes each n-th class only.
"""

import csv
import importlib
import signal
import sys
import time
import warnings
from pathlib import Path

WORKERS = Path(__file__).parent.parent / "src" / "paceline" / "trace" / "workers"
LIMIT_S = 240
COLUMNS = ("model_class", "builds", "train", "infer", "parameters", "seconds")


def class_names():
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    names = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    return sorted(names | set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()))


def attempt(work):
    """``ok`` and the result, or the reason and None."""

    def give_up(_signal, _frame):
        raise TimeoutError(f"longer than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    try:
        return "ok", work()
    except Exception as error:  # noqa: BLE001 - a survey records whatever a library raises
        return (
            f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}",
            None,
        )
    finally:
        signal.alarm(0)


def survey(name):
    worker, hf = importlib.import_module("torch_worker"), importlib.import_module("torch_hf")
    start = time.monotonic()
    built, subject = attempt(lambda: hf.hf_subject(name, {}))
    row = {"model_class": name, "builds": built, "train": "", "infer": "", "parameters": ""}
    if subject is not None:
        row["parameters"] = sum(p.numel() for p in subject.model.parameters())
        row["train"], _ = attempt(lambda: worker.report(subject, "train"))
        row["infer"], _ = attempt(lambda: worker.report(subject, "infer"))
    return {**row, "seconds": round(time.monotonic() - start, 1)}


def main(out, every="1"):
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(WORKERS))
    importlib.import_module("torch_models").import_torchvision()
    with open(out, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in class_names()[:: int(every)]:
            writer.writerow(survey(name))
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
