"""Adapters beside a model: what an ``adapter_config.json`` of PEFT says of them."""

from __future__ import annotations

import json
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.reading import is_file, read_text

_FILE = "adapter_config.json"
_HINT = "PEFT writes it as JSON"


def refuse_adapter(folder: Path) -> None:
    """Refuse a folder with an adapter, which its ``config.json`` does not tell of.

    Raises:
        InvalidInputError: There is one; the hint is how to say it.
    """
    path = folder / _FILE
    if not is_file(path):
        return
    settings = _settings(path)
    rank, targets = settings.get("r"), settings.get("target_modules")
    base = settings.get("base_model_name_or_path")
    named = base if isinstance(base, str) and base.isprintable() else "its base model"
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise InvalidInputError(
            f"`{folder}` holds an adapter that is no LoRA",
            hint=f"name {named}, without the adapter",
        )
    listed = [one for one in targets if isinstance(one, str)] if isinstance(targets, list) else []
    words = dict.fromkeys(word for one in listed for word in (one, one.removesuffix("_proj")))
    modules = ",lora_modules=" + "|".join(f"*.{word}" for word in words) if listed else ""
    raise InvalidInputError(
        f"`{folder}` holds a LoRA adapter of rank {rank}, which a model of its own does not have",
        hint=f"name its base: `{named} --rewrite lora_rank={rank}{modules}`; once merged it is the "
        "base alone",
    )


def _settings(path: Path) -> dict[str, object]:
    text = read_text(path, what="adapter", hint=_HINT)
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"`{path}` is no JSON: {str(error)[:120]}", hint=_HINT) from None
    return settings if isinstance(settings, dict) else {}
