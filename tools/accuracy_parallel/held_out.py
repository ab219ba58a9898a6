"""Coefficients from which one system's measurements were left out."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from fit import collectives as fit_collectives
from fit import truth as op_rows
from fit.attention import builtin_constants, with_tiles
from fit.joint import fit_alone
from fit.operators import as_operators, graphs

from paceline.catalog.load import load_catalog
from paceline.parallelism.collectives import links
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.kernels.device_effects import Effect
from paceline.scoring.naming.source_levels import as_published


@contextmanager
def links_without(rows: pd.DataFrame, system: str) -> Iterator[None]:
    """Link coefficients fitted to the others; link tables made inside must be used inside."""
    text = [{k: str(v) for k, v in r.items()} for r in fit_collectives.table(rows, [system])]
    others = functools.cache(functools.partial(links.read_coefficients, text))
    with patch.object(links, "load_coefficients", others):
        yield


def calibration_without(truth: Path, system: str) -> Calibration:
    """The built-in calibration with networks of matrix units fitted to the op rows of others.

    No whole step of the system is in the built-in calibration, and no streaming op of it. Effects
    of devices on these units are left out with the networks that they were fitted beside.
    """
    facts = op_rows.device_facts(load_catalog().devices)
    attention = op_rows.aic_attention(truth, facts)
    frames = {
        "product_tensor": op_rows.aic_products(truth, facts, {"bfloat16": ("peak_bf16", 2.0)}),
        "attention": with_tiles(attention[attention.op == "prefill"], builtin_constants()),
    }
    networks = {
        name: fit_alone(as_operators(graphs(rows[rows.source_name != system]), name))
        for name, rows in frames.items()
    }
    base = as_published(builtin_calibration())
    return dataclasses.replace(
        base, models={**base.models, **networks}, constants=_without_effects(base.constants)
    )


def _without_effects(constants: Mapping[str, Any]) -> dict[str, Any]:
    effects = copy.deepcopy(constants["device_effects"])
    rows = [*effects["slope"], *effects["device"].values(), *effects["family"].values()]
    for row in rows:
        row[Effect.PRODUCT] = 0.0
    return {**constants, "device_effects": effects}
