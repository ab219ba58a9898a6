"""Which software works on which device: rules and facts in, combinations or conflicts out."""

from paceline.stack.devices import (
    frameworks,
    newest_stack,
    target_of,
    usable_compilers,
    usable_precisions,
    why_unsupported,
)
from paceline.stack.queries import (
    Constraints,
    Explanation,
    ImageChoice,
    check,
    combination_rows,
    explain,
    images_side_by_side,
    resolve,
)
from paceline.stack.resolver import Combination, Conflict, Reason, Resolution, WayOut

__all__ = [
    "Combination",
    "Conflict",
    "Constraints",
    "Explanation",
    "ImageChoice",
    "Reason",
    "Resolution",
    "WayOut",
    "check",
    "combination_rows",
    "explain",
    "frameworks",
    "images_side_by_side",
    "newest_stack",
    "resolve",
    "target_of",
    "usable_compilers",
    "usable_precisions",
    "why_unsupported",
]
