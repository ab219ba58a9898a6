"""An optimizer kept on the host: its states leave device memory, its update leaves the device.

Gradients go down the host link while backward runs, the host updates, and parameters come back as
they are ready.

Source: Ren et al., "ZeRO-Offload", USENIX ATC 2021, sections 4.1 and 5.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from paceline.catalog.entities import Device
from paceline.errors import DoesNotFitError, MissingFactError
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.evaluation import StrategyEvaluation
from paceline.parallelism.memory.training_state import TrainingState
from paceline.shipped import shipped_rows
from paceline.units import format_bytes
from paceline.values import dataclass

#: Processors of the machines that devices are sold in: those of so many years before them.
_YEARS_BEFORE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The main memory and processors of one node.

    Attributes:
        link_bytes_per_s: Between one device and the host, per direction.
        update_bytes_per_s: Of main memory that all its processors update together.
    """

    link_bytes_per_s: float
    memory_bytes: float
    update_bytes_per_s: float


def known_host(cluster: Cluster) -> Host | None:
    """What a node's host offers an optimizer; None where its link or its memory is not known."""
    link, memory_bytes = cluster.host_link, cluster.host_memory_bytes
    if link is None or memory_bytes is None:
        return None
    return Host(
        link_bytes_per_s=link.bytes_per_s,
        memory_bytes=memory_bytes,
        update_bytes_per_s=update_bytes_per_s(cluster.device, cluster.num_vcpus),
    )


def update_bytes_per_s(device: Device, num_vcpus: int | None) -> float:
    """What the processors beside a device read and write per second of main memory in an update.

    An update streams through main memory, so that its bandwidth is the limit: that of the virtual
    processors which the machine has, each with its share of processors as they were sold in the
    years before the device. Where they are not counted, what one unnamed machine was measured at.

    Args:
        device: Inside the machine; its year and form say whose processors stand beside it.
        num_vcpus: Of the machine.
    """
    facts = {row["name"]: float(row["value"]) for row in _rows("host_update.csv")}
    if num_vcpus is None:
        return facts["unknown_bytes_per_s"]
    is_superchip = "superchip" in device.form_factor.lower()
    return facts["memory_frac"] * num_vcpus * _bytes_per_s_per_thread(device.year, is_superchip)


@cache
def _bytes_per_s_per_thread(year: int | None, is_superchip: bool) -> float:
    """Listed bandwidth of a hardware thread's share: the median of the processors of those years.

    Of all years where that of the device is not known, or has none.
    """
    alike = [
        row
        for row in _rows("host_processors.csv")
        if (row["is_superchip"] == "yes") == is_superchip
    ]
    since = [row for row in alike if year and 0 <= year - int(row["year"]) <= _YEARS_BEFORE]
    shares = [float(row["memory_bytes_per_s"]) / int(row["num_threads"]) for row in since or alike]
    # `np.median` loads masked arrays first.
    return float(np.quantile(shares, 0.5))


def _rows(table: str) -> tuple[dict[str, str], ...]:
    return shipped_rows("parallelism", table)


def host_of(cluster: Cluster) -> Host:
    """What the host of a cluster's node offers an optimizer.

    Raises:
        MissingFactError: Its memory or its link is not known.
    """
    host = known_host(cluster)
    if host is None:
        what = "host link" if cluster.host_link is None else "main memory"
        raise MissingFactError(
            f"`+offload` keeps the optimizer on the host, and the {what} of these machines is "
            "not known",
            hint="name an offer that states it with --offer, or drop `+offload`",
        )
    return host


def host_s(
    updated: TrainingState, backward_s: FloatArray, num_sharing: int, host: Host
) -> FloatArray:
    """Seconds that an optimizer on the host adds to a step.

    Gradients travel while the last microbatch runs backward; parameters travel while the host
    updates the next ones. The update reads and writes the optimizer's states, reads gradients and
    writes parameters.

    Args:
        updated: What the busiest rank updates.
        backward_s: Of its last microbatch.
        num_sharing: Ranks that share the host.
        host: The node's host.
    """
    down_s = updated.reduced / host.link_bytes_per_s
    up_s = updated.renewed / host.link_bytes_per_s
    moved_bytes = 2.0 * updated.optimizer + updated.reduced + updated.renewed
    update_s = moved_bytes * num_sharing / host.update_bytes_per_s
    return np.asarray(np.maximum(down_s - backward_s, 0.0) + np.maximum(update_s, up_s))


def host_bytes(updated: TrainingState, num_sharing: int) -> FloatArray:
    """Main memory that the states and gradients of all ranks of a node take."""
    return np.asarray(num_sharing * (updated.optimizer + updated.reduced))


def offloaded(evaluation: StrategyEvaluation, num_sharing: int, host: Host) -> StrategyEvaluation:
    """An evaluation without optimizer on devices, with what the host adds to it.

    Args:
        evaluation: Of devices that keep no optimizer.
        num_sharing: Ranks that share the host.
        host: The node's host.
    """
    steps = evaluation.steps
    added_s = host_s(evaluation.updated, steps.backward_s, num_sharing, host)
    steps = replace(steps, step_s=steps.step_s + added_s, exposed_s=steps.exposed_s + added_s)
    return replace(evaluation, steps=steps)


def check_host_memory(num_bytes: float, host: Host) -> None:
    """Raise unless the node's main memory holds so much.

    Raises:
        DoesNotFitError: It does not.
    """
    if num_bytes > host.memory_bytes:
        raise DoesNotFitError(
            f"the optimizers of a node need {format_bytes(num_bytes)} of main memory; it has "
            f"{format_bytes(host.memory_bytes)}",
            hint="split the optimizer over more ranks (`+zero2`), or drop `+offload`",
        )
