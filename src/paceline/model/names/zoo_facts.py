"""What the zoo says about each of its models, beside their graphs."""

from __future__ import annotations

from functools import cache

from paceline.model.graph.workload import ReferenceJob, SampleUnit, Task
from paceline.shipped import shipped_toml
from paceline.values import dataclass

_UNITS: dict[str, SampleUnit] = {
    "images": "images", "tokens": "tokens", "sequences": "sequences", "samples": "samples",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooFacts:
    """One model of the zoo.

    Attributes:
        title: As printed.
        sample_unit: What throughput counts.
        optimizer: Its recipe's.
        parameters: Published parameter count.
        max_global_batch: Largest batch its recipe, or a published variation of it, trains with.
        default_seq: Sequence length of the recipe; 1 where there is none.
        longest_seq: Rows of its learned table of positions; None where it has none.
        entry: What the worker is asked for.
        source: Architecture and where its parameter count is published.
        jobs: Reference job of each task.
        has_builder: Whether a worker can build it, at other sides of pictures too.
    """

    title: str
    sample_unit: SampleUnit
    optimizer: str
    parameters: int
    max_global_batch: int
    default_seq: int
    longest_seq: int | None
    entry: str
    source: str
    jobs: dict[Task, ReferenceJob]
    has_builder: bool = True


@cache
def zoo_facts() -> dict[str, ZooFacts]:
    """Every model of the zoo, by name."""
    tasks: tuple[Task, ...] = ("train", "infer")
    return {
        name: ZooFacts(
            title=row["title"],
            sample_unit=_UNITS[row["sample_unit"]],
            optimizer=row["optimizer"],
            parameters=row["parameters"],
            max_global_batch=row["max_global_batch"],
            default_seq=row.get("default_seq", 1),
            longest_seq=row.get("longest_seq"),
            entry=row.get("entry", name),
            source=row["source"],
            jobs={task: ReferenceJob(**row[task]) for task in tasks if task in row},
            has_builder=row.get("has_builder", True),
        )
        for name, row in shipped_toml("model", "zoo.toml").items()
    }
