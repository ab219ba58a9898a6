"""Answers whose tokens are guessed: a pass that checks several of each, and passes that guess.

A guess costs what its model takes, one token after the other; a step then reads the guesses of each
request and the token before them at once, which looks back on its cache once (`with_queries`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.block_names import block_names, is_numbered, own_blocks
from paceline.model.graph.engine_features import OWN_BLOCK, Speculation
from paceline.model.graph.graph import Graph, Owner
from paceline.model.graph.rows import only_ops, with_queries
from paceline.model.graph.workload import Pass, Workload

#: Passes of who guesses: reading a prompt, and writing a guess.
DRAFT_PROMPT, DRAFT_TOKEN = "draft prefill", "draft decode"
_BESIDE = {"prefill": DRAFT_PROMPT, "decode": DRAFT_TOKEN}


def with_guesses(workload: Workload, speculation: Speculation, draft: Workload | None) -> Workload:
    """The workload with tokens guessed and checked.

    Args:
        workload: That answers.
        speculation: How tokens are guessed.
        draft: The model that guesses, where one is named.

    Raises:
        InvalidInputError: The model that guesses is not there, or cannot guess for it.
    """
    if workload.encodes or workload.beams > 1:
        raise InvalidInputError(
            f"`--speculate` says nothing here: guesses for {workload.title} are not modelled "
            + ("as it encodes" if workload.encodes else "where beams are searched"),
            hint="leave it out",
        )
    guesses = tuple(_guesses(workload, speculation, draft))
    return _guessing(workload, workload.passes, guesses, speculation)


def with_num_guesses(workload: Workload, tokens: int) -> Workload:
    """A workload whose tokens are guessed, with another number of them in a step, or with none."""
    plain, speculation = workload.unguessed, workload.speculation
    if not tokens or speculation is None:
        return replace(workload, passes=plain, speculation=None, unguessed=())
    guesses = [
        replace(one, repeats=float(tokens)) if one.name == DRAFT_TOKEN else one
        for one in workload.passes
        if one.name in _BESIDE.values()
    ]
    return _guessing(workload, plain, guesses, replace(speculation, tokens=tokens))


def _guessing(
    workload: Workload, plain: tuple[Pass, ...], guesses: Sequence[Pass], speculation: Speculation
) -> Workload:
    """The workload that checks the tokens of these guesses."""
    checks = [
        replace(one, graph=with_queries(one.graph, speculation.tokens + 1))
        if one.name == "decode"
        else one
        for one in plain
    ]
    return replace(workload, passes=(*checks, *guesses), speculation=speculation, unguessed=plain)


def _guesses(
    workload: Workload, speculation: Speculation, draft: Workload | None
) -> Iterator[Pass]:
    """Passes of who guesses; none of copies."""
    if speculation.draft == OWN_BLOCK:
        passes, name = workload.passes, OWN_BLOCK
        graphs = [(one.name, _last_block(one.graph)) for one in passes if one.name in _BESIDE]
    elif not speculation.model:
        return
    else:
        checked, name = _checked(workload, speculation, draft), speculation.model
        graphs = [(one.name, one.graph) for one in checked.passes]
    for role, graph in graphs:
        repeats = float(speculation.tokens) if role == "decode" else 1.0
        yield Pass(name=_BESIDE[role], graph=graph, repeats=repeats, network=name)


def _checked(workload: Workload, speculation: Speculation, draft: Workload | None) -> Workload:
    if draft is None:
        raise InvalidInputError(
            f"the model `{speculation.model}` that is to guess is not read here",
            hint="write draft=ngram or draft=mtp",
        )
    if not draft.generates or draft.encodes:
        raise InvalidInputError(
            f"{draft.title} writes no text, and cannot guess for {workload.title}",
            hint="name a small language model of the same vocabulary",
        )
    if draft.num_parameters >= workload.num_parameters:
        raise InvalidInputError(
            f"{draft.title} is no smaller than {workload.title}, for which it is to guess",
            hint="name a smaller model of the same vocabulary",
        )
    return draft


def _last_block(graph: Graph) -> Graph:
    """The last repeated block of a model with what lies outside all of them.

    Its embedding and its head are the model's own and take no memory again.
    """
    names = [name for name in block_names(graph) if is_numbered(name)]
    block = own_blocks(graph.modules, graph.ops.module.astype(np.int64), names)
    part = only_ops(graph, np.flatnonzero((block < 0) | (block == len(names) - 1)))
    within = only_ops(graph, np.flatnonzero(block == len(names) - 1))
    storages = graph.storages
    is_own = np.zeros(len(storages.owner), dtype=np.bool_)
    is_own[part.tensors.storage[np.append(part.ops.input_tensor, part.ops.output_tensor)]] = True
    in_block = np.zeros_like(is_own)
    in_block[graph.tensors.storage[within.ops.input_tensor]] = True
    is_own &= in_block | (storages.owner != Owner.PARAMETER)
    elements = np.where(is_own[:, None], part.storages.elements, 0.0)
    return replace(part, storages=replace(part.storages, elements=elements))
