"""T7: parallel training of vTrain's table, and whether the best strategy is recognised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from accuracy_parallel.sites import Simulator, Site
from accuracy_parallel.tables import Score, markdown, with_error
from accuracy_parallel.vtrain_fit import NUM_FIT_ROWS, VTRAIN, fit_site, vtrain_run
from accuracy_parallel.vtrain_trials import CONTEST, Trials

#: So many runs are asked for at most, and so many times where chance has a part.
_MOST_TRIALS, _NUM_DRAWS = 30, 10
#: A strategy is as good as the best if it takes at most so much longer.
CLOSE = 0.05


def predict_vtrain(simulator: Simulator, rows: pd.DataFrame, site: Site) -> pd.DataFrame:
    """Predicted and measured seconds per iteration of each row, with their relative error."""
    predicted = [simulator.run(vtrain_run(row), site).steps.step_s[0] for row in rows.itertuples()]
    rows = rows.assign(predicted=predicted, seconds=rows.measured_iter_ms / 1e3)
    return with_error(rows, "seconds")


def vtrain_section(truth: Path, simulator: Simulator) -> Iterator[str | Score]:
    """Figures, and lines of the page."""
    rows = pd.read_csv(truth / "ops" / "vtrain_training_iter.csv")
    single, many = rows[rows.scope == "single_node"], rows[rows.scope != "single_node"]
    fitted = single.sample(NUM_FIT_ROWS, random_state=0)
    site = fit_site(simulator, fitted)
    rest = predict_vtrain(simulator, single.drop(fitted.index), site)
    many = predict_vtrain(simulator, many, VTRAIN)
    yield Score(test="T7 one node, 20 of its rows used", value=rest.error.mean(), target=0.08)
    yield Score(test="T7 many nodes, nothing fitted", value=many.error.mean(), target=0.12)
    yield "\n## T7 Parallel training (vTrain, A100, Megatron)\n"
    yield (
        f"Fitted on {NUM_FIT_ROWS} single-node rows drawn with seed 0: host time per kernel × "
        f"{site.host_forward:.1f} forward and {site.host_backward:.1f} backward, device time × "
        f"{np.exp(site.device_shift):.2f}, {1e3 * site.hop_wait_s:.1f} ms per message "
        f"between stages and {1e3 * site.step_s:.1f} ms per step. Many nodes are predicted without "
        "these numbers: "
        "nothing at all is fitted to them. The unfused attention core of that time stands in the "
        "graph; that layers are recomputed in every run, and 800 Gbit/s between nodes, stand in "
        "the configurations that vTrain's authors publish for their validation. Targets: 8 % "
        "on one node, 12 % on many (vTrain's own: 8.4 % and 14.7 %). Read with care: which five "
        "numbers are fitted was chosen with the errors of all tables in view.\n"
    )
    yield markdown(pd.DataFrame({
        "rows": [len(rest), len(many)],
        "mean error": [rest.error.mean(), many.error.mean()],
        "median": [rest.error.median(), many.error.median()],
        "90 % below": [rest.error.quantile(0.9), many.error.quantile(0.9)],
    }, index=["one node", "many nodes"]))  # fmt: skip
    yield "\nWorst cases:\n"
    yield worst_runs(pd.concat([rest.nlargest(4, "error"), many.nlargest(6, "error")]))
    yield from choice_section(pd.concat([rest, many, predict_vtrain(simulator, fitted, site)]))
    yield from trials_section(simulator, predict_vtrain(simulator, single, VTRAIN), many)


def worst_runs(rows: pd.DataFrame) -> str:
    """Rows by their settings, with measured and predicted seconds."""
    columns = ["num_gpus", "hidden", "layers", "tp", "dp", "pp", "micro_batch", "global_batch"]
    names = [" ".join(f"{c[:6]}={int(r[c])}" for c in columns) for _, r in rows.iterrows()]
    table = pd.DataFrame({
        "measured s": rows.seconds.to_numpy(), "predicted s": rows.predicted.to_numpy(),
        "error": (rows.ratio - 1).to_numpy(),
    }, index=names)  # fmt: skip
    return markdown(table)


def choice_section(rows: pd.DataFrame) -> Iterator[str | Score]:
    """What choosing by prediction loses against the best that was measured."""
    regret = regrets(rows)
    share = float((regret <= CLOSE).mean())
    yield Score(
        test=f"choice of strategy: groups within 5 %, {NUM_FIT_ROWS} rows drawn",
        value=share, target=0.9, is_share=True,
    )  # fmt: skip
    yield "\n## The choice of strategy (vTrain)\n"
    yield (
        "Groups of equal model, GPUs and global batch: how much slower the strategy predicted "
        "best is than the one measured best (target: within 5 % in 90 % of groups).\n"
    )
    is_single = regret.index.get_level_values(0) == "single_node"
    yield _regret_table({
        "all": regret, "one node": regret[is_single], "many nodes": regret[~is_single]
    })  # fmt: skip


def trials_section(
    simulator: Simulator, single: pd.DataFrame, many: pd.DataFrame
) -> Iterator[str | Score]:
    """The same after the runs that `paceline trials` asks for, and `calibrate` learns from."""
    trials = Trials(simulator, single)
    measured = trials.asked_for(_MOST_TRIALS)
    learned = trials.after(measured[:NUM_FIT_ROWS])
    regret = regrets(pd.concat([learned, many]))
    yield Score(
        test=f"choice of strategy: groups within 5 %, {NUM_FIT_ROWS} rows asked for",
        value=float((regret <= CLOSE).mean()), target=0.9, is_share=True,
    )  # fmt: skip
    rest = learned.drop(learned.index[measured[:NUM_FIT_ROWS]])
    yield "\n### After the runs that `paceline trials` asks for\n"
    yield (
        "Nothing is fitted to the cluster: predictions start as shipped, the run whose time would "
        "most improve the choices on one node is measured, `calibrate` learns it, and so on, "
        f"{NUM_FIT_ROWS} times (T7 too may use {NUM_FIT_ROWS} rows of one node). The other rows of "
        f"one node are then {rest.error.mean():.1%} off at the mean. Many nodes are predicted as "
        "above. *Of a half*: half of the rows, drawn ten times, may not be asked for.\n"
    )
    yield _regret_table(_by_trials(trials, measured))


def _by_trials(trials: Trials, measured: Sequence[int]) -> dict[str, pd.Series]:
    """Regret on one node as shipped, after so many trials, and where they are chosen otherwise."""
    rows, all_rows = trials.rows, np.arange(len(trials.rows))
    found = {"as shipped": regrets(rows)}
    for count in (5, 10, NUM_FIT_ROWS, _MOST_TRIALS):
        found[f"{count} asked for"] = regrets(trials.after(measured[:count]))
    seen = pd.MultiIndex.from_frame(rows.iloc[measured[:NUM_FIT_ROWS]][list(CONTEST)])
    chosen = found[f"{NUM_FIT_ROWS} asked for"]
    found[f"{NUM_FIT_ROWS} asked for, groups without a measured row"] = chosen[
        ~chosen.index.isin(seen)
    ]
    halves, drawn = [], []
    for seed in range(_NUM_DRAWS):
        generator = np.random.default_rng(seed)
        barred = generator.choice(all_rows, len(rows) // 2, replace=False)
        halves.append(regrets(trials.after(trials.asked_for(NUM_FIT_ROWS, barred.tolist()))))
        sample = generator.choice(all_rows, NUM_FIT_ROWS, replace=False)
        drawn.append(regrets(trials.after(sample.tolist())))
    found[f"{NUM_FIT_ROWS} asked for of a half, ten draws"] = pd.concat(halves)
    found[f"{NUM_FIT_ROWS} drawn, ten draws"] = pd.concat(drawn)
    return found


def _regret_table(parts: dict[str, pd.Series]) -> str:
    return markdown(pd.DataFrame({
        "groups": [len(p) for p in parts.values()],
        "within 5 %": [(p <= CLOSE).mean() for p in parts.values()],
        "exactly the best": [(p <= 1e-9).mean() for p in parts.values()],
        "mean loss": [p.mean() for p in parts.values()],
        "worst loss": [p.max() for p in parts.values()],
    }, index=pd.Index(list(parts))))  # fmt: skip


def regrets(rows: pd.DataFrame) -> pd.Series:
    """By how much the run predicted best is slower than the best, one per contest."""
    found = {}
    for key, group in rows.groupby(list(CONTEST)):
        if len(group) > 1:
            chosen = group.loc[group.predicted.idxmin()]
            found[key] = chosen.seconds / group.seconds.min() - 1
    return pd.Series(found)
