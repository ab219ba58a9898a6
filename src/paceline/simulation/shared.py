"""Inference: replicas that do not talk, each of one device or of a few that share every layer.

Shapes: (num_rows,).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.model.graph.graph import FloatArray
from paceline.model.lowering import lower
from paceline.model.served_items import DRAFT_PROMPT, DRAFT_TOKEN
from paceline.parallelism.collectives.engine_sums import engine_sums_of
from paceline.parallelism.serving.answers import exchange_added
from paceline.parallelism.serving.batching import EnginePasses
from paceline.parallelism.serving.engine import PROMPT, TOKEN
from paceline.parallelism.serving.pipeline import handed_elements, hops_s
from paceline.parallelism.split.calls import Wires, calls_s
from paceline.parallelism.split.rank_graph import busiest_frac, calls_when_run
from paceline.parallelism.steps import Steps
from paceline.parallelism.uncertainty import sharing_log_sigma, step_log_sigma
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.simulation.cases import Cases
from paceline.simulation.rank import Lengths, RankPasses


def served(
    cases: Cases, passes: RankPasses, alone: Steps, asked: Lengths, *,
    calibration: Calibration | None,
) -> Steps:  # fmt: skip
    """Batches of replicas of what one rank does.

    Args:
        cases: Whose strategies are replicas of ranks that share a model.
        passes: What every rank runs.
        alone: A rank's own part, per row.
        asked: Of a rank, per row.
        calibration: Of the predictor; the built-in one if None.
    """
    parts = []
    for told, machines in passes.told_on([one.device for one in cases.machines]):
        rows = np.flatnonzero(np.isin(cases.machine, machines))
        of_rows = (cases.take(rows), told, alone.take(rows), asked.take(rows))
        parts.append((rows, _served_alike(*of_rows, calibration)))
    return Steps.joined(parts, len(cases))


def _served_alike(
    cases: Cases, passes: RankPasses, alone: Steps, asked: Lengths, calibration: Calibration | None
) -> Steps:
    """The same on devices whose steps hold as much."""
    exchanged = exchanged_s(cases, passes, asked, calibration)
    alone = replace(alone, prompt_joint_s=_joint_s(cases, passes, asked, calibration))
    first_s, token_s, whole_s = _added_s(passes, alone, asked, *exchanged)
    rounds = np.maximum(cases.microbatches / passes.in_flight, 1.0)
    added_s, alone_s = rounds * whole_s, rounds * alone.step_s
    device_link = cases.device_link
    shared = np.minimum(cases.replicas * passes.num_sharing, cases.devices_per_domain)
    sharing = sharing_log_sigma(device_link, shared, sent_s=added_s, step_s=alone_s + added_s)
    log_sigma = step_log_sigma(
        alone.device_log_sigma, alone_s=alone_s, exposed_s=added_s, sharing_log_sigma=sharing
    )
    return replace(
        alone,
        step_s=alone_s + added_s,
        tensor_s=added_s,
        per_token_s=alone.per_token_s + token_s,
        first_token_s=alone.first_token_s + first_s,
        prompt_exchange_s=exchanged[0],
        token_exchange_s=exchanged[1],
        sharing_log_sigma=sharing,
    ).with_spread(log_sigma, alone)


def _added_s(
    passes: RankPasses, alone: Steps, asked: Lengths, first_s: FloatArray, repeated_s: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What exchanging adds to the first token, to each token (or the batch), and to the whole."""
    if passes.num_sharing == 1:
        return first_s, first_s, first_s
    if passes.engine is not None:
        runs, rank = passes.runs(asked), EnginePasses.alone(alone)
        return exchange_added(runs, rank, passes.engine, prompt_s=first_s, token_s=repeated_s)
    if not passes.is_generation:
        added_s = _beside_host_s(passes, alone, first_s)
        return added_s, added_s, added_s
    return first_s, repeated_s, first_s + passes.decode_steps(asked.output) * repeated_s


def exchanged_s(
    cases: Cases, passes: RankPasses, asked: Lengths, calibration: Calibration | None
) -> tuple[FloatArray, FloatArray]:
    """Seconds of what ranks of a replica exchange: of the step or prompt, and of each token."""
    nothing = np.zeros(len(cases))
    if passes.num_sharing == 1:
        return nothing, nothing
    engine, wires = passes.engine, _wires(cases, passes)

    def seconds(name: str, length: FloatArray) -> FloatArray:
        """Seconds that messages of a named pass add at some lengths, (num_rows,)."""
        how, batch = passes.lowered[name].configuration, asked.batch
        prompts = np.ones_like(batch)
        calls = calls_when_run(passes.splits[name], how)
        if engine is not None and name in (PROMPT, DRAFT_PROMPT):
            runs = passes.runs(asked)
            batch = prompts = runs.prompts_together(engine.chunk_tokens)
        width = ELEMENT_BYTES[find_precision(how.precision).activation_dtype]
        points = Points(batch=batch, seq=length)
        busy_s = _hiding_s(cases, passes, name, points, calibration)
        each_s = calls_s(calls, points, wires, element_bytes=width, busy_s=busy_s)
        handed_s = _handed_s(cases, passes, name, points, width)
        return np.asarray((each_s.sum(axis=1) + handed_s) / prompts)

    if not passes.is_generation:
        first = passes.workload.passes[0]
        return first.repeats * seconds(first.name, asked.seq), nothing
    waiting_s = _waiting_s(cases, passes, asked, calibration) if engine is not None else nothing
    prompt = asked.prompt if engine is None else passes.runs(asked).read_tokens
    read_s = seconds(passes.workload.reads_by, prompt)
    written_s = seconds(TOKEN, asked.prompt) + waiting_s
    if DRAFT_TOKEN not in passes.lowered:
        return read_s, written_s
    guesses = next(p.repeats for p in passes.workload.passes if p.name == DRAFT_TOKEN)
    guessed_s = guesses * seconds(DRAFT_TOKEN, asked.prompt)
    return read_s + seconds(DRAFT_PROMPT, prompt), written_s + guessed_s


def _handed_s(
    cases: Cases, passes: RankPasses, name: str, points: Points, element_bytes: float
) -> FloatArray:
    """Seconds in which stages hand a batch on; nothing without."""
    if passes.in_flight == 1:
        return np.zeros(len(cases))
    graph = next(one.graph for one in passes.workload.passes if one.name == name)
    return hops_s(
        element_bytes * handed_elements(graph, points), passes.in_flight,
        stride=np.full(len(cases), passes.shape.num_ranks), per_domain=cases.devices_per_domain,
        device_link=cases.device_link, node_link=cases.node_link, senders=passes.shape.tensor,
    )  # fmt: skip


def _wires(cases: Cases, passes: RankPasses) -> Wires:
    """Over what ranks exchange, by whose software."""
    groups = passes.shape.groups(
        len(cases), cases.devices_per_domain, cases.device_link, cases.node_link
    )
    if passes.engine is None:
        return Wires(groups=groups)
    return Wires(
        groups=groups,
        engine_sums=engine_sums_of(groups["tensor"].device, kernel=passes.engine.all_reduce),
        routing=passes.splits[TOKEN].routing,
        sends_gathered=True,
    )


def _waiting_s(
    cases: Cases, passes: RankPasses, asked: Lengths, calibration: Calibration | None
) -> FloatArray:
    """Seconds in which ranks wait for the one whose experts more tokens happen to reach."""
    token = passes.splits[TOKEN]
    runs = passes.runs(asked)
    points = Points(batch=asked.batch, seq=runs.mean_context)
    more_frac = busiest_frac(token, points)
    if not more_frac.any():
        return np.zeros(len(cases))
    return np.asarray(more_frac * _experts_s(cases, passes, TOKEN, points, calibration))


def _experts_s(
    cases: Cases, passes: RankPasses, name: str, points: Points, calibration: Calibration | None
) -> FloatArray:
    """Device time of the experts of a rank in a pass."""
    rank = passes.splits[name]
    experts = lower(rank.only(rank.expert_products), passes.lowered[name].configuration)
    devices = DeviceTable.from_devices([one.device for one in cases.machines])
    predicted = predict_pass(
        experts, devices, points, calibration=calibration or builtin_calibration(),
        framework=passes.host,
    )  # fmt: skip
    return np.asarray(predicted.device_s[cases.machine, np.arange(len(cases))])


def _joint_s(
    cases: Cases, passes: RankPasses, asked: Lengths, calibration: Calibration | None
) -> FloatArray:
    """Of reading one prompt, what ranks that share experts do for each other: for all of them."""
    engine = passes.engine
    if engine is None or passes.shape.experts == 1 or not len(cases):
        return np.zeros(len(cases))
    runs = passes.runs(asked)
    together = runs.prompts_together(engine.chunk_tokens)
    points = Points(batch=together, seq=runs.read_tokens)
    calls = passes.splits[PROMPT].calls.along("experts")
    width = ELEMENT_BYTES[find_precision(passes.lowered[PROMPT].configuration.precision)
                          .activation_dtype]  # fmt: skip
    sent_s = calls_s(calls, points, _wires(cases, passes), element_bytes=width).sum(axis=1)
    products_s = _experts_s(cases, passes, PROMPT, points, calibration)
    return np.asarray((products_s + sent_s) / together)


def _hiding_s(
    cases: Cases, passes: RankPasses, name: str, points: Points, calibration: Calibration | None
) -> FloatArray | None:
    """Device time of the attention behind which each round trip of a ring hides, per call.

    None where no keys go round.
    """
    rank = passes.splits[name]
    num_rounds = int(rank.calls.goes_round.sum())
    if not num_rounds or not len(rank.attention):
        return None
    attention = lower(rank.only(rank.attention), passes.lowered[name].configuration)
    devices = DeviceTable.from_devices([one.device for one in cases.machines])
    predicted = predict_pass(
        attention, devices, points, calibration=calibration or builtin_calibration(),
        framework=passes.host,
    )  # fmt: skip
    each_s = predicted.device_s[cases.machine, np.arange(len(cases))] / num_rounds
    return np.tile(each_s[:, None], (1, len(rank.calls)))


def _beside_host_s(passes: RankPasses, alone: Steps, exchanged_s: FloatArray) -> FloatArray:
    """What exchanging adds to a pass whose host issues the calls, and runs ahead of the device.

    Each op that it issues besides takes it as long as those of the graph in the mean. Ranks that
    share layers alone wait for one another at each sum, and nothing hides it.
    """
    rank = next(iter(passes.splits.values()))
    if rank.shape.num_sharing == rank.shape.tensor:
        return exchanged_s
    num_ops = len(next(iter(passes.lowered.values())).costs.order)
    host_s = alone.host_s * (1.0 + rank.host_ops / num_ops)
    together_s = np.maximum(alone.device_s + exchanged_s, host_s)
    return np.asarray(np.maximum(together_s - alone.step_s, 0.0))
