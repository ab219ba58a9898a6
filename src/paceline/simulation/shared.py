"""Inference: replicas that do not talk, each of one device or of a few that share every layer.

Shapes: (num_rows,).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.parallel import RankGroup
from paceline.parallel.engine_sums import engine_sums_of
from paceline.parallel.serving.answers import exchange_added
from paceline.parallel.serving.batching import EnginePasses
from paceline.parallel.serving.engine import PROMPT, TOKEN
from paceline.parallel.split import Wires, calls_s, calls_when_run
from paceline.parallel.spread import sharing_log_sigma, step_log_sigma
from paceline.predict import Points
from paceline.simulation.cases import Cases
from paceline.simulation.rank import Lengths, RankPasses
from paceline.simulation.steps import Steps
from paceline.trace.graph import FloatArray


def served(cases: Cases, passes: RankPasses, alone: Steps, asked: Lengths, *, tensor: int) -> Steps:
    """Batches of replicas of what one rank does.

    Args:
        cases: Whose strategies are replicas of tensor groups.
        passes: What every rank runs.
        alone: A rank's own part, per row.
        asked: Of a rank, per row.
        tensor: Ranks of a replica.
    """
    first_s, token_s, whole_s = _added_s(cases, passes, alone, asked, tensor)
    added_s = cases.microbatches * whole_s
    alone_s = cases.microbatches * alone.step_s
    device_link = cases.device_link
    shared = np.minimum(cases.replicas * tensor, cases.devices_per_node)
    sharing = sharing_log_sigma(device_link, shared)
    log_sigma = step_log_sigma(
        alone.device_log_sigma, alone_s=alone_s, exposed_s=added_s, sharing_log_sigma=sharing
    )
    steps = replace(
        alone,
        step_s=alone_s + added_s,
        tensor_s=added_s,
        per_token_s=alone.per_token_s + token_s,
        first_token_s=alone.first_token_s + first_s,
        sharing_log_sigma=sharing,
    ).with_spread(log_sigma)
    is_alone = steps.step_s == alone.step_s
    return replace(
        steps,
        step_low_s=np.where(is_alone, alone.step_low_s, steps.step_low_s),
        step_high_s=np.where(is_alone, alone.step_high_s, steps.step_high_s),
    )


def _added_s(
    cases: Cases, passes: RankPasses, alone: Steps, asked: Lengths, tensor: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What exchanging adds to the first token, to each token (or the batch), and to the whole."""
    if tensor == 1:
        nothing = np.zeros(len(cases))
        return nothing, nothing, nothing
    first_s, repeated_s = _exchanged_s(cases, passes, asked, tensor)
    if passes.engine is not None:
        rank = EnginePasses(
            prompt_s=alone.prompt_s, step_s=alone.token_s, weights_s=alone.weights_s
        )
        return exchange_added(asked.runs, rank, passes.engine, prompt_s=first_s, token_s=repeated_s)
    if not passes.is_generation:
        return first_s, first_s, first_s
    return first_s, repeated_s, first_s + asked.output * repeated_s


def _exchanged_s(
    cases: Cases, passes: RankPasses, asked: Lengths, tensor: int
) -> tuple[FloatArray, FloatArray]:
    """Seconds of what ranks of a replica exchange: of the step or prompt, and of each token."""
    nothing = np.zeros(len(cases))
    engine = passes.engine
    group = RankGroup.of(
        np.full(len(cases), float(tensor)), cases.devices_per_node, cases.device_link,
        cases.node_link,
    )  # fmt: skip

    sums = None if engine is None else engine_sums_of(group.device, kernel=engine.all_reduce)
    wires = Wires(groups={"tensor": group}, engine_sums=sums)

    def seconds(name: str, length: FloatArray) -> FloatArray:
        how, batch = passes.lowered[name].configuration, asked.batch
        calls = calls_when_run(passes.splits[name], how)
        if engine is not None and name == PROMPT:
            batch = np.ones_like(batch)
        width = ELEMENT_BYTES[find_precision(how.precision).activation_dtype]
        each_s = calls_s(calls, Points(batch=batch, seq=length), wires, element_bytes=width)
        return np.asarray(each_s.sum(axis=1))

    if not passes.is_generation:
        return seconds(next(iter(passes.splits)), asked.seq), nothing
    return seconds(PROMPT, asked.prompt), seconds(TOKEN, asked.prompt)
