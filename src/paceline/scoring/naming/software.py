"""What frameworks do unless they are told otherwise: updates and casts."""

from __future__ import annotations

from typing import cast

from paceline.model.graph.costs import NarrowFormat, OptimizerKernel
from paceline.scoring.tables import fitting_lines
from paceline.stack.trainers import release_settings


def optimizer_kernel_of(framework: str) -> OptimizerKernel:
    """How a framework launches an update: of its release, the newest where none is named.

    >>> optimizer_kernel_of("PyTorch 1.13"), optimizer_kernel_of("PyTorch 2.4")
    ('plain', 'foreach')
    """
    return cast("OptimizerKernel", release_settings(framework)["optimizer_kernel"])


def inference_format_of(framework: str, precision: str) -> NarrowFormat:
    """Whether inference in mixed precision casts FP32 weights on every pass, or is narrow.

    The first line of ``data/inference_casts.csv`` that holds; narrow where none does.
    """
    asked = {"framework": framework, "precision": precision}
    known = next(fitting_lines("inference_casts.csv", asked), None)
    return cast("NarrowFormat", known["inference_format"]) if known else "pure"
