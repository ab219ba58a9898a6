"""T1 to T5 and T12: operators and whole transformers on GPUs that the fit never saw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from fit import truth
from fit.attention import fit_attention, with_tiles
from fit.joint import fit_alone
from fit.op_features import bounds_of, network_log
from fit.operators import as_operators, events, graphs, usual_intervals_s
from fit.options import FitOptions
from fit.residency import with_residency
from fit.tiling import TileFit, fit_tiles, seconds

from accuracy.few_shapes import correction, places
from accuracy.figures import Figure, errors, figure
from accuracy.limits import measured_twice
from accuracy.model_graphs import KEYS, measured_sums, read_calls
from accuracy.operator_worst import Worst, attention_cases, product_cases
from accuracy.stream_choice import StreamLog, choose_streams
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.gaussian_process import Spreads, learn
from paceline.prediction.calibration.step_features import StepFeatures

UNSEEN = ("NVIDIA H100 80GB HBM3", "NVIDIA L4", "NVIDIA A100 80GB PCIe")
_FOLDS = {
    "Hopper": ("h100_sxm", "h200_sxm"),
    "Blackwell data centre": ("b200_sxm", "b300_sxm", "gb200", "gb300"),
    "Blackwell RTX PRO 6000": ("rtx_pro_6000_server",),
    "Ampere A100": ("a100_sxm",),
    "Ada L40S": ("l40s",),
}
#: Of the networks of T3 and T5.
_OPTIONS = FitOptions(members=3, noise=0.1)
_UPDATES = 3000
#: Calls shorter than so many empty intervals say more of the call than of the kernel. Of 1.7
#: and 3, folds over the GPUs of the train split choose 3.
_ABOVE_FLOOR = 3.0
_NUM_DRAWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a fold fitted.

    Attributes:
        tiles: The tile model and its clock.
        stream_log: Log seconds of streams.
        intervals_s: Empty interval between two events around a call, by op.
    """

    tiles: TileFit
    stream_log: StreamLog
    intervals_s: pd.Series


def product_log(fitted: Fitted, rows: pd.DataFrame) -> np.ndarray:
    """Log of the tile model's time of products."""
    return np.log(seconds(rows, fitted.tiles))


def fit_neusight(folder: Path, facts: pd.DataFrame) -> Fitted:
    """Tile model, clock law and streams of NeuSight's train split alone.

    That split holds P4, P100, V100, T4 and A100-40, and streams of AMD's boards, whose kernels are
    others.
    """
    products = _train(truth.neusight_products(folder, facts))
    streams = _train(truth.neusight_streams(folder, facts))
    streams = streams[streams.compute_capability.notna()]
    return Fitted(
        tiles=fit_tiles(events(products, above_floor=_ABOVE_FLOOR), with_clock=True),
        stream_log=choose_streams(events(streams, above_floor=_ABOVE_FLOOR)),
        intervals_s=pd.concat([usual_intervals_s(products), usual_intervals_s(streams)]),
    )


def _train(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows.split == "train"]


def test_operators(folder: Path, facts: pd.DataFrame, fitted: Fitted, worst: Worst) -> list[Figure]:
    """T2: operator classes on unseen GPUs, NeuSight's test split."""
    anchors = {"bmm": (13.8, 12), "linear": (13.9, 12), "elementwise": (19.3, 8),
               "softmax": (13.9, 15), "ln": (56.7, 15)}  # fmt: skip
    parts = []
    for rows in (truth.neusight_products(folder, facts), truth.neusight_streams(folder, facts)):
        rows = rows[(rows.split == "test") & rows.source_name.isin(UNSEEN)]
        is_product = "m" in rows
        kernel_log = product_log(fitted, rows) if is_product else fitted.stream_log(rows)
        # The source timed each call between two events.
        own = np.log(np.exp(kernel_log) + rows.op.map(fitted.intervals_s).to_numpy())
        measured = np.log(rows.time_s.to_numpy())
        worst.add("T2", rows, [f"{op}, {t}" for op, t in zip(rows.op, _lengths(rows), strict=True)],
                  own - measured)  # fmt: skip
        listed = rows.assign(peak=rows.peak / rows.clock_frac) if is_product else rows
        roof = np.log(bounds_of(listed).roofline_s)
        parts.append(
            pd.DataFrame({
                "op": rows.op.to_numpy(), "error": errors(own, measured),
                "roofline": errors(roof, measured),
            })
        )  # fmt: skip
    every = pd.concat(parts)
    every["kind"] = np.where(every.op.isin(list(anchors)), every.op, "elementwise")
    return [
        figure("T2", kind, g.error.to_numpy(), roofline=g.roofline.to_numpy(),
               anchor=anchors[kind][0], target=anchors[kind][1])
        for kind, g in every.groupby("kind")
    ]  # fmt: skip


def _lengths(rows: pd.DataFrame) -> list[str]:
    names = np.array(["below 0.1 ms", "0.1 to 1 ms", "1 to 10 ms", "10 ms and longer"])
    return list(names[np.digitize(rows.time_s, [1e-4, 1e-3, 1e-2])])


def compose(folder: Path, facts: pd.DataFrame, fitted: Fitted) -> pd.DataFrame:
    """Predicted and measured time of NeuSight's model graphs on every NVIDIA GPU."""
    calls = read_calls(folder)
    names = {name.replace(" ", "_"): name for name in facts.index}
    calls["source_name"] = calls.pop("device").map(names)
    calls = calls.join(facts, on="source_name")
    calls = calls.assign(peak=calls.peak_fp32, clock_frac=1.0, element_bytes=4.0, time_s=0.0)
    product = (calls.kind == "product").to_numpy()
    calls.loc[product, "time_s"] = np.exp(product_log(fitted, calls[product]))
    calls.loc[~product, "time_s"] = np.exp(fitted.stream_log(calls[~product]))
    calls["device"] = calls.source_name.str.replace(" ", "_")
    total = (calls.time_s * calls.repeat).groupby([calls[k] for k in KEYS]).sum()
    ends = pd.read_csv(folder / "ops" / "neusight_e2e.csv")
    ends = ends[ends.option.isna()]
    ends = ends.rename(columns={"batch": "model_batch"})
    ends = ends.merge(measured_sums(folder), on=list(KEYS))
    return total.rename("own_s").reset_index().merge(ends, on=list(KEYS))


def test_models(ends: pd.DataFrame, worst: Worst) -> list[Figure]:
    """T1: whole transformers on unseen GPUs."""
    unseen = ends[ends.device.isin([n.replace(" ", "_") for n in UNSEEN])]
    measured = np.log(unseen.measured_e2e_ms / 1e3)
    unseen = unseen.assign(
        error=errors(np.log(unseen.own_s), measured),
        roofline=errors(np.log(unseen.pred_roofline_e2e_ms / 1e3), measured),
        neusight=errors(np.log(unseen.pred_neusight_e2e_ms / 1e3), measured),
        kernels=errors(np.log(unseen.kernels_s), measured),
    )
    names = unseen.model + ", batch " + unseen.model_batch.astype(str) + ", " + unseen["mode"]
    worst.add("T1", unseen.assign(source_name=unseen.device), list(names),
              np.log(unseen.own_s) - measured)  # fmt: skip
    figures = []
    for mode, name, target in (("inf", "inference", 7), ("train", "training", 6)):
        g = unseen[unseen["mode"] == mode]
        figures.append(
            figure("T1", name, g.error.to_numpy(), roofline=g.roofline.to_numpy(),
                   anchor=float(g.neusight.mean()), target=target)
        )  # fmt: skip
        figures.append(figure("T1", f"{name}: measured kernels added up", g.kernels.to_numpy()))
    for (mode, device), g in unseen.groupby(["mode", "device"]):
        figures.append(
            figure("T1", f"{device} {mode}", g.error.to_numpy(), roofline=g.roofline.to_numpy(),
                   anchor=float(g.neusight.mean()), target=10)
        )  # fmt: skip
    return figures


def test_choice(ends: pd.DataFrame) -> list[Figure]:
    """T12: ratio of two GPUs on one workload; at least one of them unseen.

    A second line is for those who have one of the two: what its steps of other models teach of it
    is known, by the rule of ``paceline calibrate``.
    """
    names = {"own": ends.own_s * 1e3, "neusight": ends.pred_neusight_e2e_ms,
             "roofline": ends.pred_roofline_e2e_ms}  # fmt: skip
    off = pd.DataFrame({n: np.log(told / ends.measured_e2e_ms) for n, told in names.items()})
    off["taught"] = off.own + _taught(ends, off.own)
    pairs = _pairs(ends)
    size = 100 * np.expm1(np.abs(off.iloc[pairs[:, 0]].to_numpy() - off.iloc[pairs[:, 1]]))
    roofline = size.roofline[np.isfinite(size.roofline)].to_numpy()
    anchor = float(np.nanmean(size.neusight))
    return [
        figure("T12", "speed ratio", size.own.to_numpy(), roofline=roofline, anchor=anchor,
               target=10),
        figure("T12", "speed ratio, the measured GPU calibrated with other models",
               size.taught.to_numpy()),
    ]  # fmt: skip


def _is_unseen(ends: pd.DataFrame) -> np.ndarray:
    return ends.device.isin([name.replace(" ", "_") for name in UNSEEN]).to_numpy()


def _pairs(ends: pd.DataFrame) -> np.ndarray:
    """Places of two rows of one workload, at least one of an unseen GPU, (pairs, 2)."""
    workload = ends.groupby(["model", "seqlen", "model_batch", "mode"]).ngroup().to_numpy()
    unseen = _is_unseen(ends)
    is_pair = (workload[:, None] == workload) & (unseen[:, None] | unseen)
    return np.argwhere(np.tril(is_pair, -1))


def _taught(ends: pd.DataFrame, off: pd.Series) -> np.ndarray:
    """Log shifts of steps of seen GPUs by their steps of other models; none of unseen GPUs."""
    spreads = Spreads.of(builtin_calibration().constants["calibrate"])
    keys = [key for key in KEYS if key != "device"]
    steps = [
        StepFeatures(workload=str(tuple(one)), setting=one[1]) for one in ends[keys].to_numpy()
    ]
    device, model = ends.device.to_numpy(), ends.model.to_numpy()
    shifts = np.zeros(len(ends))
    for place in np.flatnonzero(~_is_unseen(ends)):
        others = np.flatnonzero((device == device[place]) & (model != model[place]))
        if others.size:
            lessons = learn([(steps[i], -off.iloc[i]) for i in others], spreads)
            shifts[place] = lessons.log_shift([steps[place]])[0]
    return shifts


def bf16_products(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """BF16 matrix products of both engines, without the copied table."""
    return truth.aic_products(folder, facts, {"bfloat16": ("peak_bf16", 2.0)})


def one_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Products of one engine per system."""
    own = np.where(rows.source_name == "a100_sxm", "sglang", "vllm")
    return rows[rows.framework == own].reset_index(drop=True)


def _resident(rows: pd.DataFrame, fitted: TileFit) -> pd.DataFrame:
    """Rows with what repeated calls on copies of the operands find in the cache."""
    return with_residency(rows, fitted.num_copies, fitted.tiles.resident_bytes_per_cycle)


def test_products(rows: pd.DataFrame, worst: Worst) -> list[Figure]:
    """T3 and T4: BF16 matrix products, architecture held out, then with measured shapes.

    Args:
        rows: Of both engines; one is predicted, the other says how far measurements agree.
        worst: Gathers the worst classes.
    """
    figures, means = measured_twice(rows, _FOLDS), []
    rows = one_table(rows)
    for name, systems in _FOLDS.items():
        held = rows.source_name.isin(systems).to_numpy()
        fitted = fit_tiles(rows[~held], with_clock=False, num_rows=2500, rounds=600)
        known, te = (_resident(rows[k], fitted) for k in (~held, held))
        operators = as_operators(known, "product_tensor", tiles=fitted.tiles)
        model = fit_alone(operators, updates=_UPDATES, options=_OPTIONS, model="product_tensor")
        own = network_log(model, te, "product_tensor", fitted.tiles)
        measured = np.log(te.time_s.to_numpy())
        roof = errors(np.log(bounds_of(rows[held]).roofline_s), measured)
        figures.append(figure("T3", name, errors(own, measured), roofline=roof, target=16))
        means.append(figures[-1].mean)
        worst.add("T3", te, product_cases(te), own - measured)
        tiling = np.log10(seconds(rows[held], fitted) / bounds_of(te).roofline_s)
        figures += _calibrated(name, te, places(te, tiling), own - measured)
    figures.append(figure("T3", "mean of folds", np.array(means), anchor=16.5, target=11))
    return figures


def _calibrated(
    name: str, rows: pd.DataFrame, place: np.ndarray, log_error: np.ndarray
) -> list[Figure]:
    """T4: 10 and 50 measured shapes of each system, ten draws, scored on the others."""
    rng, out = np.random.default_rng(0), []
    system = rows.source_name.to_numpy()
    for count in (10, 50):
        draws = []
        for _ in range(_NUM_DRAWS):
            for one in np.unique(system):
                here = np.flatnonzero(system == one)
                known = rng.choice(here, count, replace=False)
                rest = np.setdiff1d(here, known)
                shift = correction(place[known], -log_error[known], place[rest])
                draws.append(np.mean(100 * np.abs(np.expm1(log_error[rest] + shift))))
        out.append(figure("T4", f"{name}, {count} shapes", np.array(draws),
                          target=8 if count == 50 else np.nan))  # fmt: skip
    return out


def test_attention(folder: Path, facts: pd.DataFrame, worst: Worst) -> list[Figure]:
    """T5: BF16 attention above 50 microseconds of roofline, architecture held out."""
    rows = graphs(truth.aic_attention(folder, facts))
    figures = []
    for name, systems in _FOLDS.items():
        held = rows.source_name.isin(systems).to_numpy()
        if not held.any():
            continue
        tiles = fit_attention(rows[~held])
        known = with_tiles(rows[~held & (rows.op == "prefill")], tiles)
        operators = as_operators(known, "attention")
        model = fit_alone(operators, updates=_UPDATES, options=_OPTIONS, model="attention")
        te = rows[held]
        te = te[bounds_of(te).roofline_s > 50e-6]
        measured = np.log(te.time_s.to_numpy())
        roof = errors(np.log(bounds_of(te).roofline_s), measured)
        asked = with_tiles(te, tiles)
        corrected = network_log(model, asked, "attention")
        own = np.where(te.op == "decode", np.log(asked.tiled_s), corrected)
        worst.add("T5", te, attention_cases(te), own - measured)
        for op, target in (("prefill", 12), ("decode", 12)):
            k = (te.op == op).to_numpy()
            if k.any():
                figures.append(figure("T5", f"{op}, {name}", errors(own, measured)[k],
                                      roofline=roof[k], target=target))  # fmt: skip
    return figures
