"""Clusters, runs on them, and their simulation."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from traced_models import traced

from paceline.catalog.entities import Link, Source
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import AttentionKernels, Checkpointing, Compiler, Configuration
from paceline.model.graph.graph import FloatArray, Graph
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import StrategyEvaluation, evaluate_strategies
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.schedule.table import KINDS, ClusterLinks, StrategyTable, Variant
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.training_profile import find_training_profile
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.scoring.naming.source_levels import as_published

MICROBATCHES = np.array([1.0, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
CACHE = Path(tempfile.gettempdir()) / "paceline-traces"
VOCABULARY = 51_200
GIB = 2**30


def make_link(
    bytes_per_s: float, *, switch: bool, kind: str = "nvlink",
    scope: Literal["device", "node"] = "device", name: str = "scored",
) -> Link:  # fmt: skip
    """A link of a peak alone."""
    return Link(
        name=name, scope=scope, kind=kind, bytes_per_s=bytes_per_s, latency_s=0.0,
        measured_bus_bytes_per_s=None, reduces_in_switch=switch, source=Source(text="scored"),
    )  # fmt: skip


#: Links between nodes that no offer has, from the descriptions of the clusters.
FURTHER_LINKS = (make_link(100e9, switch=False, kind="infiniband", scope="node", name="ib-4x-hdr"),)


@dataclasses.dataclass(frozen=True)
class Site:
    """A cluster and how its framework behaves there."""

    device: str
    device_link: str
    node_link: str
    host_forward: float = 1.0
    host_backward: float = 1.0
    device_shift: float = 0.0
    hop_wait_s: float = 0.0
    step_s: float = 0.0
    overlaps: bool = False
    compiler: Compiler = "eager"
    precision: str = "fp16"
    attention: AttentionKernels = "flash-2"


@dataclasses.dataclass(frozen=True)
class Run:
    """One training configuration."""

    graph: Callable[[], Graph]
    key: tuple[Hashable, ...]
    seq: int
    tp: int
    dp: int
    pp: int
    microbatch: float
    num_microbatches: int
    num_gpus: int
    chunks: int = 1
    checkpointing: Checkpointing = "none"
    sequence_parallel: bool = False
    sharding: int = 0
    cp: int = 1
    ep: int = 1


def calibration_of(site: Site, base: Calibration) -> Calibration:
    """A calibration with the site's host and device factors."""
    constants = copy.deepcopy(dict(base.constants))
    for times in constants["host"]["per_kernel_s"]["torch"].values():
        times["forward"] *= site.host_forward
        times["backward"] *= site.host_backward
    shift = {**base.device_log_shift, site.device: site.device_shift}
    return dataclasses.replace(base, constants=constants, device_log_shift=shift)


class Simulator:
    """Evaluates runs at a site; graphs and blocks are made once."""

    def __init__(self, calibration: Calibration | None = None) -> None:
        catalog = load_catalog()
        self.calibration = calibration or as_published(builtin_calibration())
        self.catalog = catalog
        joined = (*catalog.links, *FURTHER_LINKS)
        self.links = {link.name: LinkTable.from_links([link]) for link in joined}
        self.blocks: dict[tuple[Hashable, ...], BlockCosts] = {}
        self.steps: dict[tuple[Hashable, ...], StepFeatures] = {}

    def run(self, run: Run, site: Site) -> StrategyEvaluation:
        """Time and memory of one step, in stages of Megatron-LM, which all these tables are of."""
        fabric = ClusterLinks(
            devices_per_node=min(8, run.num_gpus),
            device_link=self.links[site.device_link],
            node_link=self.links[site.node_link],
            profile=dataclasses.replace(
                find_training_profile(), overlaps_gradients=site.overlaps, cut="layers",
                hop_wait_s=site.hop_wait_s, overlaps_hops=False, keeps_messages=False,
            ),
        )  # fmt: skip
        variant = Variant(
            shape=_shape(run),
            checkpointing=run.checkpointing,
            costs=self._blocks(run, site),
        )
        kind = "plain" if run.pp == 1 else "interleaved" if run.chunks > 1 else "1f1b"
        table = StrategyTable(
            variant=_one(0), dp=_one(run.dp), pp=_one(run.pp), chunks=_one(run.chunks),
            kind=_one(KINDS.index(kind)), microbatches=_one(run.num_microbatches),
            point=_one(int(np.flatnonzero(run.microbatch == MICROBATCHES)[0])),
            sharding=_one(run.sharding), shards=_one(0),
        )  # fmt: skip
        found = evaluate_strategies(table, [variant], fabric)
        steps = dataclasses.replace(found.steps, step_s=found.steps.step_s + site.step_s)
        return dataclasses.replace(found, steps=steps)

    def traits(self, run: Run, site: Site) -> StepFeatures:
        """What measurements know a rank's microbatch by."""
        key = (*self.key(run, site), run.microbatch)
        if key not in self.steps:
            costs = self._costs(run, site, np.array([run.microbatch]), self.calibration)
            (self.steps[key],) = costs.traits
        return self.steps[key]

    def _group(self, run: Run, site: Site) -> TensorGroup:
        return TensorGroup(
            shape=_shape(run), ranks_per_node=min(8, run.num_gpus),
            device_link=self.links[site.device_link], node_link=self.links[site.node_link],
        )  # fmt: skip

    @staticmethod
    def key(run: Run, site: Site) -> tuple[Hashable, ...]:
        """What blocks depend on."""
        return (
            run.key, run.seq, run.tp, run.cp, run.ep, run.sequence_parallel, run.checkpointing, site
        )  # fmt: skip

    def _blocks(self, run: Run, site: Site) -> BlockCosts:
        key = self.key(run, site)
        if key not in self.blocks:
            here = calibration_of(site, self.calibration)
            self.blocks[key] = self._costs(run, site, MICROBATCHES, here)
        return self.blocks[key]

    def _costs(
        self, run: Run, site: Site, sizes: FloatArray, calibration: Calibration
    ) -> BlockCosts:
        return block_costs(
            run.graph(), _configuration(run, site),
            DeviceTable.from_devices([find_device(self.catalog, site.device)]),
            Points.of(sizes, seq=run.seq),
            self._group(run, site), calibration=calibration,
        )  # fmt: skip


def _configuration(run: Run, site: Site) -> Configuration:
    return Configuration(
        precision=site.precision, checkpointing=run.checkpointing, compiler=site.compiler,
        attention=site.attention, optimizer_kernel="fused", training_format="half-weights",
    )  # fmt: skip


def _one(value: int) -> np.ndarray:
    return np.array([value], dtype=np.int64)


def megatron_graph(row: Any, *, core_only: bool = False) -> Callable[[], Graph]:
    """How to get the model of a row: hidden size, heads, layers and length are its columns."""
    spec = {
        "layers": row.layers, "hidden": row.hidden, "heads": row.heads, "vocab": VOCABULARY,
        "positions": row.seqlen, "core_only": int(core_only),
    }  # fmt: skip
    text = ",".join(f"{k}={int(v)}" for k, v in spec.items())
    name = "megatron-core-" + text.replace("=", "").replace(",", "-")
    return lambda: traced(CACHE, name, "megatron_model:build", environment={"MEGATRON_MODEL": text})


def _shape(run: Run) -> SplitShape:
    return SplitShape(
        tensor=run.tp, sequence_parallel=run.sequence_parallel, ring=run.cp, experts=run.ep
    )
