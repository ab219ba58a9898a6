"""Five numbers of vTrain's cluster, fitted on a few single-node rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from accuracy_parallel.sites import Run, Simulator, Site, megatron_graph
from paceline.model.graph.costs import Checkpointing
from paceline.parallelism.schedule.blocks import BlockCosts

#: The set-up stands in the configurations that vTrain's authors publish for their validation
#: (VIA-Research/vTrain @f8dda84, config/validation/**): layers recomputed in every run, 800 Gbit/s
#: between nodes.
VTRAIN = Site(device="A100 SXM4 80GB", device_link="dgx-a100", node_link="ib-4x-hdr")
RECOMPUTED: Checkpointing = "block"
NUM_FIT_ROWS = 20
#: The fit starts at each of these and moves by random steps of these sizes: host forward and
#: backward (factors), device (log), per message between stages and per step (seconds).
FIT_STARTS = tuple((host, host, 0.0, 0.0, 0.0) for host in (0.5, 1.0, 2.0, 3.0))
FIT_STEPS = (0.2, 0.2, 0.04, 5e-4, 4e-3)
NUM_FIT_STEPS = 400
#: Log of a factor that leaves nothing.
_NOTHING = -30.0


def vtrain_run(row: Any) -> Run:
    """The run of one row of vTrain's table."""
    return Run(
        graph=megatron_graph(row), key=(row.hidden, row.heads, row.layers, row.seqlen),
        seq=int(row.seqlen), tp=int(row.tp), dp=int(row.dp), pp=int(row.pp),
        microbatch=float(row.micro_batch), checkpointing=RECOMPUTED,
        num_microbatches=int(row.global_batch / row.dp / row.micro_batch),
        num_gpus=int(row.num_gpus),
    )  # fmt: skip


def site_of(parameters: np.ndarray) -> Site:
    """The vTrain paper's cluster with the five numbers that are fitted."""
    forward, backward, shift, hop_wait_s, step_s = parameters
    return dataclasses.replace(
        VTRAIN, host_forward=forward, host_backward=backward, device_shift=shift,
        hop_wait_s=max(hop_wait_s, 0.0), step_s=max(step_s, 0.0),
    )  # fmt: skip


class FastFit:
    """Steps of a few rows for any site, from device and host times that are made once."""

    def __init__(self, simulator: Simulator, rows: pd.DataFrame) -> None:
        self.simulator, self.rows = simulator, rows
        self.parts = [self._parts(row) for row in rows.itertuples()]

    def _parts(self, row: Any) -> tuple[Run, list[BlockCosts]]:
        """Blocks with nothing but calls, with the device as well, and with either pace of the host.

        A recomputed forward is dispatched at the pace of forward.
        """
        run, costs = vtrain_run(row), []
        for shift, forward, backward in (
            (_NOTHING, 0.0, 0.0), (0.0, 0.0, 0.0), (_NOTHING, 1.0, 0.0), (_NOTHING, 0.0, 1.0)
        ):  # fmt: skip
            site = dataclasses.replace(
                VTRAIN, device_shift=shift, host_forward=forward, host_backward=backward
            )
            self.simulator.run(run, site)
            costs.append(self.simulator.blocks[self.simulator.key(run, site)])
        return run, costs

    def error(self, site: Site) -> float:
        """Mean relative error of the rows at a site."""
        predicted = [self._step_s(run, costs, site) for run, costs in self.parts]
        return float(np.abs(np.array(predicted) / (self.rows.measured_iter_ms / 1e3) - 1).mean())

    def _step_s(self, run: Run, parts: Sequence[BlockCosts], site: Site) -> float:
        seconds: dict[str, Any] = {}
        for name in ("forward_s", "backward_s"):
            called, with_device = (getattr(costs, name) for costs in parts[:2])
            seconds[name] = called + (with_device - called) * np.exp(site.device_shift)
        for name in ("forward_host_s", "backward_host_s", "update_host_s"):
            none, by_forward, by_backward = (getattr(costs, name) for costs in parts[1:])
            seconds[name] = (
                none
                + site.host_forward * (by_forward - none)
                + site.host_backward * (by_backward - none)
            )
        key = self.simulator.key(run, site)
        self.simulator.blocks[key] = dataclasses.replace(parts[1], **seconds)
        step_s = float(self.simulator.run(run, site).steps.step_s[0])
        del self.simulator.blocks[key]
        return step_s


def fit_site(simulator: Simulator, rows: pd.DataFrame) -> Site:
    """Five numbers of the site that fit a few single-node rows best, by random descent."""
    fast = FastFit(simulator, rows)
    found = [_descend(fast, np.array(start)) for start in FIT_STARTS]
    return site_of(min(found, key=lambda pair: pair[0])[1])


def _descend(fast: FastFit, best: np.ndarray) -> tuple[float, np.ndarray]:
    generator, least = np.random.default_rng(0), fast.error(site_of(best))
    for _ in range(NUM_FIT_STEPS):
        trial = best.copy()
        moves = generator.normal(0.0, FIT_STEPS)
        for index in generator.integers(0, len(best), 2):
            trial[index] = (
                trial[index] * np.exp(moves[index]) if index < 2 else trial[index] + moves[index]
            )
        error = fast.error(site_of(trial))
        if error < least:
            best, least = trial, error
    return least, best
