"""T8: training on new hardware, SimuMax's cases on eight B200."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from accuracy_memory.published import Published
from accuracy_memory.simumax import simumax, simumax_reserved
from fit import collectives as fit_collectives
from traced_models import traced

from accuracy_parallel.held_out import calibration_without, links_without
from accuracy_parallel.sites import CACHE, GIB, Run, Simulator, Site
from accuracy_parallel.tables import Score, markdown

SIMUMAX = Site(
    device="B200", device_link="hgx-b200-nvls", node_link="dgx-b300-ib", overlaps=True,
    compiler="compiled", precision="bf16", attention="vendor",
)  # fmt: skip
#: SimuMax runs the 405B with 16 query groups (simu_tools/megatron_scripts/scripts/
#: run_pretrain_llama3.sh), not with the 8 of Meta's model.
LLAMA = {
    "llama3-70b": "hidden=8192,heads=64,kv_heads=8,ffn=28672",
    "llama3-405b": "hidden=16384,heads=128,kv_heads=16,ffn=53248",
}
#: DeepSeek as in run_pretrain_deepseekv2.sh there: the first layer is dense, tokens fill every
#: expert's capacity.
LATENT_ATTENTION = {
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "first_k_dense_replace": 1, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = {
    "deepseekv2": {
        "model_type": "deepseek_v2", "hidden_size": 5120, "n_routed_experts": 160,
        "num_experts_per_tok": 6, "moe_intermediate_size": 1536, "n_shared_experts": 2,
        "intermediate_size": 12288, "vocab_size": 102400, "topk_method": "greedy",
    },
    "deepseekv3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
        "intermediate_size": 18432, "vocab_size": 129280,
    },
}  # fmt: skip
SIMUMAX_SEQ = 4096
#: Whose op rows and collectives are left out of what predicts these cases.
HELD_OUT = "b200_sxm"


def simumax_run(row: Any) -> Run:
    """A case's run; batches of expert ranks are their own, beside those of `dp`."""
    degrees: dict[str, Any] = {
        name: int(size) for name, size in re.findall(r"([a-z]+)(\d+)", row.parallel)
    }
    length = re.search(r"_seq(\d+)_", row.case)
    dp = 8 // math.prod(degrees.values())
    copies = dp * degrees.get("cp", 1) * degrees.get("ep", 1)
    name, entry = _llama(row) if row.model in LLAMA else _deepseek(row)
    return Run(
        graph=lambda: traced(CACHE, name, entry), key=(name,),
        seq=int(length[1]) if length else SIMUMAX_SEQ, dp=dp, microbatch=1.0,
        num_microbatches=int(row.mbc), num_gpus=8, sequence_parallel=degrees["tp"] > 1,
        sharding=1 if copies > 1 else 0, **degrees,
    )  # fmt: skip


def _llama(row: Any) -> tuple[str, str]:
    spec = f"layers={row.layer_num},{LLAMA[row.model]},vocab=128256,gated=1,norm=rms,bias=0"
    return "llama-" + spec.replace("=", "").replace(",", "-"), f"transformer:{spec}"


def _deepseek(row: Any) -> tuple[str, str]:
    """The model of transformers with SimuMax's numbers, as a configuration beside the traces."""
    name = f"{row.model}-layers{row.layer_num}"
    CACHE.mkdir(exist_ok=True)
    path = CACHE / f"{name}.json"
    numbers = {**LATENT_ATTENTION, **DEEPSEEK[row.model], "num_hidden_layers": int(row.layer_num)}
    path.write_text(json.dumps(numbers), encoding="utf-8")
    return name, f"hf:{path}"


def simumax_section(truth: Path) -> Iterator[str | Score]:
    """Figures, and lines of the page."""
    with links_without(fit_collectives.measured(truth / "ops"), HELD_OUT):
        yield from _section(truth, Simulator(calibration_without(truth, HELD_OUT)))


def _predicted_bytes(truth: Path, make: Callable[[Path, Path], Published]) -> dict[str, float]:
    """Peak of each dense case, as the table of predicted memory has it."""
    cache = Path(tempfile.gettempdir()) / "paceline-memory-traces"
    return {row.case: row.predicted_bytes for row in make(truth, cache).rows}


def _section(truth: Path, simulator: Simulator) -> Iterator[str | Score]:
    rows = pd.read_csv(truth / "ops" / "simumax_b200_training.csv")
    allocated, reserved = (_predicted_bytes(truth, make) for make in (simumax, simumax_reserved))
    scored = []
    for row in rows.itertuples():
        found = simulator.run(simumax_run(row), SIMUMAX)
        scored.append({
            "case": row.case, "measured s": row.measured_iter_ms / 1e3,
            "predicted s": found.steps.step_s[0], "measured GiB": row.measured_peak_alloc_gib,
            "predicted GiB": allocated.get(row.case, found.allocated_bytes[0]) / GIB,
            "measured reserved GiB": row.measured_peak_reserved_gib,
            "predicted reserved GiB": reserved.get(row.case, math.nan) / GIB,
        })  # fmt: skip
    table = pd.DataFrame(scored).set_index("case")
    for name, figure in (("time", "s"), ("memory", "GiB"), ("reserved", "reserved GiB")):
        table[f"{name} error"] = table[f"predicted {figure}"] / table[f"measured {figure}"] - 1
    for name, target in (("time", 0.10), ("memory", 0.02), ("reserved", 0.02)):
        mean = table[f"{name} error"].abs().mean()
        yield Score(test=f"T8 new hardware, {name}", value=mean, target=target)
    yield "\n## T8 New hardware (SimuMax's cases on 8 × B200)\n"
    yield (
        "No B200 measurement is used: networks of matrix units and link coefficients are fitted "
        "for this section without the B200's rows (its siblings GB200, B300 and GB300 stay), and "
        "the clock under the power limit on four H100 rows. Distributed optimizer and sequence "
        "parallel. Memory of dense models is that of `make accuracy-memory`, whose graph keeps "
        "what Transformer Engine keeps; that of DeepSeek is the plain graph's, whose token "
        "dispatcher and latent attention are those of transformers. The scripts published with "
        "the cases set an all-to-all for context parallel unless told otherwise; predicted is "
        "the ring. Targets: 10 % time, 2 % allocated and reserved memory.\n"
    )
    yield markdown(_by_kind(table))
    yield "\nCase by case:\n"
    yield markdown(table)


def _by_kind(table: pd.DataFrame) -> pd.DataFrame:
    """Mean absolute errors of dense models, of context parallel, of experts and of all."""
    errors = table[[f"{name} error" for name in ("time", "memory", "reserved")]].abs()
    is_expert, is_context = (table.index.str.contains(text) for text in ("_ep", "_cp"))
    parts = {
        "dense": ~is_expert & ~is_context, "context parallel": is_context,
        "expert parallel": is_expert, "**all**": is_expert | ~is_expert,
    }  # fmt: skip
    means = pd.DataFrame({name: errors[rows].mean() for name, rows in parts.items()}).T
    return means.assign(rows=[int(rows.sum()) for rows in parts.values()])
