"""Folders of PEFT: an adapter is never left out in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.errors import InvalidInputError
from paceline.model.names.lookup import entry_of

LORA = {
    "base_model_name_or_path": "meta-llama/Meta-Llama-3-8B", "peft_type": "LORA", "r": 16,
    "target_modules": ["q_proj", "v_proj"],
}  # fmt: skip


@pytest.mark.parametrize("has_model", [False, True])
def test_an_adapter_is_refused_with_the_words_that_say_it(tmp_path: Path, has_model: bool) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(LORA))
    if has_model:
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InvalidInputError, match="rank 16") as caught:
        entry_of(str(tmp_path))
    assert "lora_rank=16,lora_modules=*.q_proj|*.q|*.v_proj|*.v" in caught.value.hint
    assert "Meta-Llama-3-8B" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"r": "x"}', '{"r": true}', "[" * 100_000])
def test_nonsense_is_one_message(tmp_path: Path, text: str) -> None:
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(InvalidInputError):
        entry_of(str(tmp_path))


def test_a_folder_without_one_is_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert entry_of(str(tmp_path)) == f"hf:{tmp_path}"
