"""Devices that no fit saw: predictions beside published figures, by sort of device.

Usage: python tools/accuracy_devices.py [FOLDER] [--cache FOLDER] [--out benchmarks/devices.md]
FOLDER holds the published measurements (default ../shared/truth). None of the devices below was in
the fit, so that every row is one of a stranger: NeuSight's transformers on Instinct boards, static
batches of LLM-Inference-Bench, llama.cpp on Apple silicon, and timm's processors. A row counts
where the engine is one that is predicted. Levels and widths of
``prediction/data/device_kinds.csv`` are set by hand from this page.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from pages import deliver, need, page_parser

from paceline.app.requests.plan_request import load
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.planning.places.support import newest_support
from paceline.scoring.score import score_rows
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

#: Processors that no offer names, as their maker's sheets have them (ark.intel.com, recalled).
PROCESSORS = """
[[devices]]
name = "CPU Intel i9-10940X"
vendor = "Intel"
kind = "cpu"
architecture = "Cascade Lake"
num_sms = 14
boost_clock_hz = 3.3e9
memory_bytes = 64e9
memory_bytes_per_s = 93.9e9
tdp_w = 165
peak_flop_per_s = { fp32 = 2.957e12 }

[[devices]]
name = "CPU Intel i7-12700H"
vendor = "Intel"
kind = "cpu"
architecture = "Alder Lake"
num_sms = 14
boost_clock_hz = 2.3e9
memory_bytes = 64e9
memory_bytes_per_s = 76.8e9
tdp_w = 45
peak_flop_per_s = { fp32 = 0.66e12 }
"""
#: Models of timm that are in the zoo, so that nothing is traced.
TIMM = ("resnet18", "resnet50", "resnet152", "mobilenetv3_large_100", "vit_base_patch16_224")
INSTINCTS = {"AMD_Instinct_MI100": "Instinct MI100", "AMD_Instinct_MI210": "Instinct MI210"}
_LLAMA = "transformer:layers=32,hidden=4096,heads=32,{},gated=1,norm=rms,bias=0,attention_bias=0"
SERVED = {
    "meta-llama/Llama-2-7b-hf": _LLAMA.format("ffn=11008,vocab=32000") + ",tied=0",
    "mistralai/Mistral-7B-v0.1": _LLAMA.format("kv_heads=8,ffn=14336,vocab=32000") + ",tied=0",
    "meta-llama/Meta-Llama-3-8B": "llama-3-8b",
    "Llama-3-8B": "llama-3-8b",
}
#: Engines whose steps are predicted on such devices; the others run kernels of their own.
ENGINES = {"AMD": ("vLLM",), "Intel": ("Deepspeed", "llama.cpp"), "Apple": ("llama.cpp",)}
DEVICES = {
    "AMD MI300X": "Instinct MI300X",
    "Intel Data Center GPU Max 1550": "Data Center GPU Max 1550",
    "Intel Gaudi 2": "Gaudi 2 (HL-225)",
    "Apple M1 7‑Core GPU": "Apple M1",
    "Apple M1 Max 32‑Core GPU": "Apple M1 Max",
    "Apple M2 Ultra 76-Core GPU": "Apple M2 Ultra",
    "Apple M3 Max 40‑Core GPU": "Apple M3 Max",
}
FORMATS = {"16-bit": "", "F16": "fp16", "bf16": "bf16"}
MOST_ROWS = 40


def scored_ratios(rows: pd.DataFrame, cache: Path | None) -> Iterator[dict[str, object]]:
    """Measured over predicted time of rows that `paceline score` answers."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "rows.csv", Path(folder) / "out.csv"
        facts = Path(folder) / "processors.toml"
        facts.write_text(PROCESSORS, encoding="utf-8")
        rows.to_csv(given, index=False)
        score_rows(
            given, out, catalog=load_catalog((facts,)), cache_folder=cache,
            on_progress=lambda line: print(line, file=sys.stderr),
        )  # fmt: skip
        answers = pd.read_csv(out)
    for row, answer in zip(rows.itertuples(), answers.itertuples(), strict=True):
        if answer.step_mid_s > 0 and row.step_time_ms > 0:
            yield {
                "device": answer.device, "what": row.task,
                "log": np.log(1e-3 * row.step_time_ms / answer.step_mid_s),
                "half_width": np.log(answer.step_high_s / answer.step_mid_s),
            }  # fmt: skip


def neusight_rows(folder: Path) -> pd.DataFrame:
    """NeuSight's transformers on Instinct boards: passes that generate nothing."""
    table = pd.read_csv(folder / "ops" / "neusight_e2e.csv")
    table = table[table.device.isin(INSTINCTS)]
    is_bert, trains = table.model == "bert_large", table["mode"] == "train"
    table = table[is_bert | (trains & (table.model == "gpt2_large"))]
    return pd.DataFrame({
        "model": table.model.map({"bert_large": "bert-large", "gpt2_large": "hf:gpt2-large"}),
        "task": table["mode"].map({"inf": "infer", "train": "train"}), "framework": "PyTorch",
        "precision": "fp32", "gpu": table.device.map(INSTINCTS), "n_gpus": 1,
        "batch_per_gpu": table.batch, "seq_len": table.seqlen, "unit": "sequences/s",
        "step_time_ms": table.measured_e2e_ms,
    })  # fmt: skip


def timm_rows(folder: Path) -> pd.DataFrame:
    """Inference of timm's models on processors."""
    table = pd.read_csv(folder / "e2e" / "timm.csv", low_memory=False)
    chosen = table.gpu.fillna("").str.startswith("CPU") & table.model.isin(TIMM)
    return table[chosen]


@cache
def _workload(model: str) -> Workload:
    return load(model, task="infer")


def served_ratios(folder: Path) -> Iterator[dict[str, object]]:
    """Measured over predicted time of static batches of language models."""
    catalog = load_catalog()
    table = pd.read_csv(folder / "e2e" / "serving_published.csv", low_memory=False)
    table = table[table.gpu.isin(DEVICES) & table.model.isin(SERVED) & (table.n_gpus == 1)]
    table = table[table.precision.isin(FORMATS) & (table.quality != "D")]
    table = table.sample(frac=1, random_state=1).groupby(["gpu", "framework"]).head(MOST_ROWS)
    for row in table.itertuples():
        facts = dict(part.split("=", 1) for part in row.extra.split(";") if "=" in part)
        device = find_device(catalog, DEVICES[row.gpu])
        engine = row.framework.split(" ")[0]
        if engine not in ENGINES[device.vendor] or not {"isl", "output_tok_s"} <= facts.keys():
            continue
        support = newest_support(device)
        assert support is not None
        half = FORMATS[row.precision] or ("bf16" if "bf16" in support.precisions else "fp16")
        batch, written = float(facts["concurrency"]), float(facts["osl"])
        job = Job(
            workload=_workload(SERVED[row.model]),
            configuration=Configuration(
                precision=half, platform=support.platform,
                compiler="eager" if "eager" in support.compilers else "xla",
            ),
            batch=batch, prompt_tokens=int(float(facts["isl"])), output_tokens=int(written),
            profile="vllm" if engine == "vLLM" else "torch",
        )  # fmt: skip
        steps = simulate([job], [Machine.of(device)])
        interval = steps.step_interval_s()
        measured_s = batch * written / float(facts["output_tok_s"])
        yield {
            "device": device.name, "what": engine, "log": np.log(measured_s / interval.mid),
            "half_width": np.log(interval.high / interval.mid),
        }  # fmt: skip


def page(ratios: pd.DataFrame) -> str:
    """The table: what was measured over what is predicted, by device."""
    lines = [
        "# Devices that no fit saw", "",
        "Published times over predicted ones, by `tools/accuracy_devices.py`. The 80 % interval of",
        "such a device is as wide as `prediction/data/device_kinds.csv` says for its sort.", "",
        "| device | what | rows | measured / predicted | p10–p90 | stated width | inside |",
        "|---|---|--:|--:|---|--:|--:|",
    ]  # fmt: skip
    for (device, what), part in ratios.groupby(["device", "what"]):
        low, mid, high = np.exp(part.log.quantile([0.1, 0.5, 0.9]))
        inside = (part.log.abs() <= part.half_width).mean()
        lines.append(
            f"| {device} | {what} | {len(part)} | {mid:.2f} | {low:.2f}–{high:.2f} | "
            f"×/÷ {np.exp(part.half_width.median()):.1f} | {inside:.0%} |"
        )
    whole = (ratios.log.abs() <= ratios.half_width).mean()
    each = (ratios.log.abs() <= ratios.half_width).groupby(ratios.device).mean().mean()
    lines += ["", f"Inside: {whole:.0%} of the rows, {each:.0%} in the mean of devices."]
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    asked = page_parser(__doc__, "../shared/truth").parse_args()
    need(asked.folder)
    rows = pd.concat([neusight_rows(asked.folder), timm_rows(asked.folder)], ignore_index=True)
    found = [*scored_ratios(rows, asked.cache), *served_ratios(asked.folder)]
    deliver(page(pd.DataFrame(found)), asked.out)


if __name__ == "__main__":
    main()
