"""The short list of a plan, whose memory was replayed allocation by allocation.

Every candidate fits by tier one of memory, sums with a margin. Those that are to be listed are run
through the model of the allocator; what it refuses is no candidate, and the list is made again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.errors import DoesNotFitError
from paceline.parallelism.replayed import can_replay, replayed_rank
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import cell_of, place_of, strategy_of
from paceline.planning.search.selection import Selection, select


def select_replayed(search: Search) -> tuple[Search, Selection]:
    """The short list, and the search without candidates that the replay refuses.

    Raises:
        DoesNotFitError: It refuses all.
    """
    replayed: dict[tuple[object, ...], bool] = {}
    while True:
        selection = select(search)
        finalists = [*selection.listed, selection.runner_up, selection.next_offer]
        refused = [row for row in finalists if row is not None and not _fits(search, row, replayed)]
        if not refused:
            return search, selection
        search = without_refused(search, refused)
        if not search.is_feasible.any():
            raise DoesNotFitError(
                f"{search.workload.title} fits nowhere, once its allocations are replayed",
                hint="take a smaller batch, more devices, or `--rewrite checkpointing=block`",
            )


def without_refused(search: Search, rows: list[int]) -> Search:
    """The search with some candidates neither ranked nor feasible."""
    is_left = np.ones(len(search.candidates), dtype=np.bool_)
    is_left[rows] = False
    return replace(
        search,
        is_ranked=search.is_ranked & is_left,
        is_feasible=search.is_feasible & is_left,
        refused=search.refused | frozenset(rows),
    )


def _fits(search: Search, row: int, replayed: dict[tuple[object, ...], bool]) -> bool:
    """Whether a training step of one rank runs through; others are not replayed."""
    strategy, place = strategy_of(search, row), search.candidates.place[row]
    configuration = search.forecast.configurations[cell_of(search, row)[0]]
    is_step = search.workload.task == "train" and not place_of(search, row).parts
    if not is_step or not can_replay(configuration, strategy):
        return True
    batch = float(search.candidates.global_batch[row]) / strategy.num_parts
    capacity_bytes = float(search.places.memory_bytes[place])
    key = (configuration, str(strategy), batch, capacity_bytes)
    if key not in replayed:
        replayed[key] = all(
            replayed_rank(
                one.graph, configuration, strategy, batch=batch, seq=search.question.seq,
                capacity_bytes=capacity_bytes,
            ).fits
            for one in search.workload.passes
            if one.runs_on == "device"
        )  # fmt: skip
    return replayed[key]
