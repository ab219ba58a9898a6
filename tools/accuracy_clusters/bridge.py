"""Megatron-Bridge's published training: every kind of parallel, of models with and without experts.

NVIDIA's recipes (Megatron-Bridge, scripts/performance/configs) recompute next to nothing and hand
activations to the host where memory is short, so nothing is recomputed here and memory is not
asked. How tokens reach their experts in each recipe stands in the tool's ``training_recipes.csv``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from accuracy_clusters.scored import with_answers


def with_predictions(table: pd.DataFrame, cache: Path | None) -> pd.DataFrame:
    """The rows with ``predicted`` tokens per second.

    Rows of fine-tuning are flagged as either; the heading that they stand under says which.
    """
    is_either = table.compiler_flags.str.contains("SFT/LoRA", na=False)
    heading = table.notes.str.extract(r"> (SFT|LoRA) Performance")[0]
    return with_answers(
        table.assign(compiler_flags=table.compiler_flags.mask(is_either, heading)), cache
    )
