"""Pairs of a job and a machine as columns, so that many are evaluated at once.

Shapes: (num_rows,).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.strategy.strategy import MeshAxis, Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.values import dataclass

_Kind = TypeVar("_Kind", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wires:
    """What joins the devices of machines, (num_machines,) each.

    Attributes:
        devices_per_domain: Joined by the link between devices.
        device_link: Inside a domain.
        node_link: Between domains.
    """

    devices_per_domain: IntArray
    device_link: LinkTable
    node_link: LinkTable

    @classmethod
    def of(cls, machines: Sequence[Machine]) -> Wires:
        """Those of each machine."""
        joined = np.array([one.devices_per_domain for one in machines], dtype=np.int64)
        per_node = np.array([one.devices_per_node for one in machines], dtype=np.int64)
        networks = LinkTable.from_links([one.node_link for one in machines])
        return cls(
            devices_per_domain=joined,
            device_link=LinkTable.from_links([one.device_link for one in machines]),
            node_link=networks.of_nodes(joined / per_node),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cases:
    """Jobs on machines; what a column says stands for what the job itself says.

    Attributes:
        jobs: What the rows have in common.
        machines: Where; a column says how many of its devices work.
        job: Row of ``jobs``.
        machine: Row of ``machines``.
        batch: Items of a microbatch on a rank with items of its own.
        replicas: Ranks along ``dp`` and ``fsdp``.
        microbatches: Per step.
        wires: Of ``machines``, found where they are not given.
    """

    jobs: tuple[Job, ...]
    machines: tuple[Machine, ...]
    job: IntArray
    machine: IntArray
    batch: FloatArray
    replicas: IntArray
    microbatches: IntArray
    wires: Wires | None = None

    def __post_init__(self) -> None:
        """Look at the machines once: rows are taken many times."""
        if self.wires is None:
            object.__setattr__(self, "wires", Wires.of(self.machines))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.job)

    @classmethod
    def of(cls, jobs: Sequence[Job], machines: Sequence[Machine]) -> Cases:
        """``jobs[i]`` on ``machines[i]``."""
        where, machine = distinct_machines(machines)
        what, job = _distinct(jobs, _work)
        strategies = [one.strategy for one in jobs]
        return cls(
            jobs=what,
            machines=where,
            job=job,
            machine=machine,
            batch=np.array([one.batch for one in jobs], dtype=np.float64),
            replicas=np.array([num_replicas(one) for one in strategies], dtype=np.int64),
            microbatches=np.array(
                [one.schedule.num_microbatches for one in strategies], dtype=np.int64
            ),
        )

    def take(self, rows: npt.ArrayLike) -> Cases:
        """Some rows, in this order."""
        return take_rows(self, rows, alike=("jobs", "machines", "wires"))

    def job_at(self, row: int) -> Job:
        """One row as a job."""
        job = self.jobs[int(self.job[row])]
        return replace(job, strategy=self.strategy_at(row), batch=float(self.batch[row]))

    def strategy_at(self, row: int) -> Strategy:
        """The strategy of one row, with the replicas and microbatches of its columns."""
        strategy = self.jobs[int(self.job[row])].strategy
        replicas, count = int(self.replicas[row]), int(self.microbatches[row])
        if replicas == num_replicas(strategy) and count == strategy.schedule.num_microbatches:
            return strategy
        mesh = [axis for axis in strategy.mesh if axis.name != "dp"]
        if (dp := replicas // strategy.size("fsdp")) > 1:
            place = sum(axis.name == "pp" for axis in mesh)
            mesh.insert(place, MeshAxis(name="dp", size=dp))
        num_copies = replicas * strategy.size("cp") * strategy.size("ep")
        return replace(
            strategy,
            mesh=tuple(mesh),
            schedule=replace(strategy.schedule, num_microbatches=count),
            sharding=strategy.sharding if num_copies > 1 else "none",
        )

    def of_jobs(self, values: Sequence[float]) -> FloatArray:
        """Values of the jobs at every row."""
        return np.asarray(np.array(values, dtype=np.float64)[self.job])

    @property
    def devices_per_domain(self) -> IntArray:
        """Joined by the link between devices, of every row's machine."""
        return self._joined().devices_per_domain[self.machine]

    @property
    def device_link(self) -> LinkTable:
        """Inside a domain."""
        return self._joined().device_link.take(self.machine)

    @property
    def node_link(self) -> LinkTable:
        """Between domains."""
        return self._joined().node_link.take(self.machine)

    def _joined(self) -> Wires:
        assert self.wires is not None  # Set when the cases are made.
        return self.wires


def distinct_machines(machines: Sequence[Machine]) -> tuple[tuple[Machine, ...], IntArray]:
    """Machines that differ, and which of them stands for each."""
    return _distinct(machines, _place)


def num_replicas(strategy: Strategy) -> int:
    """Ranks along ``dp`` and ``fsdp``."""
    return strategy.size("dp") * strategy.size("fsdp")


def grouped(keys: Sequence[_Kind]) -> dict[_Kind, IntArray]:
    """Places of each distinct key, in the order in which keys come first."""
    places: dict[_Kind, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return {key: np.array(found, dtype=np.int64) for key, found in places.items()}


def _distinct(
    values: Sequence[_Value], key: Callable[[_Value], Hashable]
) -> tuple[tuple[_Value, ...], IntArray]:
    """One value of each key, and which of them stands for every place."""
    first: dict[Hashable, int] = {}
    kept: list[_Value] = []
    index = np.empty(len(values), dtype=np.int64)
    for place, value in enumerate(values):
        number = first.setdefault(key(value), len(kept))
        if number == len(kept):
            kept.append(value)
        index[place] = number
    return tuple(kept), index


def _work(job: Job) -> Hashable:
    """What a job is but for its batch."""
    lengths = (job.seq, job.prompt_tokens, job.output_tokens)
    return job.workload, job.configuration, job.strategy, *lengths, job.profile, job.habits


def _place(machine: Machine) -> Hashable:
    """A machine by its devices as objects: their facts are not hashed."""
    groups = tuple((id(one.device), one.count, one.devices_per_node) for one in machine.groups)
    links = (machine.device_link, machine.node_link, machine.host_link)
    return groups, *links, machine.host_memory_bytes, machine.num_vcpus
