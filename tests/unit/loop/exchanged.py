"""Bytes that the ranks of a strategy hand to collectives in one optimizer step.

What is counted is what a program passes to the library: the tensor that is summed, the whole that
is gathered, the whole that is scattered, the message that is sent. How often it crosses a wire is
the library's business (`collectives.times`).
"""

from __future__ import annotations

from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.links import COLLECTIVES
from paceline.parallelism.fixed_strategy import rows_of, variant_of
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.rank_memory import Owned, rank_memory
from paceline.parallelism.schedule.layouts import layout
from paceline.parallelism.schedule.pipeline_timing import distinct_pipelines
from paceline.parallelism.split import split
from paceline.parallelism.split.calls_run import calls_that_run
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.prediction.prediction import Points
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedBytes:
    """Bytes handed to collectives in a step, by all ranks together.

    Attributes:
        all_reduce: Tensors that are summed.
        all_gather: Wholes that are gathered.
        reduce_scatter: Wholes that are scattered.
        send: Messages between stages.
    """

    all_reduce: float = 0.0
    all_gather: float = 0.0
    reduce_scatter: float = 0.0
    send: float = 0.0

    def __add__(self, other: ExchangedBytes) -> ExchangedBytes:
        """Both together."""
        return ExchangedBytes(
            all_reduce=self.all_reduce + other.all_reduce,
            all_gather=self.all_gather + other.all_gather,
            reduce_scatter=self.reduce_scatter + other.reduce_scatter,
            send=self.send + other.send,
        )


def exchanged_bytes(job: TracedJob, strategy: Strategy, *, microbatch: float) -> ExchangedBytes:
    """What the ranks of one strategy exchange in an optimizer step.

    Args:
        job: The training step and its cluster.
        strategy: With ``dp``, ``fsdp``, ``tp`` and ``pp`` axes.
        microbatch: Items per replica and microbatch.

    Raises:
        InvalidInputError: The model cannot be split so.
    """
    variant = variant_of(job, strategy, [microbatch])
    table = rows_of(strategy, 1)
    pipelines = distinct_pipelines(table, [variant], job.fabric)
    memory = rank_memory(table, [variant], pipelines, job.fabric)
    ranks_per_stage = strategy.num_ranks // strategy.size("pp")
    found = ExchangedBytes()
    for owned in memory.owned:
        found += _of_replicas(owned, strategy, ranks_per_stage)
    found += _of_tensor_ranks(job, strategy, microbatch)
    if strategy.size("pp") > 1:
        stages = strategy.size("pp") * strategy.schedule.num_chunks
        cut = layout(variant, stages, 0, is_even=job.cluster.profile.cut == "layers")
        passes = 2.0 * (stages - 1) * strategy.schedule.num_microbatches
        found += ExchangedBytes(send=cut.message_bytes * passes * ranks_per_stage)
    return found


def _of_replicas(owned: Owned, strategy: Strategy, ranks_per_stage: int) -> ExchangedBytes:
    """Gradients and weights of what several ranks hold alike, stages together."""
    copies, shards = int(owned.copies[0]), int(owned.shards[0])
    if copies == 1:
        return ExchangedBytes()
    sharding = "zero3" if strategy.size("fsdp") > 1 else strategy.sharding
    state, times = TrainingState(owned.state.values[:, 0]), strategy.schedule.num_microbatches
    reduced, gathered, renewed = (
        _whole(part) * ranks_per_stage for part in (state.reduced, state.gathered, state.renewed)
    )
    if sharding == "none":
        return ExchangedBytes(all_reduce=reduced)
    again = 2.0 * times * gathered if sharding == "zero3" else renewed
    rounds = 1.0 if sharding == "zero1" else float(times)
    over_replicas = reduced / shards if copies > shards else 0.0
    return ExchangedBytes(
        all_reduce=over_replicas, all_gather=again, reduce_scatter=rounds * reduced
    )


def _whole(part: FloatArray) -> float:
    return float(part.sum())


def _of_tensor_ranks(job: TracedJob, strategy: Strategy, microbatch: float) -> ExchangedBytes:
    """What ranks that share layers sum, of all microbatches."""
    if strategy.size("tp") == 1:
        return ExchangedBytes()
    how, rank = job.how(strategy), split(job.graph, job.group(strategy).shape)
    width = float(ELEMENT_BYTES[find_precision(how.precision).activation_dtype])
    messages = calls_that_run(rank.graph, how, rank.calls).messages(width)
    num_bytes = messages.bytes_at(Points.of([microbatch], seq=job.seq))[0] * messages.count
    times = strategy.num_ranks * strategy.schedule.num_microbatches / strategy.size("pp")
    found = {
        name: float(num_bytes[messages.name == row].sum()) * times
        for row, name in enumerate(COLLECTIVES)
    }
    return ExchangedBytes(
        all_reduce=found["all_reduce"], all_gather=found["all_gather"],
        reduce_scatter=found["reduce_scatter"],
    )  # fmt: skip
