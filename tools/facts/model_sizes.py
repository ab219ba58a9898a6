"""Count the parameters of every model that is answered by its name, and write them down.

Usage: PYTHONPATH=tools python -m facts.model_sizes [ENTRY ...]

With entries, only those are counted again. Needs the model libraries, and allocates no weights.
"""

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

TRACE = Path(__file__).parents[2] / "src" / "paceline" / "trace"
TABLE = TRACE / "data" / "model_sizes.csv"
PUBLISHED = Path(__file__).parents[2] / "tests" / "unit" / "trace" / "data" / "hf_published.csv"
sys.path.insert(0, str(TRACE / "workers"))


def main(asked: Sequence[str]) -> None:
    """Count the entries asked for, or all that the table lacks, and write the table in order."""
    known = {row["entry"]: row for row in _rows(TABLE)} if TABLE.exists() else {}
    sources = dict(_entries())
    wanted = asked or [entry for entry in sources if entry not in known]
    try:
        for entry in wanted:
            counted = _num_parameters(entry)
            print(entry, counted, file=sys.stderr, flush=True)
            if counted is not None:
                row = {"parameters": str(counted), "source": sources[entry]}
                known[entry] = {"entry": entry, **row}
    finally:
        _write([known[entry] for entry in sources if entry in known])


def _entries() -> Iterator[tuple[str, str]]:
    """Every entry with the source of its architecture."""
    releases = {row["name"]: row["release"] for row in _rows(PUBLISHED)}
    hub = json.loads((TRACE / "workers" / "hf_models.json").read_text(encoding="utf-8"))["models"]
    for name in hub:
        yield f"hf:{name}", releases.get(name, "published configuration")
    for row in _rows(TRACE / "data" / "published_names.csv"):
        yield f"{row['scheme']}:{row['name']}", "published architecture"
    for row in _rows(TRACE / "data" / "library_names.csv"):
        yield f"{row['library']}:{row['name']}", f"{row['library']} {version(row['library'])}"


def _num_parameters(entry: str) -> int | None:
    """None of a model that is refused: its kernels are a CPU's, or its library took it away."""
    subjects = import_module("torch_subjects")
    try:
        model = subjects.build_subject({"entry": entry}).model
    except (subjects.RequestError, RuntimeError):
        return None
    return int(sum(parameter.numel() for parameter in model.parameters()))


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def _write(rows: Sequence[dict[str, str]]) -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["entry", "parameters", "source"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
