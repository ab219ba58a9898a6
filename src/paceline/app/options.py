"""Options that several verbs share."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from paceline.app.command_line import Argument, Option, spelled_out
from paceline.app.output import Answer, Asked, Form
from paceline.errors import InvalidInputError

Model = Annotated[
    str,
    Argument(
        metavar="MODEL",
        help="A zoo name (resnet50, gpt2, …), timm:NAME, torchvision:NAME, hf:NAME (a class, a "
        "type, a known size or a config.json), keras:NAME, package.module:function, a model "
        "file (.keras, .pt2), or a file written by `paceline trace --save`; for plan also a goal "
        "file (.yaml).",
    ),
]
Task = Annotated[str, Option(help="train or infer.", default="train")]
AnswerTask = Annotated[
    str | None,
    Option(help="train or infer; without, what options, software and file are of, else train."),
]
Seq = Annotated[int | None, Option(help="Sequence length in tokens.")]
ImageSize = Annotated[
    int | None,
    Option(help="Side of the square input image in pixels, or of the cube in voxels."),
]
Optimizer = Annotated[str | None, Option(help="sgd, adam, adamw, adamw-8bit, adafactor, lion, …")]
Rewrite = Annotated[
    str,
    Option(
        metavar="SETTINGS",
        help="Run it another way: checkpointing=full, attention=math, LoRA adapters (lora_rank=8), "
        "freeze layers (frozen=except:fc), frozen_weights=int4, objective=dpo, "
        "offload=optimizer, accumulates=yes, optimizer_kernel=fused, …; several with commas.",
        default="",
    ),
]
Python = Annotated[
    str | None,
    Option(help="The Python that has the model's framework."),
]
Devices = Annotated[
    str | None,
    Option(metavar="A,B", help="Device or family; several with commas."),
]
Facts = Annotated[
    Sequence[Path],
    Option("File with your own devices, offers and machines; repeatable.", default=()),
]
Calibration = Annotated[
    Path | None,
    Option(metavar="FILE", help="Your own measurements, as `paceline calibrate` keeps them."),
]
AsOf = Annotated[str | None, Option(metavar="2026-11-20", help="Judge prices as of this day.")]
Precision = Annotated[str | None, Option(help="bf16, fp16, tf32, fp32, …")]
Compiler = Annotated[str, Option(help="eager or compiled.", default="eager")]
Store = Annotated[Path | None, Option(help="Folder of measurements; PACELINE_STORE.")]
On = Annotated[
    str | None,
    Option(metavar="ENGINE", help="Run it elsewhere: slurm, ray, ssh:HOST, kubernetes, skypilot."),
]
SetThere = Annotated[
    list[str] | None,
    Option("A fact of the launch file there; repeatable.", "KEY=VALUE", ("--set",)),
]
FolderThere = Annotated[
    str | None, Option(metavar="FOLDER", help="Where the command runs there.", flags=("--in",))
]
Runs = Annotated[Path | None, Option(metavar="FOLDER", help="Folder of all runs; PACELINE_RUNS.")]
Json = Annotated[bool, Option(help="Answer as JSON.", flags=("--json",), default=False)]
Format = Annotated[str, Option(help="text, md or json.", flags=("--format",), default="text")]
Output = Annotated[
    Path | None,
    Option(
        help="Write the answer to this file.",
        flags=(
            "--output",
            "-o",
        ),
    ),
]


#: How a model is traced.
TRACED = {"seq": Seq, "image_size": ImageSize, "optimizer": Optimizer, "python": Python}
#: What is known beside the catalogue and the built-in coefficients.
KNOWN = {"facts": Facts, "calibration": Calibration}


def form_of(name: str, *, is_json: bool) -> Form:
    """The form asked for by ``--format`` and ``--json``.

    Raises:
        UnknownNameError: No such form.
        InvalidInputError: Both are given, and differ.
    """
    from paceline.app.requests.words import read_word

    known: tuple[Form, ...] = get_args(Form)
    form = read_word(name, known, "format")
    if is_json and form == "md":
        raise InvalidInputError("`--json` and `--format md` are two formats", hint="give one")
    return "json" if is_json else form


def answers(verb: Callable[..., Answer]) -> Callable[..., Asked]:
    """Make a verb out of a function that returns what is to be said.

    The verb takes the function's parameters, and ``--format``, ``--json`` and ``--output``. An
    unknown format is refused before the function is called, which is left to the caller: so few
    frames lie between a command and its answer.
    """

    def said(
        *, form: Format = "text", is_json: Json = False, output: Output = None, **values: Any
    ) -> Asked:
        """The verb as it was asked, with the form of its answer."""
        wanted = form_of(form, is_json=is_json)
        return Asked(verb=verb, values=values, form=wanted, output=output)

    own, added = spelled_out(verb), inspect.signature(said, eval_str=True)
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own.parameters.values()]
    parameters += [p for p in added.parameters.values() if p.kind is p.KEYWORD_ONLY]
    functools.update_wrapper(said, verb)
    said.__dict__["__signature__"] = own.replace(parameters=parameters)
    return said


def check_above_zero(**given: float | None) -> None:
    """Refuse options that are no number above zero; None was not given.

    Raises:
        InvalidInputError: Zero, less, infinite or no number.

    >>> check_above_zero(devices=2, rate=None)
    """
    for name, value in given.items():
        if value is not None and not 0 < value < math.inf:
            raise InvalidInputError(
                f"`--{name.replace('_', '-')} {value:g}` cannot be",
                hint="give a number above zero, or leave it out",
            )


def whole_numbers(text: str | None, what: str) -> tuple[int, ...]:
    """Whole numbers above zero with commas between; none for None.

    Raises:
        InvalidInputError: Something else stands there.

    >>> whole_numbers("1,8, 32", "batch")
    (1, 8, 32)
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 10 and int(part) > 0 for part in parts):
        raise InvalidInputError(
            f"`{text}` is not a {what}", hint="write whole numbers from 1 to 9,999,999,999: 1,8,32"
        )
    return tuple(int(part) for part in parts)


def pairs(options: Sequence[str]) -> dict[str, str]:
    """Facts that were given as ``KEY=VALUE``.

    Raises:
        InvalidInputError: One sets nothing, or is given twice.
    """
    from paceline.document_keys import refuse_twice

    split = [option.partition("=") for option in options]
    for key, _, value in split:
        if not key or not value:
            raise InvalidInputError(f"`{key}` sets nothing", hint="write --set partition=gpu")
    refuse_twice("--set", [key for key, _, _ in split])
    return {key: value for key, _, value in split}
