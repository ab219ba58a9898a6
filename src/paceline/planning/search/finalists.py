"""The short list of a plan, whose memory was replayed allocation by allocation.

Every candidate fits by tier one of memory, sums with a margin. Those that are to be listed and of
which tier one leaves any doubt are run through the model of the allocator; what it refuses is no
candidate, and the list is made again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.errors import DoesNotFitError
from paceline.parallelism.replayed import can_replay, replayed_rank
from paceline.parallelism.serving.engine import TOKEN
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import chance_to_fit, job_at, place_of
from paceline.planning.search.selection import Selection, select
from paceline.simulation.job import software_of

#: From this chance of tier one on nothing is left to ask: it is a margin of three deviations.
_SURE = 1.0 - 1e-3


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
                hint="take a smaller batch, more devices, or `--rewrite checkpointing=block`"
                if search.question.is_training
                else "take a smaller batch, more devices, or a narrower --precision",
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
    """Whether all passes of one rank run through; what is not replayed does.

    Ranks that have stages hold several microbatches at once, two kinds of device share a batch, and
    an engine hands out its caches itself: these are not replayed. Nor is what surely fits.
    """
    if chance_to_fit(search, row) >= _SURE:
        return True
    job, place = job_at(search, row), search.candidates.place[row]
    is_own = place_of(search, row).parts or job.configuration.is_served
    if is_own or not can_replay(job.configuration, job.strategy):
        return True
    capacity_bytes, software = float(search.places.memory_bytes[place]), software_of(job)
    key = (job.configuration, str(job.strategy), job.batch, capacity_bytes)
    if key not in replayed:
        replayed[key] = all(
            replayed_rank(
                one.graph, job.configuration, job.strategy, batch=job.batch,
                seq=_most_tokens(search, one.name), capacity_bytes=capacity_bytes,
                wraps_each=software.wraps_each, flat_states=software.flat_states,
                starts_whole=software.starts_whole,
            ).fits
            for one in search.workload.passes
            if one.runs_on == "device"
        )  # fmt: skip
    return replayed[key]


def _most_tokens(search: Search, name: str) -> float:
    """The longest that a pass sees: a token at the end of its answer looks back on all before."""
    lengths = search.forecast.lengths
    if not search.workload.generates:
        return float(lengths.seq[0])
    return float(lengths.prompt[0] + (lengths.output[0] if name == TOKEN else 0.0))
