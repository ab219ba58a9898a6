"""What the software of a training does on several devices, by its name and what it trains.

Rows of ``data/training_recipes.csv``, each with its source. Recipes that a maker publishes for a
model on a device stand before what the software does by default.
"""

from __future__ import annotations

import re

from paceline.patterns import pattern
from paceline.shipped import shipped_rows
from paceline.values import dataclass

#: Whose stages have buffers for all microbatches of a step; those of Megatron-LM, DeepSpeed and
#: PaddlePaddle have none.
_KEEPS_MESSAGES = pattern(r"(py)?torch", re.IGNORECASE)
_RELEASE = pattern(r"\b\d\d\.\d\d(?:\.\d+)?\b")
#: What a job calls each column of flags.
_HABIT_OF_FLAG = {
    "sends_once": "tokens-once",
    "hides_exchange": "hidden",
    "is_megatron": "gathers-ahead",
    "hides_tensor_sums": "hidden-sums",
    "hooks": "hooks",
    "hooks_adapters": "adapter-hooks",
    "keeps_gradients": "whole-gradients",
    "even_layers": "even-layers",
    "is_deepspeed": "stage-3",
    "makes_whole": "made-whole",
    "keeps_experts": "kept-experts",
    "launches_each": "launched",
    "loops_experts": "looped-experts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """What a training does beside its strategy.

    Attributes:
        habits: In the words of a job (`paceline.simulation.job.HABITS`).
        is_megatron: Weights in 16 bits beside the optimizer's own, gathers behind the next forward
            pass; tensor ranks have experts of their own.
        cuts_sequence: Tensor ranks cut sequences where layers are not cut.
        sharding: What replicas shard where nobody says; empty for nothing.
        recomputes: What backward computes again where nobody says; empty for nothing.
    """

    habits: frozenset[str]
    is_megatron: bool
    cuts_sequence: bool
    sharding: str
    recomputes: str


def training_recipe(
    framework: str, *, model: str = "", device: str = "", precision: str = "", parallelism: str = ""
) -> TrainingRecipe:
    """What the first row that fits says; the last fits everything.

    Args:
        framework: As written, with or without its release.
        model: Name of what is trained.
        device: ``Device.name``.
        precision: As written.
        parallelism: How ranks share the model, as written.

    >>> sorted(training_recipe("Megatron-LM").habits)
    ['even-layers', 'frees-messages', 'gathers-ahead', 'launched', 'looped-experts']
    """
    release = _RELEASE.search(framework)
    asked = {
        "framework": framework,
        "model": model,
        "device": device,
        "precision": precision,
        "parallelism": parallelism,
        "release": release[0] if release else "",
    }
    row = next(row for row in shipped_rows("stack", "training_recipes.csv") if _fits(row, asked))
    habits = {habit for flag, habit in _HABIT_OF_FLAG.items() if row[flag] == "yes"}
    if not _KEEPS_MESSAGES.match(framework):
        habits.add("frees-messages")
    return TrainingRecipe(
        habits=frozenset(habits),
        is_megatron=row["is_megatron"] == "yes",
        cuts_sequence=row["cuts_sequence"] == "yes",
        sharding=row["sharding"],
        recomputes=row["recomputes"],
    )


def _fits(row: dict[str, str], asked: dict[str, str]) -> bool:
    """Whether each pattern of a row fits as a whole, whatever the case; empty ones always do."""
    return all(re.fullmatch(row[c] or ".*", text, re.IGNORECASE) for c, text in asked.items())
