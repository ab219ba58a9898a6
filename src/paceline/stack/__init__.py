"""Which software works on which device: rules and facts in, combinations or conflicts out.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.lazy import lazy_exports

if TYPE_CHECKING:
    from paceline.stack.devices import (
        compiler_elsewhere,
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
        image_way_text,
        images_side_by_side,
        no_image,
        nothing_works,
        resolve,
        way_out_text,
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
    "compiler_elsewhere",
    "explain",
    "frameworks",
    "image_way_text",
    "images_side_by_side",
    "newest_stack",
    "no_image",
    "nothing_works",
    "resolve",
    "target_of",
    "usable_compilers",
    "usable_precisions",
    "way_out_text",
    "why_unsupported",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "devices": (
            "compiler_elsewhere",
            "frameworks",
            "newest_stack",
            "target_of",
            "usable_compilers",
            "usable_precisions",
            "why_unsupported",
        ),
        "queries": (
            "Constraints",
            "Explanation",
            "ImageChoice",
            "check",
            "combination_rows",
            "explain",
            "image_way_text",
            "images_side_by_side",
            "no_image",
            "nothing_works",
            "resolve",
            "way_out_text",
        ),
        "resolver": (
            "Combination",
            "Conflict",
            "Reason",
            "Resolution",
            "WayOut",
        ),
    },
)
