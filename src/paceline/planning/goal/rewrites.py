"""Settings with which a job may be run another way, and those that have options of their own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paceline.document_keys import refuse_twice
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.settings import read_settings

#: Settings that a prediction takes from elsewhere, and what says them.
OF_A_PREDICTION: Mapping[str, str] = MappingProxyType(
    {
        "precision": "use --precision",
        "compiler": "use --compiler",
        "platform": "name a device with --device",
        "is_served": "the engine decides: --framework vllm serves, --framework torch does not",
    }
)
#: Those that are searched over as well.
OF_A_SEARCH: Mapping[str, str] = MappingProxyType(
    {
        **OF_A_PREDICTION,
        "checkpointing": "it is tried wherever memory is short; to state it, state a strategy, "
        "such as dp8+zero3+recompute-block",
        "offload": "it is tried for large models; to state it, state a strategy, such as "
        "dp8+zero1+offload",
        "accumulates": "microbatches are chosen with the batch",
    }
)


def check_rewrite(text: str, elsewhere: Mapping[str, str] = OF_A_SEARCH) -> None:
    """Refuse settings that are none, or that something else decides.

    Args:
        text: As `read_settings` reads it.
        elsewhere: Settings that something else decides, with a hint at it.

    Raises:
        UnknownNameError: No such setting, or no such value of it.
        InvalidInputError: Not a setting, or one that something else decides.

    >>> check_rewrite("lora_rank=8")
    """
    plain = Configuration()
    changed = read_settings(text, plain)
    names = (pair.partition("=")[0].strip() for pair in text.split(","))
    refuse_twice("--rewrite", filter(None, names))
    for name, hint in elsewhere.items():
        if getattr(changed, name) != getattr(plain, name):
            raise InvalidInputError(f"`{name}` cannot be set with --rewrite here", hint=hint)
