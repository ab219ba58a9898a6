"""What a fit found, written as the data files of the built-in calibration."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fit.networks import Network
from fit.options import FitOptions
from fit.step_model import TASKS, Levels, Predictor, mean_levels
from fit.steps import FRAMEWORKS
from fit.tiling import TileFit
from paceline.catalog.entities import Catalog
from paceline.prediction.kernels.attention_tiles import AttentionConstants
from paceline.prediction.kernels.device_effects import Effect

DATA = Path(__file__).parents[2] / "src" / "paceline" / "prediction" / "data"
LEVELS = DATA.parents[1] / "scoring" / "data" / "source_levels.json"
_DIGITS = 5


def write_products(
    vector: TileFit,
    matrix: TileFit,
    attention: Mapping[str, AttentionConstants],
    folder: Path = DATA,
) -> None:
    """Constants of the tile models, and of the clock law that the vector one was fitted with.

    FP32 products were timed one call at a time, so their fixed cycles hold the dispatch of the
    call. A step has a term of its own for that: it takes the fixed time of the other products.
    """
    content = _read(folder)
    constants = content["constants"]
    vector_tiles = dataclasses.replace(
        vector.tiles, launch_cycles=matrix.tiles.launch_cycles, launch_s=matrix.tiles.launch_s
    )
    constants["tiles"] = {
        "vector": _rounded_fields(vector_tiles), "tensor": _rounded_fields(matrix.tiles)
    }  # fmt: skip
    constants["attention_tiles"] = {op: _rounded_fields(own) for op, own in attention.items()}
    constants["clock"] = _rounded_fields(vector.clock)
    constants["benchmarks"] = {"num_copies": _rounded(matrix.num_copies)}
    _write(folder, content)


def write_predictor(
    predictor: Predictor, catalog: Catalog, traits: Mapping[str, np.ndarray],
    options: FitOptions, folder: Path = DATA, levels: Path = LEVELS,
) -> None:  # fmt: skip
    """Networks, device effects, levels of tables, host dispatch and what was measured."""
    _write_networks(predictor, folder / "efficiency.npz")
    content = _read(folder)
    constants = content["constants"]
    constants["device"]["launch_gap_s"] = options.gap_s
    constants["device"]["is_power_limited"] = options.is_power_limited
    constants["step_level"] = _common_levels(predictor)
    constants["device_effects"] = _device_effects(predictor, catalog, traits)
    levels.write_text(json.dumps(_source_levels(predictor, catalog), indent=1) + "\n")
    constants["host"]["per_kernel_s"] = _dispatch(predictor)
    constants["host"]["log_per_year"] = {
        name: _rounded(value)
        for name, value in zip(FRAMEWORKS, predictor.host_log_per_year.tolist(), strict=True)
    }
    _stated_dispatch(constants["host"])
    fixed = torch.exp(predictor.log_step_s).tolist()
    constants["host"]["step_s"] = {
        name: _rounded(value, 3) for name, value in zip(FRAMEWORKS, fixed, strict=True)
    }
    _put_launches(constants["host"])
    _put_generation(constants)
    measured = [d for d in catalog.devices if d.name in predictor.measured]
    content["groups"] = sorted(predictor.networks)
    content["measured_devices"] = sorted(d.name for d in measured)
    content["measured_families"] = sorted({d.family for d in measured})
    content["measured_architectures"] = sorted({d.architecture for d in measured})
    _write(folder, content)


def write_spreads(log_sigmas: Mapping[str, float], folder: Path = DATA) -> None:
    """Write what a user's measurements are weighed by."""
    content = _read(folder)
    content["constants"]["calibrate"] = {
        name: _rounded(value) for name, value in log_sigmas.items()
    }
    _write(folder, content)


def write_intervals(constants: Mapping[str, Any], folder: Path = DATA) -> None:
    """Spread of log time by case."""
    content = _read(folder)
    content["constants"]["interval"] |= constants
    _write(folder, content)


def _write_networks(predictor: Predictor, path: Path) -> None:
    arrays: dict[str, Any] = {}
    for group, network in predictor.networks.items():
        model = cast(Network, network).export()
        arrays[f"{group}.low"], arrays[f"{group}.high"] = model.low, model.high
        arrays[f"{group}.range"] = np.array([model.floor, model.ceiling])
        for layer, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
            arrays[f"{group}.weight{layer}"], arrays[f"{group}.bias{layer}"] = weight, bias
    np.savez(path, **arrays)


def _device_effects(
    predictor: Predictor, catalog: Catalog, traits: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Slopes of the law, and own effects by device and by family (the mean of its devices)."""
    own = own_effects(predictor)
    family = {d.name: d.family for d in catalog.devices}
    by_family: dict[str, list[np.ndarray]] = {}
    for name, effects in zip(predictor.devices, own, strict=True):
        by_family.setdefault(family[name], []).append(effects)
    seen = np.array([traits[name] for name in predictor.devices])
    return {
        "order": [effect.name.lower() for effect in Effect],
        "slope": [_effects(law) for law in predictor.slope.tolist()],
        "product_log_per_year": _rounded(predictor.product_log_per_year.item()),
        "log_trait_low": [_effects(law) for law in seen.min(0)],
        "log_trait_high": [_effects(law) for law in seen.max(0)],
        "device": {n: _effects(e) for n, e in zip(predictor.devices, own, strict=True)},
        "family": {n: _effects(np.mean(e, axis=0)) for n, e in sorted(by_family.items())},
    }


def _source_levels(predictor: Predictor, catalog: Catalog) -> dict[str, Any]:
    """What tables of a device add by framework and task, and those of its family."""
    family = {d.name: d.family for d in catalog.devices}
    by_family = mean_levels(
        (family[device], asked, level)
        for device, by_task in predictor.levels.items()
        for asked, level in by_task.items()
    )
    return {
        "device": _rounded_levels(predictor.levels),
        "family": _rounded_levels(by_family),
    }


def _common_levels(predictor: Predictor) -> dict[str, float]:
    return {
        f"{framework}/{task}": round(value, 4)
        for framework, values in zip(FRAMEWORKS, predictor.asked.tolist(), strict=True)
        for task, value in zip(TASKS, values, strict=True)
    }


def _rounded_levels(levels: Levels) -> Levels:
    return {name: {k: round(v, 4) for k, v in one.items()} for name, one in levels.items()}


def own_effects(predictor: Predictor) -> np.ndarray:
    """Effects of each device as steps show them; as op rows do where it has no steps.

    Streams are left without one there: their benchmarks find in the cache what steps do not.
    """
    in_steps, in_operators = (
        p.detach().numpy().astype(float) for p in (predictor.own, predictor.own_in_operators)
    )
    in_operators[:, Effect.STREAM] = 0.0
    has_steps = predictor.has_steps[:, None]
    chosen: np.ndarray = np.where(has_steps, in_steps, in_operators)
    return chosen


def _effects(values: np.ndarray) -> list[float]:
    return [round(float(v), 4) for v in values]


#: Dispatch of eager frameworks that one kind of machine should not set.
_STATED_DISPATCH = Path(__file__).parent / "stated_dispatch.csv"


def _stated_dispatch(host: dict[str, Any]) -> None:
    """Put stated dispatch in the place of what was fitted."""
    with _STATED_DISPATCH.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            host["per_kernel_s"][row["framework"]]["eager"] = {
                way: float(row[f"{way}_s"]) for way in ("forward", "backward")
            }
            host["log_per_year"][row["framework"]] = float(row["log_per_year"])
            host["view_frac"] = {row["framework"]: float(row["view_frac"])}


def _put_launches(host: dict[str, Any]) -> None:
    """Put the host of engines that replay no graphs: each of their kernels is a call of PyTorch."""
    per_kernel = host["per_kernel_s"]
    per_kernel["launches"] = dict.fromkeys(per_kernel["torch"], per_kernel["torch"]["eager"])
    for name in ("log_per_year", "step_s"):
        host[name]["launches"] = host[name]["torch"]


#: Launches of loops that write tokens, over those of steps: of Transformers on A100, RTX 4090 and
#: H200 0.49, 0.50 and 0.74 (premAI-io/benchmarks 16338c3, ninehills/llm-inference-benchmark,
#: benchmarks/gpu_asked.md; medians), drawn towards one as by one source more.
_GENERATION_FRAC = 0.68


def _put_generation(constants: dict[str, Any]) -> None:
    """Put the host of loops that write tokens: no op of theirs is kept for a backward pass."""
    host, levels = constants["host"], constants["step_level"]
    eager = host["per_kernel_s"]["torch"]["eager"]
    forward = _rounded(_GENERATION_FRAC * eager["forward"], 3)
    host["per_kernel_s"]["generation"] = {
        **host["per_kernel_s"]["torch"],
        "eager": {**eager, "forward": forward},
    }
    for name in ("log_per_year", "step_s", "view_frac"):
        host[name]["generation"] = host[name]["torch"]
    levels["generation/infer"] = levels["torch/infer"]


def _dispatch(predictor: Predictor) -> dict[str, object]:
    """Seconds per kernel by framework and compiler."""
    seconds = torch.exp(predictor.log_dispatch_s).tolist()
    table: dict[str, object] = {}
    for name, by_compiler in zip(FRAMEWORKS, seconds, strict=True):
        eager, compiled = (
            {"forward": _rounded(forward, 3), "backward": _rounded(backward, 3)}
            for forward, backward in by_compiler
        )
        table[name] = {"eager": eager, **dict.fromkeys(("compiled", "xla", "tensorrt"), compiled)}
    return table


def _rounded_fields(constants: Any) -> dict[str, float]:
    return {f.name: _rounded(getattr(constants, f.name)) for f in dataclasses.fields(constants)}


def _rounded(value: float, digits: int = _DIGITS) -> float:
    return float(f"{value:.{digits}g}")


def _read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    return content


def _write(folder: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (folder / "calibration.json").write_text(text, encoding="utf-8")
