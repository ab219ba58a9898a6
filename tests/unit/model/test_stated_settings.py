"""Settings of transformers with one of them missing: an answer, or words that name it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.sampled import sampled
from traced import trace_here, worker

from paceline.errors import PacelineError
from paceline.model.reading.worker import reported_error

TEXT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 96}
SIGHT = {**TEXT, "intermediate_size": 64, "image_size": 28, "patch_size": 14}
SIGHT.pop("vocab_size")
LLAMA = {**TEXT, "intermediate_size": 64, "num_key_value_heads": 1, "head_dim": 16}
SPEECH = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
          "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
          "vocab_size": 96, "max_source_positions": 20, "num_mel_bins": 8}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "blip-2": {
        "text_config": {"model_type": "opt", **TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32},
        "vision_config": SIGHT, "image_token_index": 3, "num_query_tokens": 2,
        "qformer_config": {**TEXT, "intermediate_size": 64, "encoder_hidden_size": 32},
    },
    "llama": LLAMA,
    "gemma3": {"text_config": LLAMA, "vision_config": SIGHT, "image_token_index": 3,
               "mm_tokens_per_image": 4},
    "whisper": SPEECH,
    "clip": {"text_config": {**TEXT, "intermediate_size": 64}, "vision_config": SIGHT},
    "mamba2": {"hidden_size": 32, "num_heads": 4, "head_dim": 16, "num_hidden_layers": 1,
               "vocab_size": 96, "state_size": 8, "n_groups": 1},
    "rt_detr": {"decoder_layers": 1, "backbone_config": {
        "model_type": "rt_detr_resnet", "hidden_sizes": [64, 128, 256, 512], "depths": [1, 1, 1, 1],
        "layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"]},
        "encoder_in_channels": [128, 256, 512]},
    "vision-encoder-decoder": {
        "encoder": {"model_type": "vit", **SIGHT},
        "decoder": {"model_type": "trocr", "d_model": 32, "decoder_layers": 1, "vocab_size": 96,
                    "decoder_attention_heads": 2, "decoder_ffn_dim": 64},
    },
    "mixtral": {**LLAMA, "num_local_experts": 2, "num_experts_per_tok": 1},
}  # fmt: skip


def places(settings: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Every key of nested settings."""
    for key, value in settings.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *path) for path in places(value))


def without(settings: dict[str, Any], path: tuple[str, ...], *, is_null: bool) -> dict[str, Any]:
    """Settings without one of them, or with nothing behind its name."""
    made = copy.deepcopy(settings)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = None
    if not is_null:
        del holder[path[-1]]
    return made


def refused(settings: dict[str, Any], folder: Path) -> PacelineError | None:
    """What a user sees of settings that cannot be used; None of those that are answered."""
    path = folder / "config.json"
    path.write_text(json.dumps(settings))
    try:
        trace_here(f"hf:{path}")
    except worker("torch_entries.request_errors").RequestError as error:
        return reported_error({"kind": error.kind, "message": str(error)}, "hf:here", "python")
    return None


@pytest.mark.parametrize(
    ("kind", "is_null"), sampled(list(product(CONFIGS, (False, True))), ("clip", False))
)
def test_settings_without_one_of_them_are_answered_or_refused_in_words(
    kind: str, is_null: bool, tmp_path: Path
) -> None:
    whole = {"model_type": kind, **CONFIGS[kind]}
    assert refused(whole, tmp_path) is None
    for path in places(CONFIGS[kind]):
        error = refused(without(whole, path, is_null=is_null), tmp_path)
        assert error is None or (str(error) and error.hint), path


@pytest.mark.parametrize("is_null", [False, True])
def test_the_word_that_a_picture_stands_for_may_be_any(is_null: bool, tmp_path: Path) -> None:
    whole = {"model_type": "blip-2", **CONFIGS["blip-2"]}
    assert refused(without(whole, ("image_token_index",), is_null=is_null), tmp_path) is None


@pytest.mark.parametrize(
    ("kind", "path", "taken"),
    [
        ("blip-2", ("text_config", "num_attention_heads"), "12"),
        ("rt_detr", ("backbone_config", "hidden_sizes"), "[256, 512, 1024, 2048]"),
    ],
)
def test_a_setting_that_the_failing_code_reads_is_named(
    kind: str, path: tuple[str, ...], taken: str, tmp_path: Path
) -> None:
    settings = without({"model_type": kind, **CONFIGS[kind]}, path, is_null=False)
    error = refused(settings, tmp_path)
    assert error is not None
    assert f"`{'.'.join(path)}` (transformers takes {taken})" in error.hint


def test_a_part_without_its_type_is_named(tmp_path: Path) -> None:
    parts = {"backbone_config": {"depths": [1, 1, 1, 1]}}
    error = refused({"model_type": "rt_detr", **parts}, tmp_path)
    assert error is not None
    assert "`model_type` in its backbone_config" in error.hint.replace("`backbone", "backbone")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_hidden_layers": -2}, "`num_hidden_layers` is -2"),
        ({"num_hidden_layers": 10**6}, "`num_hidden_layers` is 1000000, not 0 to 4096"),
        ({"text_config": {"hidden_size": -1}}, "`text_config.hidden_size` is -1"),
    ],
)
def test_a_count_that_no_model_has_is_refused_at_once(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    error = refused({"model_type": "llama", **settings}, tmp_path)
    assert error is not None
    assert said in str(error)


@pytest.mark.parametrize("sizes", ["layers=1000000", "layers=two", "hidden=-64", "heads=0"])
def test_sizes_that_no_transformer_has_are_refused_at_once(sizes: str) -> None:
    with pytest.raises(
        worker("torch_entries.request_errors").RequestError, match=f"{sizes} is not"
    ):
        trace_here(f"transformer:{sizes}")
