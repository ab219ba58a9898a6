"""Which layers of a model look back on a window of tokens alone, by its name or its settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.model.graph.rows import Window
from paceline.model.graph.workload import Workload
from paceline.shipped import shipped_rows

#: Of how many layers the last one sees everything where settings state a window and no rhythm, by
#: type of model: what its configuration takes then (transformers 5.23; read 2026-11-28).
_USUAL_RHYTHM = {
    "mistral": 0, "starcoder2": 0, "gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4,
}  # fmt: skip
#: A setting file is no longer than this; of another nothing is said.
_MOST_BYTES = 1 << 20


def with_windows(workload: Workload, entry: str) -> Workload:
    """The workload with the window that its layers have."""
    window = None if workload.window_tokens else window_of(entry)
    if window is None:
        return workload
    return replace(workload, window_tokens=window.tokens, full_every=window.full_every)


def window_of(entry: str) -> Window | None:
    """The window of a known model, or of one by its config.json; None where none is known.

    >>> window_of("hf:gpt-oss-20b")
    Window(tokens=128, full_every=2)
    >>> window_of("hf:qwen3-8b") is None
    True
    """
    for row in shipped_rows("model", "attention_windows.csv"):
        if re.fullmatch(row["entry"], entry):
            return Window(tokens=int(row["window_tokens"]), full_every=int(row["full_every"]))
    settings = _settings_in(Path(entry.removeprefix("hf:")))
    return None if settings is None else window_in(settings)


def window_in(settings: Mapping[str, Any]) -> Window | None:
    """The window that a config.json states; None where it states none, or layers in no rhythm.

    >>> window_in({"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"]})
    Window(tokens=512, full_every=2)
    >>> window_in({"text_config": {"model_type": "gemma3_text", "sliding_window": 1024}})
    Window(tokens=1024, full_every=6)
    >>> window_in({"sliding_window": 4096, "use_sliding_window": False}) is None
    True
    """
    inner = settings.get("text_config")
    text = inner if isinstance(inner, dict) else settings
    tokens = text.get("sliding_window") or text.get("attention_chunk_size")
    if not isinstance(tokens, int) or text.get("use_sliding_window") is False:
        return None
    every = _rhythm(text)
    return None if every is None else Window(tokens=tokens, full_every=every)


def _rhythm(text: Mapping[str, Any]) -> int | None:
    """Of how many layers the last one sees everything; None where nothing says so."""
    types = text.get("layer_types")
    if not isinstance(types, list):
        pattern = text.get("sliding_window_pattern")
        stated = len(pattern) if isinstance(pattern, str) else pattern
        return stated if isinstance(stated, int) else _USUAL_RHYTHM.get(text.get("model_type", ""))
    full = [place for place, kind in enumerate(types) if str(kind).startswith("full")]
    every = full[0] + 1 if full else 0
    is_even = full == list(range(every - 1, len(types), every)) if every else True
    return every if is_even and len(full) < len(types) else None


def _settings_in(path: Path) -> Mapping[str, Any] | None:
    """The settings of a file, or of the config.json of a folder; None of anything else."""
    try:
        found = path / "config.json" if path.is_dir() else path
        if found.suffix != ".json" or found.stat().st_size > _MOST_BYTES:
            return None
        settings = json.loads(found.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return settings if isinstance(settings, dict) else None
