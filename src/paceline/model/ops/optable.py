"""The table of operators: what each is called, and how it behaves under autocast."""

from __future__ import annotations

from functools import cache
from typing import Literal

from paceline.model.graph.graph import OpKind
from paceline.shipped import shipped_rows
from paceline.values import dataclass

#: Under autocast: run in the narrow format, in FP32, in the widest input's, or the first input's.
AutocastClass = Literal["narrow", "wide", "promote", "first"]


#: The worker's name of an optimizer step; the optimizer stands in the place of the tag.
UPDATE = "paceline::optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRule:
    """How one operator of a framework is read.

    Attributes:
        kind: Canonical kind.
        variant: Code within the kind.
        autocast: Its class under autocast.
        first: Position of the first operand among the inputs (products and norms).
        written_only: Whether input 0 is overwritten unread.
    """

    kind: OpKind
    variant: int
    autocast: AutocastClass
    first: int
    written_only: bool


@cache
def variants() -> dict[tuple[str, str], int]:
    """Code of each (kind, variant name)."""
    return {(row["kind"], row["name"]): int(row["code"]) for row in read_table("variants.csv")}


@cache
def _rules() -> dict[str, OpRule]:
    return {row["name"]: _rule(row) for row in read_table("torch_ops.csv")}


def find_rule(name_and_tag: str) -> OpRule:
    """The rule of an operator as the worker names it (``aten::relu_|pointwise``).

    An operator outside the table is read by its tag; without one it is ``OTHER``, which moves its
    operands and does no arithmetic that we count.

    >>> find_rule("aten::relu_|pointwise").kind.name
    'ELEMENTWISE'
    """
    name, _, tag = name_and_tag.partition("|")
    if name == UPDATE:
        variant = variants()["OPTIMIZER", tag]
        return OpRule(
            kind=OpKind.OPTIMIZER, variant=variant, autocast="wide", first=0, written_only=False
        )
    rule = _rules().get(name) or _rules().get(name.removesuffix("_"))
    if rule is not None:
        return rule
    kinds = {"pointwise": OpKind.ELEMENTWISE, "reduction": OpKind.REDUCE}
    kind = kinds.get(tag, OpKind.OTHER)
    return OpRule(kind=kind, variant=0, autocast="promote", first=0, written_only=False)


def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of a CSV file of this room's ``data`` folder."""
    return shipped_rows("model", name)


def _rule(row: dict[str, str]) -> OpRule:
    classes: dict[str, AutocastClass] = {
        "narrow": "narrow", "wide": "wide", "promote": "promote", "first": "first",
    }  # fmt: skip
    variant = variants()[row["kind"], row["variant"]] if row["variant"] else 0
    return OpRule(
        kind=OpKind[row["kind"]],
        variant=variant,
        autocast=classes[row["autocast"]],
        first=int(row["first"]),
        written_only=row["written_only"] == "0",
    )
