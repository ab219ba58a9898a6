"""What is said of how expert ranks exchange tokens, and what is refused."""

from __future__ import annotations

import pytest

from paceline.app.api.planning import scale
from paceline.app.requests.scaling import Scaling
from paceline.errors import InvalidInputError, PacelineError, UnknownNameError

STRATEGY = "pp4.dp2.ep8@1f1b/mb16+zero1+recompute-block"


def items_per_s(
    experts: str | None, strategy: str | None = STRATEGY, framework: str | None = None
) -> float:
    found = scale(
        "mixtral-8x7b", device="H100", counts=(64,), global_batch=256, strategy=strategy,
        experts=experts, framework=framework, as_of="2026-11-20",
    )  # fmt: skip
    assert isinstance(found, Scaling)
    return found.curve.points[0].items_per_s


def test_an_exchange_that_is_hidden_is_faster_and_none_is_slower() -> None:
    plain = items_per_s(None)
    assert items_per_s("hidden") > 1.01 * plain
    assert items_per_s("tokens-once") >= plain


def test_one_tensor_rank_has_its_experts_whole_anyway() -> None:
    assert items_per_s("whole") == items_per_s(None)


@pytest.mark.parametrize(
    ("experts", "strategy", "kind", "said"),
    [
        ("once", STRATEGY, UnknownNameError, "no way named `once`"),
        ("hidden", None, InvalidInputError, "no such ranks are stated"),
        ("hidden", "dp8.tp8", InvalidInputError, "no such ranks are stated"),
    ],
)
def test_what_says_nothing_is_refused(
    experts: str, strategy: str | None, kind: type[PacelineError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        items_per_s(experts, strategy)
    assert caught.value.hint


def test_what_is_said_adds_to_what_the_software_does() -> None:
    assert items_per_s("hidden", framework="megatron") > items_per_s(None, framework="megatron")
    assert items_per_s(None, framework="megatron") != items_per_s(None)
