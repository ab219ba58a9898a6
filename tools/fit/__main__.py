"""Fit the built-in calibration from a folder of published measurements.

    PYTHONPATH=tools python -m fit --truth ../shared/truth

Reads op rows and whole steps, traces the models that have not been traced yet (slow, cached), fits
all networks and host dispatch together, and writes ``src/paceline/predict/data``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from fit.datasets import STEP_TABLES, step_weights
from fit.joint import Predictor, fit_jointly
from fit.operators import GAP_S, operator_frames, operators_of
from fit.steps import FRAMEWORKS, Steps, build_steps, read_measured
from fit.truth import device_facts
from paceline.app.scoring.workloads import default_cache_folder
from paceline.catalog import Catalog, load_catalog
from paceline.predict import builtin_calibration

DATA = Path(__file__).parents[2] / "src" / "paceline" / "predict" / "data"


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(prog="fit", description=__doc__.splitlines()[0])
    parser.add_argument("--truth", type=Path, default=Path("../shared/truth"))
    parser.add_argument("--cache", type=Path, default=default_cache_folder())
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--only-cached", action="store_true", help="trace nothing new")
    given = parser.parse_args()
    torch.set_num_threads(1)
    catalog = load_catalog()
    facts = device_facts(catalog.devices)
    operators = operators_of(operator_frames(given.truth, facts))
    measured = read_measured(given.truth, STEP_TABLES)
    steps = build_steps(
        measured, catalog, builtin_calibration(), given.cache, only_cached=given.only_cached
    )
    predictor = fit_jointly(
        steps, operators, step_weights(steps), epochs=given.epochs, gap_s=GAP_S, log=print
    )
    write_networks(predictor)
    write_constants(predictor, steps, catalog, frozenset(facts.device))


def write_networks(predictor: Predictor, path: Path = DATA / "efficiency.npz") -> None:
    """Every network as arrays."""
    arrays = {}
    for group, network in predictor.networks.items():
        model = network.export()
        arrays[f"{group}.low"], arrays[f"{group}.high"] = model.low, model.high
        arrays[f"{group}.range"] = np.array([model.floor, model.ceiling])
        for layer, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
            arrays[f"{group}.weight{layer}"], arrays[f"{group}.bias{layer}"] = weight, bias
    np.savez(path, **arrays)


def write_constants(
    predictor: Predictor, steps: Steps, catalog: Catalog, from_operators: frozenset[str],
    path: Path = DATA / "calibration.json",
) -> None:  # fmt: skip
    """Host dispatch and the list of measured devices; the rest of the file stays as it is."""
    content = json.loads(path.read_text(encoding="utf-8"))
    constants = content["constants"]
    constants["device"]["launch_gap_s"] = GAP_S
    constants["host"]["per_kernel_s"] = _dispatch(predictor)
    fixed = torch.exp(predictor.log_step_s).detach().numpy()
    constants["host"]["step_s"] = {
        name: _rounded(value) for name, value in zip(FRAMEWORKS, fixed, strict=True)
    }
    names = from_operators | set(steps.device)
    measured = [d for d in catalog.devices if d.name in names]
    content["groups"] = sorted(predictor.networks)
    content["measured_devices"] = sorted(d.name for d in measured)
    content["measured_families"] = sorted({d.family for d in measured})
    content["measured_architectures"] = sorted({d.architecture for d in measured})
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _dispatch(predictor: Predictor) -> dict[str, object]:
    """Seconds per kernel by framework and compiler; what no step showed is the PyTorch figure."""
    seconds = torch.exp(predictor.log_dispatch_s).detach().numpy()
    table: dict[str, object] = {}
    for number, name in enumerate(FRAMEWORKS):
        eager, compiled = (
            {"forward": _rounded(forward), "backward": _rounded(backward)}
            for forward, backward in seconds[number]
        )
        table[name] = {"eager": eager, **dict.fromkeys(("compiled", "xla", "tensorrt"), compiled)}
    return table


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    main()
