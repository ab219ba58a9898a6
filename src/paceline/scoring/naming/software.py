"""What frameworks do unless they are told otherwise: updates and casts."""

from __future__ import annotations

from typing import cast

from paceline.model.graph.costs import NarrowFormat, OptimizerKernel
from paceline.scoring.tables import fitting_lines
from paceline.stack.releases import release_year

#: Year of a release that a row does not name.
_NEWEST = float("inf")


def optimizer_kernel_of(framework: str) -> OptimizerKernel:
    """How a framework launches an update: the first line of ``data/optimizer_kernels.csv``.

    >>> optimizer_kernel_of("PyTorch 1.13"), optimizer_kernel_of("PyTorch 2.4")
    ('plain', 'foreach')
    """
    year = release_year(framework) or _NEWEST
    lines = fitting_lines("optimizer_kernels.csv", {"framework": framework})
    known = next(
        line
        for line in lines
        if year < float(line["released_before"] or _NEWEST) or not line["released_before"]
    )
    return cast("OptimizerKernel", known["kernel"])


def inference_format_of(framework: str, precision: str) -> NarrowFormat:
    """Whether inference in mixed precision casts FP32 weights on every pass, or is narrow.

    The first line of ``data/inference_casts.csv`` that holds; narrow where none does.
    """
    asked = {"framework": framework, "precision": precision}
    known = next(fitting_lines("inference_casts.csv", asked), None)
    return cast("NarrowFormat", known["inference_format"]) if known else "pure"
