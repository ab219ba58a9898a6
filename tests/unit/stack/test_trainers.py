"""What trainers do where nobody says: what prepares a quantised base, and what is recomputed."""

from __future__ import annotations

import pytest

from paceline.errors import UnknownNameError
from paceline.planning.goal.rewrites import with_usual
from paceline.stack.trainers import usual_settings


def beside_a_frozen_base(framework: str, frozen_weights: str = "int4") -> dict[str, str]:
    return usual_settings(
        framework, is_training=True, trains_all=False, frozen_weights=frozen_weights
    )


@pytest.mark.parametrize("framework", ["peft", "trl", "transformers"])
def test_peft_widens_what_a_quantised_base_keeps_and_recomputes_its_blocks(framework: str) -> None:
    narrow, whole = (beside_a_frozen_base(framework, one) for one in ("int4", "same"))
    assert (narrow["training_format"], narrow["checkpointing"]) == ("autocast", "block")
    assert whole["training_format"] == "pure"


@pytest.mark.parametrize("framework", ["llama-factory", "ms-swift", "ms-swift 2.x", "axolotl"])
def test_others_leave_a_quantised_base_as_it_was_loaded(framework: str) -> None:
    assert beside_a_frozen_base(framework)["training_format"] == "pure"


@pytest.mark.parametrize(
    ("framework", "way"),
    [
        ("llama-factory", "block"), ("LLaMA-Factory + DeepSpeed", "block"), ("ms-swift", "block"),
        ("ms-swift (DeepSpeed ZeRO-3)", "block"), ("Megatron-SWIFT", None), ("axolotl", None),
        ("transformers", None), ("unsloth", "block"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("trains_all", [True, False])
def test_who_recomputes_blocks_unasked(framework: str, way: str | None, trains_all: bool) -> None:
    usual = usual_settings(framework, is_training=True, trains_all=trains_all)
    assert usual.get("checkpointing") == way


def test_what_is_trained_whole_is_wide_where_its_trainer_casts_it() -> None:
    whole = usual_settings("llama-factory", is_training=True, trains_all=True)
    assert whole["training_format"] == "autocast"


def test_what_waits_on_the_host_goes_with_a_trainers_own_way_to_recompute() -> None:
    def keeps(rewrite: str, *leaving: str) -> bool:
        return "offload" in with_usual(rewrite, "unsloth", is_training=True, leaving=leaving)

    assert keeps("lora_rank=8")
    assert not keeps("lora_rank=8,checkpointing=none")
    assert not keeps("lora_rank=8", "checkpointing")


@pytest.mark.parametrize(
    ("framework", "loss"),
    [
        ("transformers:4.44", "shifted"), ("transformers==4.47.1", "wide-shifted"),
        ("transformers:4.57", "wide"), ("transformers:5.2", "wide"), ("transformers", "wide"),
        ("ms-swift:2.6", "shifted"), ("unsloth:2024.1", "fused"), ("unsloth:2026.1.1", "chunked"),
    ],
)  # fmt: skip
def test_a_trainer_has_releases(framework: str, loss: str) -> None:
    assert usual_settings(framework, is_training=True, trains_all=False)["loss"] == loss


@pytest.mark.parametrize("framework", ["transformers:99.1", "torchtune:9.9", "unsloth:2019.1"])
def test_a_release_that_nobody_knows_is_none_by_default(framework: str) -> None:
    with pytest.raises(UnknownNameError):
        usual_settings(framework, is_training=True, trains_all=False)
