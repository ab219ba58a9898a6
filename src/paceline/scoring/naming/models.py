"""Which model a published table means: its entry, and what its sources leave unsaid."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from paceline.errors import PacelineError, UnknownNameError
from paceline.model.names.denoisers import denoiser_of
from paceline.model.names.lookup import (
    entry_of,
    hub_row,
    library_entry,
    library_names,
    reading_of,
    zoo_entry,
)
from paceline.model.names.published_names import (
    entry_in,
    lines_of,
    without_data,
    without_target,
)
from paceline.model.names.registry import names_of, parameters_of
from paceline.model.names.spelling import plainer, without_owner
from paceline.scoring.rows import Row
from paceline.scoring.tables import read_table
from paceline.values import dataclass

#: Devices, a library or a size in brackets after a name.
_BRACKETS = re.compile(
    r"[\s_-]*\(\s*(?:(?P<size>\d+(?:\.\d+)?) ?(?P<unit>[bm])(?: (?:model|class|params|parameters))?"
    r"|\d+ ?[x×*] ?[\w -]+|timm)\s*\)$",
    re.IGNORECASE,
)
_SIZES = {"b": 1e9, "m": 1e6}
_SIZE = re.compile(r"\b(\d+(?:\.\d+)?)([bm])\b", re.IGNORECASE)
#: A stated size further from the known one is that of another model.
_SAME_SIZE_FRAC = 0.15
#: Beams that are stated settle what a refused model leaves open.
_BEAM = re.compile(r"\bbeam=\d")
#: Names under which timm publishes: lower case, digits and underscores, then perhaps its weights.
_TIMM_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")


#: How many layers there are, beside a name: ``Llama-3-70B (12 layers)``.
_LAYERS = re.compile(r"[ (,]+(\d{1,3})[ -]layers?\b\)?", re.IGNORECASE)

#: An entry as every verb takes it, and files of a model.
_SCHEME = re.compile(r"[A-Za-z_][\w.]*:\S+")
_FILE = re.compile(r"\.(npz|pt2|json)$")
#: Remarks on how tokens are routed, which no graph shows.
_ROUTING = re.compile(r" ?\((token ?drop|dropless|w/o? mtp)\)", re.IGNORECASE)


class UnresolvedRowError(Exception):
    """A row that cannot be predicted; the message says why. Never leaves this room."""


#: How a word for several models is refused.
_SEVERAL = "names no single model"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model as paceline knows it, with what is meant where a row is silent.

    Attributes:
        entry: Model as typed.
        seq: Sequence length; None takes the model's default.
        peak_seq: Length at which memory peaks, where lengths vary; None for ``seq``.
        image_size: Side of the input; None takes the model's default.
        has_own_size: The model's default stands even where the row has a side: its pictures are no
            squares of that side.
        train_units: What its sources count per training item, where neither items nor tokens.
        infer_units: The same for inference.
        is_seq_given: ``seq`` stands even where the row has a length: that column holds another
            number of such rows.
        num_passes: Passes that make one item: steps of denoising, of a search.
        log_sigma: What is left out of the graph widens the interval by that much.
        is_cut: The graph is a cut of an item, repeated by ``num_passes``: its memory is no item's.
        has_adapters: Adapters that a row names are part of the entry.
    """

    entry: str
    seq: int | None = None
    peak_seq: int | None = None
    image_size: int | None = None
    has_own_size: bool = False
    train_units: float | None = None
    infer_units: float | None = None
    is_seq_given: bool = False
    num_passes: float = 1.0
    log_sigma: float = 0.0
    is_cut: bool = False
    has_adapters: bool = False


def resolve_model(row: Row) -> PublishedModel:
    """The model of a row.

    Raises:
        UnresolvedRowError: No model of that name is known, or it is refused for that task.
    """
    row = replace(row, model=_ROUTING.sub("", row.model))
    if row.variant:
        named = replace(row, model=f"{row.model.strip()} {row.variant}")
        if found := _listed(named):
            return _with_steps(found, row)
    if not _BEAM.search(row.flags):
        _check_refused(row)
    name = row.model.strip()
    found = (
        (_denoiser(row) if row.seq else None) or _listed(row) or _entry(name) or _zoo_model(name)
        or _timm_exactly(name) or _hub_model(name) or _image_model(name) or _denoiser(row)
        or _as_asked(row) or _timm_model(name)
    )  # fmt: skip
    if found is None and (brackets := _BRACKETS.search(name)) is not None:
        found = _of_size(replace(row, model=name[: brackets.start()]), brackets)
    if found is None and (shorter := _LAYERS.sub("", name)) != name:
        found = _hub_model(shorter)
    found = found or _as_entry(row.geometry or None)
    if found is None:
        raise UnresolvedRowError(_unknown(name))
    return _with_steps(_with_layers(found, name), row)


def _unknown(name: str) -> str:
    """Why a name has no model, and which ones it may mean.

    >>> _unknown("ViT").partition(";")[0]
    '`ViT` names no single model (`vit_b_16`: the base size with patches of 16'
    """
    plain = without_data(name)
    try:
        entry_of(plain)
    except PacelineError as error:
        told = str(error)
        return told if _SEVERAL in told else f"no known model is called `{name}`"
    reading = reading_of(plain).partition(" is taken as ")[2]
    which = f"names no single model ({reading})" if reading else "is known in another size alone"
    return f"`{name}` {which}"


def _with_layers(found: PublishedModel, name: str) -> PublishedModel:
    """A known model of fewer or more layers, where its name says so many.

    >>> _with_layers(PublishedModel(entry="hf:deepseek-v3"), "DeepSeek-V3 (14 layers)").entry
    'hf:deepseek-v3,num_hidden_layers=14'
    """
    stated = _LAYERS.search(name)
    if stated is None:
        return found
    hub = names_of("hub").written.get(found.entry.removeprefix("hf:"))
    by_numbers = re.sub(r"^(transformer:layers=)\d+", rf"\g<1>{stated[1]}", found.entry)
    return replace(found, entry=f"{hub},num_hidden_layers={stated[1]}" if hub else by_numbers)


def _denoiser(row: Row) -> PublishedModel | None:
    """A family of diffusion in training: one denoising step, whose length is in patches.

    It comes first where a row has that length, or the pictures that it follows from.
    """
    family = denoiser_of(row.model) if row.task.startswith("train") else None
    if family is None:
        return None
    return PublishedModel(entry=family.entry, seq=family.num_patches(), has_own_size=True)


def _of_size(row: Row, brackets: re.Match[str]) -> PublishedModel | None:
    """The model of a row without what its name had in brackets, if a size there is its own."""
    try:
        found = resolve_model(row)
    except UnresolvedRowError:
        return None
    if brackets["size"] is None:
        return found
    stated = float(brackets["size"]) * _SIZES[brackets["unit"].lower()]
    known = parameters_of(found.entry)
    return found if known and abs(known / stated - 1.0) < _SAME_SIZE_FRAC else None


def _with_steps(found: PublishedModel, row: Row) -> PublishedModel:
    """With the number of passes that the row states, of a model that takes several."""
    if found.num_passes == 1.0 or not row.num_steps or row.num_steps < 1.0:
        return found
    return replace(found, num_passes=row.num_steps)


def _check_refused(row: Row) -> None:
    for known in read_table("refused_models.csv"):
        if (
            re.fullmatch(known["pattern"], row.model.strip(), re.IGNORECASE)
            and row.task.startswith(known["task"])
            and re.fullmatch(known["framework"] or ".*", row.framework, re.IGNORECASE)
            and re.fullmatch(known["unit"] or ".*", row.unit, re.IGNORECASE)
        ):
            raise UnresolvedRowError(f"`{row.model.strip()}`: {known['reason']}")


def _listed(row: Row) -> PublishedModel | None:
    matching = lines_of(row.model)
    return next((_published(*line) for line in matching if _is_meant(line[0], row)), None)


def _published(known: dict[str, str], match: re.Match[str]) -> PublishedModel:
    return PublishedModel(
        entry=entry_in(known, match),
        seq=_whole(known["seq"]),
        peak_seq=_whole(known["peak_seq"]),
        image_size=_whole(known["image_size"].removeprefix("own")),
        has_own_size=known["image_size"] == "own",
        train_units=_number(known["train_units"]),
        infer_units=_number(known["infer_units"]),
        is_seq_given=bool(known["seq_is"] and known["seq"]),
        num_passes=_number(known["passes"]) or 1.0,
        log_sigma=_number(known["log_sigma"]) or 0.0,
        is_cut=bool(known["is_cut"]),
        has_adapters=bool(known["has_adapters"]),
    )


def _entry(name: str) -> PublishedModel | None:
    """A model as `predict` takes it: an entry with its scheme, a file or the user's own code.

    >>> _entry("transformer:layers=2,hidden=64").entry, _entry("jobs.train:model").entry
    ('transformer:layers=2,hidden=64', 'jobs.train:model')
    >>> _entry("Llama 3: 8B") is None
    True
    """
    if not (_SCHEME.fullmatch(name) or _FILE.search(name)):
        return None
    try:
        return _as_entry(entry_of(name))
    except UnknownNameError:
        return None


def _zoo_model(name: str) -> PublishedModel | None:
    return _as_entry(zoo_entry(without_owner(without_data(name))))


def _timm_exactly(name: str) -> PublishedModel | None:
    """A model as timm writes it: ``sam2_hiera_tiny`` the trunk, ``sam2-hiera-tiny`` the hub's."""
    return _as_entry(f"timm:{name}" if name in _timm_names() else None)


@cache
def _timm_names() -> frozenset[str]:
    return frozenset(library_names("timm"))


def _image_model(name: str) -> PublishedModel | None:
    """A model of timm or torchvision; what stands before a slash may be part of its name."""
    whole = name.strip()
    written = (whole, without_owner(whole), without_data(without_owner(whole)))
    entry = next(filter(None, map(library_entry, written)), None)
    return _as_entry(entry)


def _as_asked(row: Row) -> PublishedModel | None:
    """The model that `predict` takes the name for, unless the row states another size.

    Where that is one of several that the name may mean, a size has to settle it.
    """
    name = without_data(row.model)
    try:
        entry = entry_of(name)
    except PacelineError:
        return None
    known, stated = parameters_of(entry), row.num_parameters or _size_in(name)
    is_same = known and stated and abs(known / stated - 1.0) < _SAME_SIZE_FRAC
    return _as_entry(entry) if is_same or not (stated or reading_of(name)) else None


def _size_in(name: str) -> float | None:
    """Parameters that a name states, such as 3.3e9 of ``NLLB-3.3B``."""
    found = _SIZE.search(name)
    return float(found[1]) * _SIZES[found[2].lower()] if found else None


def _is_meant(known: dict[str, str], row: Row) -> bool:
    """Whether a line is for this row: one name may mean two models by task, length or unit."""
    conditions = (
        ("task", row.task),
        ("framework", row.framework),
        ("flags", row.flags),
        ("unit", row.unit),
        ("seq_is", f"{row.seq:g}" if row.seq else ""),
    )
    return all(
        not known[column] or re.search(known[column], value, re.IGNORECASE)
        for column, value in conditions
    )


def _hub_model(name: str) -> PublishedModel | None:
    """A repository of a hub by its sizes: of the name as written, then with less decoration."""
    found = next(filter(None, map(hub_row, plainer(without_target(name)))), None)
    return PublishedModel(entry=found["entry"], seq=_whole(found["seq"])) if found else None


def _as_entry(entry: str | None) -> PublishedModel | None:
    return PublishedModel(entry=entry) if entry else None


def _timm_model(name: str) -> PublishedModel | None:
    """A name that timm may have in another release than the one whose names are listed."""
    plain = name.removeprefix("timm/").removeprefix("timm:")
    if _TIMM_NAME.fullmatch(plain) and re.search(r"[\d_]", plain):
        return PublishedModel(entry=f"timm:{plain.partition('.')[0]}")
    return None


def _whole(text: str) -> int | None:
    return int(float(text)) if text else None


def _number(text: str) -> float | None:
    return float(text) if text else None
