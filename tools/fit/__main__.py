"""Fit the built-in calibration from a folder of published measurements, all of it in one go.

    PYTHONPATH=tools python -m fit --truth ../shared/truth

In order: the tile models and the clock law from products and attention; the networks, device
effects and host dispatch from op rows and whole steps together; the widths of intervals from steps
whose device was held out. Models that have not been traced yet are traced (slow, cached). Every
part is deterministic; ``src/paceline/prediction/data`` is written after each.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pandas as pd
import torch
from accuracy.folds import device_folds
from accuracy.intervals import components, with_covariates
from accuracy.step_tests import predict_devices

from fit.attention import fit_attention
from fit.choosing import choose_options
from fit.constants import write_intervals, write_predictor, write_products
from fit.datasets import STEP_TABLES, fitted_rows, step_weights
from fit.joint import fit_jointly
from fit.operators import events, graphs, narrow_products, operator_frames, operators_of
from fit.options import FitOptions
from fit.steps import Steps, build_steps, read_measured, select
from fit.tiling import fit_tiles
from fit.traits import device_traits
from fit.truth import aic_attention, device_facts, neusight_products
from paceline.catalog.entities import Catalog
from paceline.catalog.load import load_catalog
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.scoring.workloads import default_cache_folder

PARTS = ("products", "networks", "intervals")


def main() -> None:
    """Fit and write."""
    given = _arguments()
    torch.set_num_threads(1)
    catalog = load_catalog()
    facts = device_facts(catalog.devices)
    if "products" in given.parts:
        vector = fit_tiles(events(neusight_products(given.truth, facts)), with_clock=True)
        matrix = fit_tiles(graphs(narrow_products(given.truth, facts)), with_clock=False)
        attention = fit_attention(graphs(aic_attention(given.truth, facts)))
        write_products(vector, matrix, attention)
        builtin_calibration.cache_clear()
    frames = operator_frames(given.truth, facts)
    steps = _steps(given, catalog)
    options = dataclasses.replace(FitOptions(), epochs=given.epochs)
    if "networks" in given.parts:
        _fit_networks(steps, frames, options, catalog)
    if "intervals" in given.parts:
        lines = predict_devices(
            steps, frames, device_traits(catalog.devices), options, log=lambda text: print(text)
        )
        builtin_calibration.cache_clear()
        seen = with_covariates(lines, steps, catalog.devices, builtin_calibration())
        write_intervals(components(seen, catalog.devices, builtin_calibration()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fit", description=__doc__.splitlines()[0])
    parser.add_argument("--truth", type=Path, default=Path("../shared/truth"))
    parser.add_argument("--cache", type=Path, default=default_cache_folder())
    parser.add_argument("--epochs", type=int, default=FitOptions().epochs)
    parser.add_argument("--only-cached", action="store_true", help="trace nothing new")
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    return parser.parse_args()


def _steps(given: argparse.Namespace, catalog: Catalog) -> Steps:
    measured = read_measured(given.truth, STEP_TABLES)
    return build_steps(
        measured, catalog, builtin_calibration(), given.cache, only_cached=given.only_cached
    )


def _fit_networks(
    steps: Steps, frames: dict[str, pd.DataFrame], options: FitOptions, catalog: Catalog
) -> None:
    traits = device_traits(catalog.devices)
    folds = list(device_folds().values())
    steps = select(steps, fitted_rows(steps))
    options = choose_options(steps, frames, traits, folds, options, print)
    predictor = fit_jointly(
        steps, operators_of(frames), step_weights(steps), traits, options, log=print
    )
    write_predictor(predictor, catalog, traits, options)


if __name__ == "__main__":
    main()
