"""Where to cut a traced model into stages: as even as its graph allows, with little to send.

The cost of an op is its arithmetic, or the bytes that it moves at `FLOP_PER_BYTE`, whichever takes
longer. Of all cuts whose slowest stage is within `SLACK` of the best one, that with the fewest
bytes between stages is taken: a cut inside a layer may be as even, and sends more.
"""

from collections import namedtuple

import torch
from torch import fx
from torch.utils.flop_counter import FlopCounterMode

#: Arithmetic that a device does while it moves one byte: about that of training in BF16 on GPUs
#: sold for it (peak over memory bandwidth, both dense); only its order matters to a cut.
FLOP_PER_BYTE = 150.0
#: How much slower than the best one a slowest stage may be.
SLACK = 1.05

#: ``cost`` of each op in the order of the graph; ``crossing`` bytes that a cut after it sends, or
#: None where a cut is not possible.
Profile = namedtuple("Profile", ["nodes", "cost", "crossing"])


def profile(graph_module):
    """What ops of a traced model cost, from the shapes of its trace, and what cuts would send."""
    nodes = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    place = {node: number for number, node in enumerate(nodes)}
    cost = [_cost(node) for node in nodes]
    last = {}
    bad = [0] * (len(nodes) + 1)
    moved = [0] * (len(nodes) + 1)
    for node in graph_module.graph.nodes:
        uses = [place.get(user, len(nodes) - 1) for user in node.users]
        if node.op == "get_attr" or not uses:
            continue
        begin, last[node] = place.get(node, -1), max(uses)
        size = _bytes(node.meta.get("val"))
        for cut in range(max(begin, 0), last[node]):
            moved[cut] += size or 0
            bad[cut] += size is None or begin < 0
    for number, node in enumerate(nodes):
        for cut in range(_written_from(node, place), number):
            bad[cut] += 1
    crossing = [None if bad[k] else moved[k] for k in range(len(nodes))]
    return Profile(nodes, cost, crossing)


def _written_from(node, place):
    """The op whose output an op writes over: what a stage received must stay as it is."""
    if not _is_in_place(node):
        return place[node]
    written = node.args[0]
    while (
        isinstance(written, fx.Node)
        and written.op == "call_function"
        and (_is_view(written) or _is_in_place(written))
    ):
        written = written.args[0]
    return place.get(written, place[node]) if isinstance(written, fx.Node) else place[node]


def _cost(node):
    """Arithmetic of an op, or as much as its traffic is worth."""
    values = [one.meta.get("val") for one in node.all_input_nodes]
    values.append(node.meta.get("val"))
    moved = sum(_bytes(one) or 0 for one in values)
    if _is_view(node):
        moved = 0
    return max(float(_flop(node)), FLOP_PER_BYTE * moved)


def _flop(node):
    def value(one):
        return one.meta["val"]

    try:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
        mode = next(
            one.fake_mode for one in torch.utils._pytree.tree_leaves((args, kwargs))
            if hasattr(one, "fake_mode")
        )  # fmt: skip
        with mode, FlopCounterMode(display=False) as counter:
            node.target(*args, **kwargs)
        return counter.get_total_flops()
    except (StopIteration, KeyError, RuntimeError, TypeError, AttributeError):
        return 0


def _is_view(node):
    if getattr(node.target, "__name__", "") == "getitem":
        return True
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.returns and schema.returns[0].alias_info)


def _is_in_place(node):
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.is_mutable)


def _bytes(value):
    """Bytes of a tensor; None for what a stage cannot send."""
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.numel()) * value.element_size()


def slowest(cost, ends):
    """Cost of the slowest stage, given the last op of each stage but the last."""
    edges = [-1, *ends, len(cost) - 1]
    return max(sum(cost[a + 1 : b + 1]) for a, b in zip(edges, edges[1:]))


def best_cut(cost, allowed, stages):
    """The least that the slowest of so many stages can cost, and the ends of stages.

    Args:
        cost: Of each op.
        allowed: Whether a stage may end after it.
        stages: How many.

    Returns:
        Cost and ends; None where there are too few places to cut.
    """
    before = [0.0]
    for one in cost:
        before.append(before[-1] + one)
    low, high, found = before[-1] / stages, before[-1] * (1 + 1e-9) + 1e-9, None
    if sum(allowed) < stages - 1:
        return None
    for _ in range(60):
        limit = (low + high) / 2 if found else high
        ends = _greedy(before, allowed, stages, limit)
        if ends is None:
            if not found:
                return None
            low = limit
        else:
            found, high = ends, limit
    return slowest(cost, found), found


def _greedy(before, allowed, stages, limit):
    """Ends of stages of which each is as long as a limit allows; None if that takes more."""
    ends, start, place, count = [], 0, -1, len(before) - 1
    for number in range(count):
        if before[number + 1] - before[start] > limit:
            if place < start:
                return None
            ends.append(place)
            start = place + 1
            if before[number + 1] - before[start] > limit:
                return None
        if allowed[number] and number < count - 1:
            place = number
    spare = [k for k in range(count - 1) if allowed[k] and k not in ends]
    while len(ends) < stages - 1 and spare:
        ends.append(spare.pop())
    return sorted(ends) if len(ends) == stages - 1 else None


def choose(found, stages):
    """Ends of stages: the fewest bytes among cuts whose slowest stage is nearly the best.

    Returns:
        Places in ``found.nodes``, or None where the graph has too few places to cut.
    """
    allowed = [one is not None for one in found.crossing]
    best = best_cut(found.cost, allowed, stages)
    if best is None:
        return None
    cost = torch.tensor(found.cost, dtype=torch.float64)
    before = torch.cat([cost.new_zeros(1), cost.cumsum(0)])
    sent = torch.tensor(
        [float("inf") if one is None else float(one) for one in found.crossing],
        dtype=torch.float64,
    )
    return _least_sent(before, sent, stages, best[0] * SLACK) or best[1]


def _least_sent(before, sent, stages, limit):
    """Ends of stages within a limit that send least; None if there are none."""
    count = len(sent)
    total = torch.where(before[1:] <= limit, sent, torch.inf)
    came = []
    for _ in range(stages - 2):
        step = torch.full((count,), torch.inf, dtype=sent.dtype)
        origin = torch.full((count,), -1, dtype=torch.int64)
        starts = torch.searchsorted(before[1:], before[1:] - limit).clamp_min(0)
        for end in range(1, count):
            window = total[int(starts[end]) : end]
            if len(window) and bool(torch.isfinite(sent[end])):
                least, at = window.min(0)
                step[end] = least + sent[end]
                origin[end] = int(starts[end]) + int(at)
        came.append(origin)
        total = step
    closes = (before[-1] - before[1:]) <= limit
    total = torch.where(closes, total, torch.inf)
    total[-1] = torch.inf
    if not bool(torch.isfinite(total).any()):
        return None
    ends = [int(total.argmin())]
    for origin in reversed(came):
        ends.append(int(origin[ends[-1]]))
    return sorted(ends)
