"""What software does by default, by its name and release: settings of a step.

Rows of ``data/trainers.csv`` and ``data/release_settings.csv``, each with its source. What a user
or a published row states wins over them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from paceline.errors import UnknownNameError
from paceline.shipped import shipped_rows
from paceline.stack.engines import USUAL_LOOP, EngineProfile, find_engine, is_engine
from paceline.stack.releases import release_year, shipped_release_dates
from paceline.values import dataclass

#: What stands between a name and its release.
_BEFORE_RELEASE = re.compile(r"\s*(?::|==)\s*(?=v?\d)")
#: A release, and what stands before it.
_RELEASE = re.compile(r"[\s:=]*v?\d[\w.]*")
#: Formats of a base beside which PEFT turns on checkpoints, and beside which it widens the rest.
_CHECKPOINTED, _CAST = ("int4", "int8", "gptq"), ("int4", "int8", "awq")
#: Year of a release that nobody names.
_NEWEST = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What a trainer does where nothing is stated.

    Attributes:
        name: Of its row.
        settings: As ``--rewrite`` reads them.
        dropout: Share that attention and residuals drop where a model says nothing.
        reports: What its own report of a peak counts: ``allocated`` or ``reserved``; empty where
            nobody knows.
        prepares: Whether it has PEFT prepare a base that bitsandbytes narrowed.
    """

    name: str
    settings: str
    dropout: float = 0
    reports: str = ""
    prepares: bool = False


@cache
def trainer_of(framework: str, *, trains_all: bool) -> Trainer:
    """The trainer of a framework; one without settings where none of that name is known.

    Args:
        framework: As written, with or without its release.
        trains_all: Whether every parameter is trained, rather than adapters beside a frozen model.

    >>> trainer_of("torchtune", trains_all=True).settings
    'training_format=pure,loss=chunked,results=dropped,peaks=derived'
    >>> trainer_of("PyTorch", trains_all=True)
    Trainer(name='another trainer', settings='', dropout=0, reports='', prepares=False)
    """
    if (row := _row_of(framework, trains_all=trains_all)) is not None:
        return Trainer(
            name=row["name"],
            settings=row["settings"],
            dropout=float(row["dropout"] or 0),
            reports=row["reports"],
            prepares=row["prepares"] == "yes",
        )
    return Trainer(name="another trainer", settings="")


def _row_of(framework: str, *, trains_all: bool) -> dict[str, str] | None:
    """The row of a trainer; its release may follow a colon, a space or nothing."""
    written = _BEFORE_RELEASE.sub(" ", framework)
    return next(
        (
            row
            for row in shipped_rows("stack", "trainers.csv")
            if (not row["needs"] or trains_all)
            and re.fullmatch(row["pattern"], written, re.IGNORECASE)
        ),
        None,
    )


def builds_hub_models(framework: str) -> bool:
    """Whether what is named runs the classes of Hugging Face's Transformers.

    >>> builds_hub_models("transformers"), builds_hub_models("torchtune")
    (True, False)
    """
    row = _row_of(framework, trains_all=True)
    return row is not None and row["models"] == "hub"


def loop_of(framework: str) -> EngineProfile:
    """The profile of that name; of a trainer, that of the loop beneath it.

    Raises:
        UnknownNameError: Neither an engine, a framework nor a trainer has that name.

    >>> loop_of("torchtune").name, loop_of("tensorflow").name
    ('torch', 'tensorflow')
    """
    is_trainer = not is_engine(framework) and trainer_of(framework, trains_all=True).settings
    return find_engine(USUAL_LOOP if is_trainer else framework)


@cache
def release_settings(framework: str) -> dict[str, str]:
    """What a release of a framework does in every step; of the newest where none is named.

    >>> release_settings("PyTorch"), release_settings("TensorFlow")
    ({'optimizer_kernel': 'foreach'}, {'optimizer_kernel': 'fused'})
    """
    year = release_year(framework) or _NEWEST
    row = next(
        row
        for row in shipped_rows("stack", "release_settings.csv")
        if re.fullmatch(row["framework"] or ".*", framework, re.IGNORECASE)
        and (not row["released_before"] or year < float(row["released_before"]))
    )
    return dict(pair.split("=") for pair in row["settings"].split(","))


def as_prepared(settings: Mapping[str, str], frozen_weights: str) -> dict[str, str]:
    """Settings beside a base of so few bits, as PEFT prepares it.

    `prepare_model_for_kbit_training` casts to FP32 what bitsandbytes and AWQ did not narrow:
    embeddings, norms and head. Norms hand on FP32, and so do layers that read it. It turns on
    checkpoints of each block beside bitsandbytes and GPTQ where nobody says otherwise.

    Args:
        settings: Of adapters, by name.
        frozen_weights: Format of the base.

    Source: huggingface/peft, utils/other.py (read 2026-11-29).

    >>> as_prepared({"training_format": "pure"}, "int4")
    {'checkpointing': 'block', 'training_format': 'autocast'}
    >>> as_prepared({"training_format": "pure"}, "gptq")
    {'checkpointing': 'block', 'training_format': 'pure'}
    """
    checkpoints = {"checkpointing": "block"} if frozen_weights in _CHECKPOINTED else {}
    casts = {"training_format": "autocast"} if frozen_weights in _CAST else {}
    return checkpoints | dict(settings) | casts


def usual_settings(
    framework: str | None, *, is_training: bool, trains_all: bool, frozen_weights: str = "same"
) -> dict[str, str]:
    """What a named software does where nothing is stated, by the name of the setting.

    Args:
        framework: As typed; None where nothing was named, which settles nothing.
        is_training: Whether it trains; trainers' habits are of training alone.
        trains_all: Whether every parameter is trained.
        frozen_weights: Format of what is not.

    Raises:
        UnknownNameError: A release that has no date.

    >>> usual_settings("torchtune", is_training=True, trains_all=True)["loss"]
    'chunked'
    """
    if framework is None or loop_of(framework).serves:
        return {}
    named = release_in(framework)
    settings = release_settings(framework) | ({"libraries": named} if named else {})
    if not is_training:
        return {name: one for name, one in settings.items() if name != "optimizer_kernel"}
    trainer = trainer_of(framework, trains_all=trains_all)
    habits = dict(pair.split("=") for pair in trainer.settings.split(",") if pair)
    if trains_all:
        habits.pop("adapter_inputs", None)
        return settings | habits
    return settings | (as_prepared(habits, frozen_weights) if trainer.prepares else habits)


def release_in(framework: str) -> str:
    """The release that a name states, as ``name==release``; empty where it states none.

    Releases of trainers have habits of their own, and no date.

    Raises:
        UnknownNameError: One that has neither.
    """
    if not re.search(r"\d\.\d", framework) or loop_of(framework).serves:
        return ""
    dates = shipped_release_dates()
    if named := dates.named_in(framework):
        return named[0]
    if _row_of(framework, trains_all=True) is not _row_of(
        _RELEASE.sub("", framework), trains_all=True
    ):
        return ""
    base = loop_of(framework).framework
    known = [name for name in dates.years if name.startswith(base)]
    raise UnknownNameError.from_name("release", framework, known)
