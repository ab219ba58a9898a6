"""What a benchmark's rules and its submissions' scripts say where its result tables say nothing."""

from __future__ import annotations

from dataclasses import replace

from paceline.scoring.rows import Row
from paceline.scoring.tables import fitting_lines

_NOTE = "what it does not state is as its benchmark's submissions run it"


def with_benchmark_facts(row: Row) -> Row:
    """The row completed by the first line of ``data/benchmark_facts.csv`` that holds for it.

    A line may say which framework's kernels run, in what precision and layout, how long sequences
    are once padding is removed, and how devices share the model. A precision or a way to share
    that the row states stays.

    >>> from paceline.scoring.rows import parse_row
    >>> row = {"model": "resnet", "gpu": "A100", "input_data": "real (MLPerf)", "task": "train"}
    >>> with_benchmark_facts(parse_row(row)).precision
    'fp16-true'
    """
    if not row.task.startswith("train"):
        return row
    origin = f"{row.origin}; {row.framework}"
    asked = {"origin": origin, "model": row.model.strip(), "gpu": row.gpu}
    fact = next(fitting_lines("benchmark_facts.csv", asked), None)
    if fact is None:
        return row
    return replace(
        row,
        framework=fact["framework"] or row.framework,
        precision=row.precision or fact["precision"],
        flags="; ".join(filter(None, (fact["flags"], row.flags))),
        seq=float(fact["seq_len"]) if fact["seq_len"] else row.seq,
        parallelism=row.parallelism or fact["parallelism"],
        note="; ".join(filter(None, (row.note, _NOTE))),
    )
