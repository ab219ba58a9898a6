"""What engines do for requests beside reading and writing them: adapters, and guessed tokens.

Sources:
    Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", ICML 2023
    (arXiv:2211.17192), equation 1; Chen et al., "Punica: Multi-Tenant LoRA Serving", MLSys 2024
    (arXiv:2310.18547), section 4 (adapters of a batch as one grouped product).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from paceline.document_keys import refuse_twice
from paceline.errors import InvalidInputError
from paceline.units import format_percent
from paceline.values import dataclass

_Feature = TypeVar("_Feature", "Adapters", "Speculation")

#: Guesses by copying what stood before, and by one more block of the model itself.
NGRAM, OWN_BLOCK = "ngram", "mtp"
_MOST_RANK, MOST_TOKENS, _MOST_ADAPTERS = 512, 64, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Low-rank adapters on one base; each request asks for one of them, any as likely.

    Attributes:
        count: Different ones.
        loaded: That a device holds at once; 0 for all.
    """

    count: int = 1
    rank: int
    loaded: int = 0

    def __post_init__(self) -> None:
        _check("--adapters", "rank", self.rank, most=_MOST_RANK)
        _check("--adapters", "count", self.count, most=_MOST_ADAPTERS)
        if self.loaded and not 1 <= self.loaded <= self.count:
            raise InvalidInputError(
                f"`--adapters` holds {self.loaded:,} of {self.count:,} at once",
                hint=f"write loaded=1 to loaded={self.count}, or leave it out to hold all",
            )

    def __str__(self) -> str:
        """As `read_adapters` reads it."""
        return _text(self)

    @property
    def words(self) -> str:
        """As an assumption."""
        held = f", {self.loaded:,} of them on a device at once" if self.loaded else ""
        if self.count == 1:
            return f"a LoRA adapter of rank {self.rank}"
        likely = "any as likely to be asked for"
        return f"{self.count:,} LoRA adapters of rank {self.rank}, {likely}{held}"

    @property
    def held(self) -> int:
        """How many a device holds at once."""
        return self.loaded or self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Tokens that are guessed, and then checked in one pass of the model.

    Attributes:
        draft: Who guesses: ``ngram`` copies what stood before, ``mtp`` is one more block of the
            model, trained for it (EAGLE, Medusa and DeepSeek's heads are alike); else a model.
        tokens: Guessed for each request in a step, one after the other.
        acceptance: Chance that a guess is kept where those before it were.
    """

    draft: str
    tokens: int
    acceptance: float

    def __post_init__(self) -> None:
        _check("--speculate", "tokens", self.tokens, most=MOST_TOKENS)
        if not 0.0 <= self.acceptance < 1.0:
            raise InvalidInputError(
                f"an acceptance of {self.acceptance:g} cannot be",
                hint="give a chance from 0 to below 1: 0.6 to 0.8 is what trained heads and small "
                "models reach on chats",
            )

    def __str__(self) -> str:
        """As `read_speculation` reads it."""
        return _text(self)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step writes in the mean: guesses up to the first wrong one, and its own.

        >>> Speculation(draft="ngram", tokens=1, acceptance=0.5).tokens_per_step
        1.5
        """
        return float((1.0 - self.acceptance ** (self.tokens + 1)) / (1.0 - self.acceptance))

    @property
    def words(self) -> str:
        """As an assumption."""
        by = {NGRAM: "copies", OWN_BLOCK: "one more block"}.get(self.draft, self.draft)
        kept = f"each kept at a chance of {format_percent(self.acceptance)}"
        count = f"{self.tokens} token{'s' * (self.tokens > 1)}"
        return f"{count} guessed by {by} in a step, {kept}: {self.tokens_per_step:.3g} written"

    @property
    def model(self) -> str:
        """The model that guesses; empty where no other one does."""
        return "" if self.draft in (NGRAM, OWN_BLOCK) else self.draft


def read_adapters(text: str) -> Adapters:
    """Adapters as they are typed.

    Raises:
        InvalidInputError: None that can be.

    >>> read_adapters("count=32,rank=16").held
    32
    """
    hint = "write `--adapters count=32,rank=16`, and loaded=8 where a device holds 8 at once"
    return _read(Adapters, "--adapters", text, {"count": int, "rank": int, "loaded": int}, hint)


def read_speculation(text: str) -> Speculation:
    """Guessed tokens as they are typed.

    Raises:
        InvalidInputError: None that can be.

    >>> read_speculation("draft=mtp,tokens=3,acceptance=0.7").tokens
    3
    """
    hint = "write `--speculate draft=ngram,tokens=4,acceptance=0.6`; draft is ngram, mtp or a model"
    readers = {"draft": str, "tokens": int, "acceptance": float}
    return _read(Speculation, "--speculate", text, readers, hint)


def _read(
    kind: type[_Feature], option: str, text: str, readers: Mapping[str, Callable[[str], Any]],
    hint: str,
) -> _Feature:  # fmt: skip
    pairs = [part.partition("=")[::2] for part in text.split(",") if part.strip()]
    refuse_twice(option, [name.strip() for name, _ in pairs])
    try:
        return kind(**{name.strip(): readers[name.strip()](value.strip()) for name, value in pairs})
    except (KeyError, TypeError, ValueError):
        raise InvalidInputError(f"`{option} {text[:80]}` cannot be read", hint=hint) from None


def _text(value: Adapters | Speculation) -> str:
    shown = ((field.name, getattr(value, field.name)) for field in fields(value))
    return ",".join(f"{name}={one}" for name, one in shown if one != 0 or name == "acceptance")


def _check(option: str, name: str, value: int, *, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidInputError(
            f"`{option}` with {name}={value:,} cannot be", hint=f"give 1 to {most:,}"
        )
