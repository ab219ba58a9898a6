"""Five numbers of vTrain's cluster, fitted on a few single-node rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from accuracy_parallel.sites import Run, Simulator, Site, megatron_graph

#: The set-up stands in the configurations that vTrain's authors publish for their validation
#: (VIA-Research/vTrain @f8dda84, config/validation/**): layers recomputed in every run, 800 Gbit/s
#: between nodes.
VTRAIN = Site(device="A100 SXM4 80GB", device_link="dgx-a100", node_link="ib-4x-hdr")
RECOMPUTED = "block"
NUM_FIT_ROWS = 20
#: The fit starts at each of these and moves by random steps of these sizes: host forward and
#: backward (factors), device (log), per microbatch and per step (seconds).
FIT_STARTS = tuple((host, host, 0.0, 0.0, 0.0) for host in (2.0, 5.0, 8.0, 12.0))
FIT_STEPS = (0.2, 0.2, 0.04, 2e-3, 4e-3)
NUM_FIT_STEPS = 400


def vtrain_run(row) -> Run:
    return Run(
        graph=megatron_graph(row), key=(row.hidden, row.heads, row.layers, row.seqlen),
        seq=int(row.seqlen), tp=int(row.tp), dp=int(row.dp), pp=int(row.pp),
        microbatch=float(row.micro_batch), checkpointing=RECOMPUTED,
        num_microbatches=int(row.global_batch / row.dp / row.micro_batch),
        num_gpus=int(row.num_gpus),
    )  # fmt: skip


def site_of(parameters: np.ndarray) -> Site:
    forward, backward, shift, microbatch_s, step_s = parameters
    return dataclasses.replace(
        VTRAIN, host_forward=forward, host_backward=backward, device_shift=shift,
        microbatch_s=max(microbatch_s, 0.0), step_s=max(step_s, 0.0),
    )  # fmt: skip


class FastFit:
    """Steps of a few rows for any site, from device and host times that are made once."""

    def __init__(self, simulator: Simulator, rows: pd.DataFrame) -> None:
        self.simulator, self.rows = simulator, rows
        self.halves = [self._halves(row) for row in rows.itertuples()]

    def _halves(self, row):
        run = vtrain_run(row)
        sites = (
            dataclasses.replace(VTRAIN, host_forward=0.0, host_backward=0.0),
            dataclasses.replace(VTRAIN, device_shift=-30.0),
        )
        for site in sites:
            self.simulator.run(run, site)
        key = (run.key, run.tp, run.sequence_parallel, run.checkpointing)
        return run, [self.simulator.blocks[(*key, site)] for site in sites]

    def error(self, site: Site) -> float:
        predicted = [self._step_s(run, *halves, site) for run, halves in self.halves]
        return float(np.abs(np.array(predicted) / (self.rows.measured_iter_ms / 1e3) - 1).mean())

    def _step_s(self, run: Run, device, host, site: Site) -> float:
        half, factor = device.tensor_s / 2, np.exp(site.device_shift)
        forward = half + np.maximum(
            (device.forward_s - half) * factor, (host.forward_s - half) * site.host_forward
        )
        backward = half + np.maximum(
            (device.backward_s - half) * factor, (host.backward_s - half) * site.host_backward
        )
        forward[:, 0] += site.microbatch_s
        key = (run.key, run.tp, run.sequence_parallel, run.checkpointing, site)
        self.simulator.blocks[key] = dataclasses.replace(
            device, forward_s=forward, backward_s=backward
        )
        step_s = self.simulator.run(run, site).step_s[0]
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
