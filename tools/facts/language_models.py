"""Write the table of language models that are known by their hyperparameters.

Usage: PYTHONPATH=tools python -m facts.language_models LITGPT_CONFIG.py > language_models.csv
LITGPT_CONFIG.py is ``litgpt/config.py`` of Lightning-AI/litgpt (Apache-2.0), which holds the sizes
of published models as in their config.json; `facts.models` reads the table, which lies beside it.
Mixtures of experts and latent attention are left out: they are named one by one in
``published_names.csv``.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

#: Families whose config.json ties the head to the embedding; LitGPT's own have a head of their own.
_TIED = re.compile(
    r"(code)?gemma|falcon-(7|40)b|llama-3\.2|phi-4-mini|qwen2\.5-((coder|math)-)?(0\.5|1\.5|3)b|"
    r"qwen3-(0\.6|1\.7|4)b|smollm2"
)


def main() -> None:
    """Print one row per dense model, by name."""
    module = _module(Path(sys.argv[1]))
    rows = {}
    for settings in module.configs:
        config = module.Config(**settings)
        if config.n_expert == 0 and config.latent_attention is None:
            published = config.hf_config.get("name", config.name)
            for name in {config.name.lower(), published.lower()}:
                rows[name] = (name, entry(config), config.block_size)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["name", "entry", "positions"])
    writer.writerows(rows[name] for name in sorted(rows))


def entry(config: Any) -> str:
    """``config`` as an entry of paceline."""
    is_gated = config.mlp_class_name in ("LLaMAMLP", "GemmaMLP")
    settings = {
        "layers": config.n_layer,
        "hidden": config.n_embd,
        "heads": config.n_head,
        "kv_heads": config.n_query_groups,
        "head_size": config.head_size,
        "ffn": config.intermediate_size,
        "vocab": config.padded_vocab_size,
        "gated": int(is_gated),
        "norm": "rms" if config.norm_class_name == "RMSNorm" else "layer",
        "bias": int(config.bias),
        "attention_bias": int(config.bias or config.attn_bias),
        "tied": int(bool(_TIED.match(config.name.lower()))),
    }
    return "transformer:" + ",".join(f"{name}={value}" for name, value in settings.items())


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("litgpt_config", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
