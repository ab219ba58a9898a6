"""Write the registry of models: every name that is answered, with its entry and its parameters.

Usage: PYTHONPATH=tools python -m facts.models [ENTRY ...]

Names come from the zoo, the hub's sizes, networks that published measurements name, timm and
torchvision as they are installed here, and ``language_models.csv`` beside this file. What stands in
the table already is not counted again, but for the entries asked for. Needs torch, timm,
torchvision and transformers; allocates no weights.
"""

import csv
import io
import json
import lzma
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from networks import MODEL, READER, all_builders, subject, worker

from paceline.errors import PacelineError
from paceline.model.names.lookup import entry_of
from paceline.model.names.shipped_graphs import has_graph, is_built_here
from paceline.model.names.zoo_facts import zoo_facts

TABLE = MODEL / "data" / "models.csv"
LANGUAGE = Path(__file__).with_name("language_models.csv")
PUBLISHED = Path(__file__).parents[2] / "tests" / "unit" / "model" / "data" / "hf_published.csv"
NOT_COUNTED = "not counted"
_NUMBERS = "transformer:"
_NEEDS = {"hf": "transformers", "timm": "timm", "torchvision": "torchvision"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the registry, as text; without parameters where a model is refused."""

    name: str
    entry: str
    parameters: str
    needs: str
    source: str


def main(asked: Sequence[str]) -> None:
    """Write the table, with what it lacks and what is asked for counted."""
    known = {(row["name"], row["entry"]): row["parameters"] for row in _rows(TABLE)}
    kept = {key: count for key, count in known.items() if key[1] not in asked}
    rows: list[Row] = []
    by_entry: dict[str, Row] = {}
    for name, entry, source in named():
        rows.append(_row(name, entry, source, kept, by_entry))
        if not entry.startswith(_NUMBERS):
            by_entry.setdefault(entry, rows[-1])
    _write(rows)


def named() -> Iterator[tuple[str, str, str]]:
    """Name, entry and source of every model, in the order in which they are looked up."""
    for name, facts in zoo_facts().items():
        yield name, name, facts.title
    releases = {row["name"]: row["release"] for row in _rows(PUBLISHED)}
    for name in hub_names():
        yield name, f"hf:{name}", releases.get(name, "published configuration")
    for entry in published_entries():
        yield entry, entry, "published architecture"
    for library, name in library_names():
        yield f"{library}:{name}", f"{library}:{name}", f"{library} {version(library)}"
    for name in keras_names():
        yield f"keras:{name}", f"keras:{name}", "keras.applications"
    for row in _rows(LANGUAGE):
        yield row["name"], row["entry"], "published configuration"


def hub_names() -> list[str]:
    """Names of the sizes of ``hf_models.json``."""
    text = (READER / "torch_transformers" / "hf_models.json").read_text(encoding="utf-8")
    return list(json.loads(text)["models"])


def keras_names() -> list[str]:
    """Names of the applications of Keras whose settings ship."""
    with lzma.open(READER.parent / "keras" / "applications.json.xz") as file:
        return sorted(json.load(file)["models"])


def published_entries() -> list[str]:
    """Entries of networks that published measurements name, shipped as graphs or built here."""
    return sorted(entry for entry in (*all_builders(), *rebuilt_entries()) if ":" in entry)


def rebuilt_entries() -> list[str]:
    """Those that the trace worker builds, in other sizes too."""
    schemes = worker("torch_entries.subjects")._PUBLISHED.items()
    return [f"{scheme}:{name}" for scheme, home in schemes for name in worker(home)._MODELS]


def library_names() -> Iterator[tuple[str, str]]:
    """Library and name of every model of timm and torchvision, older names of timm included."""
    torchvision = worker("torch_networks.zoo").import_torchvision()
    timm = import_module("timm")
    older = sorted(import_module("timm.models._registry")._deprecated_models)
    yield from (("timm", name) for name in timm.list_models())
    yield from (("torchvision", name) for name in torchvision.models.list_models())
    yield from (("timm", name) for name in older if name not in timm.list_models())


def _row(
    name: str,
    entry: str,
    source: str,
    known: dict[tuple[str, str], str],
    by_entry: dict[str, Row],
) -> Row:
    """The line of a name; a language model that is another name of a model has that one's."""
    same = by_entry.get(_meant(name)) if entry.startswith(_NUMBERS) else None
    if same is not None:
        return Row(**{**asdict(same), "name": name, "entry": entry})
    needs = _NEEDS.get(entry.partition(":")[0], "torch")
    parameters = known[name, entry] if (name, entry) in known else _counted(entry)
    return Row(
        name=name,
        entry=entry,
        parameters=parameters,
        needs="nothing" if has_graph(entry) else needs,
        source=source if parameters else NOT_COUNTED,
    )


def _meant(name: str) -> str:
    try:
        return entry_of(name)
    except PacelineError:
        return ""


def _counted(entry: str) -> str:
    """Empty for a model that is refused: its kernels are a CPU's, or its library took it away."""
    subjects = worker("torch_entries.subjects")
    build = subjects.build_subject if is_built_here(entry) else subject
    if entry.startswith("keras:"):
        sys.path[:0] = [str(READER.parent / name) for name in ("keras", "rebuilt")]
        build = worker("keras_worker").subject
    try:
        model = build({"entry": entry, "task": "train"}).model
    except (subjects.RequestError, RuntimeError):
        return ""
    count = sum(parameter.numel() for parameter in model.parameters())
    print(entry, count, file=sys.stderr, flush=True)
    return str(count)


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def _write(rows: Sequence[Row]) -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        names = [field.name for field in fields(Row)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
