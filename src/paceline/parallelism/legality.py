"""Whether a strategy can run, or should, on a cluster; the answer says what to change."""

from __future__ import annotations

from paceline.errors import InvalidInputError
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.schedule.bubbles import check_interleaving
from paceline.parallelism.strategy.strategy import USUAL_ORDER, AxisName, Strategy

#: Networks too slow to stand between the halves of a matrix product, in bytes per second and
#: device: below PCIe 4.0 x8, tensor parallel loses more than a second device adds.
MIN_SHARED_BYTES_PER_S = 15e9


def check_strategy(
    strategy: Strategy,
    cluster: Cluster,
    *,
    num_devices: int,
    global_batch: int,
    num_blocks: int,
) -> None:
    """Raise unless the strategy fits the devices, the batch, the model and the links.

    Args:
        strategy: What is asked for.
        cluster: On what.
        num_devices: World size.
        global_batch: Items per optimizer step.
        num_blocks: Layers, of which every stage has at least one.

    Raises:
        InvalidInputError: It cannot run, or is silly; the hint says what would do.
    """
    check_costed(strategy)
    _check_devices(strategy, cluster, num_devices)
    check_batch(strategy, global_batch)
    _check_stages(strategy, num_blocks, cluster.profile.bare_stages)
    for axis in strategy.mesh:
        _check_link(strategy, cluster, axis.name)
    _check_tensor(strategy, cluster)


def check_costed(strategy: Strategy) -> None:
    """Raise unless there is a cost model for everything that the strategy names.

    Raises:
        InvalidInputError: An order or an option that nothing here can cost.
    """
    names = [axis.name for axis in strategy.mesh]
    usual = [name for name in USUAL_ORDER if name in names]
    if names != usual:
        raise InvalidInputError(
            f"`{strategy}` lays out its ranks in an order that has no cost model",
            hint=f"write the axes as {' . '.join(usual)}: what talks most stands rightmost",
        )
    if strategy.placements:
        raise InvalidInputError(
            f"placements of single modules have no cost model: `{strategy}`",
            hint="drop what follows the `;`: pairs, heads and vocabulary are found in the graph",
        )


def spans_nodes(strategy: Strategy, name: AxisName, devices_per_node: int) -> bool:
    """Whether the groups of an axis reach beyond one node, or one domain.

    >>> spans_nodes(Strategy.from_degrees(dp=2, tp=8), "tp", 8)
    False
    """
    return strategy.size(name) * strategy.stride(name) > devices_per_node


def _check_devices(strategy: Strategy, cluster: Cluster, num_devices: int) -> None:
    if strategy.num_ranks != num_devices:
        raise InvalidInputError(
            f"`{strategy}` has {strategy.num_ranks} ranks, not {num_devices}",
            hint="choose degrees whose product is the number of devices",
        )
    full = cluster.devices_per_node
    if num_devices > full and num_devices % full:
        raise InvalidInputError(
            f"{num_devices} devices do not fill nodes of {full}",
            hint=f"take {-(-num_devices // full) * full}, or at most {full}",
        )
    if strategy.gradient_sync == "single_process" and num_devices > cluster.devices_per_node:
        raise InvalidInputError(
            f"one process drives at most the {cluster.devices_per_node} devices of a node",
            hint="drop `+single-process`: a process per device is faster, too",
        )


def check_batch(strategy: Strategy, global_batch: int) -> None:
    """Raise unless a global batch divides into microbatches of all replicas.

    Raises:
        InvalidInputError: It does not; the hint says which would.
    """
    replicas = strategy.num_batches
    parts = replicas * strategy.schedule.num_microbatches
    if global_batch % parts:
        raise InvalidInputError(
            f"a global batch of {global_batch} does not divide into {replicas} replicas × "
            f"{strategy.schedule.num_microbatches} microbatches",
            hint=f"take a multiple of {parts}, such as {-(-global_batch // parts) * parts}",
        )


def _check_stages(strategy: Strategy, num_blocks: int, bare_stages: int) -> None:
    stages = strategy.size("pp") * strategy.schedule.num_chunks
    is_interleaved = strategy.schedule.kind == "interleaved"
    if stages > num_blocks + (bare_stages if is_interleaved else 0):
        raise InvalidInputError(
            f"{stages} pipeline stages are more than the model's {num_blocks} layers",
            hint=f"use at most {num_blocks} stages (degree × chunks)",
        )
    if is_interleaved:
        check_interleaving(strategy.size("pp"), strategy.schedule.num_microbatches)


def _check_link(strategy: Strategy, cluster: Cluster, name: AxisName) -> None:
    level = next(axis.level for axis in strategy.mesh if axis.name == name)
    beyond = spans_nodes(strategy, name, cluster.devices_per_domain)
    if level == "device" and beyond:
        raise InvalidInputError(
            f"`{name}` should stay inside a node of {cluster.devices_per_domain} but does not",
            hint=f"put `{name}` further right in the mesh, or make it smaller",
        )
    missing = cluster.node_link if beyond else cluster.device_link
    if missing is None:
        where = "nodes" if beyond else "devices of a node"
        raise InvalidInputError(
            f"`{name}` of `{strategy}` needs a link between {where}; there is none",
            hint="choose machines with one, or a single device each",
        )


def _check_tensor(strategy: Strategy, cluster: Cluster) -> None:
    link = cluster.node_link
    if link is None or not spans_nodes(strategy, "tp", cluster.devices_per_domain):
        return
    rate = link.bytes_per_s / cluster.devices_per_node
    if rate < MIN_SHARED_BYTES_PER_S:
        raise InvalidInputError(
            f"tensor parallel across `{link.name}` would have {rate / 1e9:.3g} GB/s per device",
            hint="keep `tp` inside a node (rightmost in the mesh) and spread `dp` or `pp`",
        )
