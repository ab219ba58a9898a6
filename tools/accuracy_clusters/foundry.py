"""llm-foundry's MPT models under FSDP, as their code runs them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from accuracy_clusters.scored import read, with_answers


def with_predictions(path: Path, cache: Path | None) -> pd.DataFrame:
    """The rows with ``predicted`` tokens per second.

    FSDP's mixed precision computes on BF16 parameters, and MPT's norm is
    ``low_precision_layernorm`` (``MPTConfig`` of mosaicml/llm-foundry), so between the FP32 shards
    and the loss everything is BF16: the time of a step is that of pure BF16, not of autocast.
    Memory is not asked.
    """
    table = read(path)
    is_narrow = table.precision.str.contains("bf16")
    return with_answers(table.assign(precision=table.precision.mask(is_narrow, "bf16-true")), cache)
