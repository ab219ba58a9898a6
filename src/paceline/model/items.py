"""What one item of inference is: a picture, a clip, a recording, an answer, and not a pass.

A picture is its text encoded, as many steps of the denoiser as its pipeline takes, with and without
the prompt where guidance wants both, and its latents decoded. A recording is cut into windows, each
encoded and written down token by token. ``data/inference_items.csv`` says what is usual for which
model, with its source; what a user states goes before.

Sources:
    Ho and Salimans, "Classifier-Free Diffusion Guidance", arXiv 2207.12598 (two rows an item);
    Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", arXiv 2212.04356.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from paceline.errors import InvalidInputError
from paceline.model.graph.engine_features import (
    Adapters,
    Speculation,
    read_adapters,
    read_speculation,
)
from paceline.model.graph.rows import at_length, with_rows
from paceline.model.graph.store import read_workload
from paceline.model.graph.workload import Pass, SampleUnit, Workload
from paceline.model.names.shipped_graphs import shipped_file
from paceline.model.served_items import with_guesses
from paceline.model.targets import has_targets, with_target
from paceline.patterns import opening, pattern
from paceline.shipped import shipped_rows
from paceline.units import format_percent
from paceline.values import dataclass

_UNITS: dict[str, SampleUnit] = {
    "images": "images", "clips": "clips", "tokens": "tokens",
    "seconds of sound": "seconds of sound",
}  # fmt: skip
_SIDE = pattern(r"(\d+)×\1\b")
_SOUND = pattern(r"([\d.]+) s of sound(?: \([^)]*\))?")
#: What the trace says of a denoiser, which an item that is more than a step makes wrong.
_ONE_STEP = pattern(r" \(assumed: a sample is one denoising step[^)]*\)")
_HINT = "leave it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedItem:
    """What a user states of one item; None takes what is usual.

    Attributes:
        denoising_steps: Of a picture or clip.
        is_guided: Whether each step runs with and without the prompt.
        sound_s: Length of a recording.
        beams: Answers that a search keeps beside each other.
        prefix_share: Of a prompt, what an engine finds in its cache.
        adapters: Of which each request asks for one.
        speculation: How tokens are guessed.
        target_tokens: What an encoder–decoder is trained to write; as much as it reads by default.
    """

    denoising_steps: int | None = None
    is_guided: bool | None = None
    sound_s: float | None = None
    beams: int | None = None
    prefix_share: float | None = None
    adapters: Adapters | None = None
    speculation: Speculation | None = None
    target_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("denoising-steps", self.denoising_steps),
            ("sound", self.sound_s),
            ("beams", self.beams),
        ):
            if value is not None and not 0 < value < math.inf:
                raise InvalidInputError(
                    f"`--{name} {value:g}` cannot be", hint="give a number above zero"
                )
        if self.prefix_share is not None and not 0.0 <= self.prefix_share <= 1.0:
            raise InvalidInputError(
                f"a share of {self.prefix_share:g} of a prompt cannot be found in a cache",
                hint="give --prefix-share 0 to 1: 0.8 means that four of five tokens are found",
            )

    def __str__(self) -> str:
        """As a job's line has it; empty where nothing is stated.

        >>> str(StatedItem(denoising_steps=20, is_guided=False))
        'steps=20 guidance=no'
        """
        words = {
            "steps": self.denoising_steps,
            "guidance": None if self.is_guided is None else ("no", "yes")[self.is_guided],
            "sound": None if self.sound_s is None else f"{self.sound_s:g}",
            "beams": self.beams,
            "prefix": None if self.prefix_share is None else f"{self.prefix_share:g}",
            "adapters": self.adapters,
            "guesses": self.speculation,
            "target": self.target_tokens,
        }
        return " ".join(f"{name}={word}" for name, word in words.items() if word is not None)

    @classmethod
    def taken_from(cls, words: dict[str, str]) -> StatedItem:
        """Read what `str` writes; its words are taken out of ``words``.

        Raises:
            InvalidInputError: A word that is none.
        """
        steps, guidance = words.pop("steps", None), words.pop("guidance", None)
        sound, beams = words.pop("sound", None), words.pop("beams", None)
        prefix, adapters = words.pop("prefix", None), words.pop("adapters", None)
        guesses, target = words.pop("guesses", None), words.pop("target", None)
        try:
            return cls(
                denoising_steps=None if steps is None else int(steps),
                is_guided=None if guidance is None else {"yes": True, "no": False}[guidance],
                sound_s=None if sound is None else float(sound),
                beams=None if beams is None else int(beams),
                prefix_share=None if prefix is None else float(prefix),
                adapters=None if adapters is None else read_adapters(adapters),
                speculation=None if guesses is None else read_speculation(guesses),
                target_tokens=None if target is None else int(target),
            )
        except (ValueError, KeyError):
            raise InvalidInputError(
                "what is stated of one item cannot be read",
                hint="write it like `steps=20 guidance=no`, `sound=45` in seconds, `beams=5`, "
                "`prefix=0.8`",
            ) from None


def as_items(
    workload: Workload, stated: StatedItem | None = None, *, typed: str = "",
    draft: Workload | None = None,
) -> Workload:  # fmt: skip
    """The workload whose items are what people mean; in training but for its sound and targets.

    Args:
        workload: As it was traced.
        stated: Of its items.
        typed: What the user called it, which may name a distilled release.
        draft: The model that guesses its tokens, where one is stated.

    Raises:
        InvalidInputError: Something is stated that its items have not.
    """
    stated = stated or StatedItem()
    if workload.task == "infer":
        stated = replace(stated, target_tokens=None)
    row = _row(workload.name, typed) if workload.task == "infer" else None
    _check(workload, row, stated)
    if workload.task == "infer" and row is not None and row["steps"]:
        workload = _picture(workload, row, stated)
    elif workload.task == "infer":
        workload = _answered(workload, row, stated)
    else:
        workload = _heard(workload, stated.sound_s, _row(workload.name, typed))
    if workload.task == "train":
        workload = _targeted(workload, stated.target_tokens)
    workload = _served(workload, stated, draft)
    return replace(workload, stated_item=str(stated)) if str(stated) else workload


def _targeted(workload: Workload, num_tokens: int | None) -> Workload:
    """Training on targets of so many tokens; of a model that only reads or writes, as it is.

    Raises:
        InvalidInputError: A length is stated, and no target has one of its own.
    """
    takes = len(workload.passes) == 1 and has_targets(workload.passes[0].graph)
    if num_tokens is None:
        words = "targets as long as sources (change with --output-tokens)"
        return replace(workload, item=words) if takes else workload
    if not takes:
        raise InvalidInputError(
            f"`--output-tokens` says nothing here: {workload.title} is not trained to write a text "
            "of another length than it reads",
            hint="add --task infer where it answers; --seq is the length of texts in training",
        )
    step = workload.passes[0]
    return replace(
        workload,
        passes=(replace(step, graph=with_target(step.graph, num_tokens)),),
        item=f"targets of {num_tokens:,} tokens beside sources; tokens are those of sources",
    )


def _served(workload: Workload, stated: StatedItem, draft: Workload | None) -> Workload:
    """With what engines do for its requests beside reading and writing them."""
    share, words = stated.prefix_share, [workload.item]
    if share:
        workload = replace(workload, prefix_share=share)
        words.append(
            f"{format_percent(share)} of each prompt is found in the cache and not read; it takes "
            "its room all the same"
        )
    if stated.adapters is not None:
        workload = replace(workload, adapters=stated.adapters)
        words.append(stated.adapters.words)
    if stated.speculation is not None:
        workload = with_guesses(workload, stated.speculation, draft)
        words.append(stated.speculation.words)
    return replace(workload, item="; ".join(filter(None, words))) if words[1:] else workload


def denoises(workload: Workload) -> bool:
    """Whether an item of inference is several steps of a denoiser."""
    return workload.task == "infer" and is_denoiser(workload.name)


def is_denoiser(name: str) -> bool:
    """Whether a model, by its name in the catalogue, makes an item in several steps of denoising.

    >>> is_denoiser("published_images:flux1"), is_denoiser("resnet50")
    (True, False)
    """
    row = _row(name, "")
    return row is not None and bool(row["steps"])


def _row(name: str, typed: str) -> Mapping[str, str] | None:
    """The first line for a model, and for what it was called."""
    for row in shipped_rows("model", "inference_items.csv"):
        if (
            name.startswith(opening(row["entry"]))
            and re.fullmatch(row["entry"], name)
            and (not row["typed"] or re.fullmatch(row["typed"], typed, re.IGNORECASE))
        ):
            return row
    return None


def _check(workload: Workload, row: Mapping[str, str] | None, stated: StatedItem) -> None:
    is_inference = workload.task == "infer"
    denoises = is_inference and row is not None and bool(row["steps"])
    hears = bool(_window_s(workload, row or _row(workload.name, "")))
    writes = is_inference and workload.generates
    refusals = (
        ("--denoising-steps", stated.denoising_steps, denoises, "makes no pictures by denoising"),
        ("--guidance", stated.is_guided, denoises, "makes no pictures by denoising"),
        ("--sound", stated.sound_s, hears, "hears no sound"),
        ("--beams", stated.beams, writes, "writes no answer"),
        ("--prefix-share", stated.prefix_share, writes, "writes no answer"),
        ("--adapters", stated.adapters, writes, "writes no answer"),
        ("--speculate", stated.speculation, writes, "writes no answer"),
    )
    for option, value, applies, why in refusals:
        if value is not None and not applies:
            is_own = is_inference or option == "--sound"
            does = f"{workload.title} {why}" if is_own else "nothing is answered in training"
            raise InvalidInputError(f"`{option}` says nothing here: {does}", hint=_HINT)


def _heard(
    workload: Workload, stated_s: float | None, row: Mapping[str, str] | None
) -> Workload:  # fmt: skip
    """Training on recordings of a length: so many of the traced one, whole where windows are.

    Attention from one window to the next is left out: below a tenth of the operations of a
    transformer over sound at 50 frames a second and up to 30 s.
    """
    window_s = _window_s(workload, row)
    if not window_s:
        return workload
    sound_s, is_cut = stated_s or window_s, _is_cut(row)
    windows = _windows(sound_s, window_s, is_cut=is_cut)
    pieces = " in whole windows" if is_cut else ""
    words = f"a recording: {sound_s:g} s of sound{pieces} (change with --sound)"
    if stated_s is None:
        return replace(workload, item=words)
    heard = replace(workload, passes=tuple(_repeated(workload.passes, windows, 1)), item=words)
    return _of_length(heard, sound_s, windows)


def _picture(workload: Workload, row: Mapping[str, str], stated: StatedItem) -> Workload:
    """Text encoders, steps of the denoiser, and the decoder of latents."""
    steps = stated.denoising_steps or int(row["steps"])
    num_passes = steps + int(row["more_passes"] or 0)
    is_guided = row["guided"] == "yes" if stated.is_guided is None else stated.is_guided
    rows = 2.0 if is_guided else 1.0
    denoiser = workload.passes[0]
    graph = with_rows(denoiser.graph, rows / float(row["graph_rows"]))
    beside = (*_encoders(row["text"], rows), *_decoder(row["decoder"], workload))
    parts = [
        f"a {row['one']}: {_step_words(steps, num_passes)} {_guided_words(is_guided=is_guided)}",
        *(["its text encoded"] if row["text"] else []),
        "its latents decoded" if row["decoder"] else f"{row['left_out']} not counted",
    ]
    changes = "change with --denoising-steps, --guidance"
    around = _pipeline()
    return replace(
        workload,
        title=_ONE_STEP.sub("", workload.title),
        passes=(replace(denoiser, name="denoise", graph=graph, repeats=float(num_passes)), *beside),
        sample_unit=_UNITS[row["unit"]],
        item=f"{', '.join(parts)} ({changes})",
        beside_frac=float(around["beside_frac"]),
        beside_log_sigma=float(around["log_sigma"]),
    )


def _step_words(steps: int, num_passes: int) -> str:
    """Steps of an item, and passes of the denoiser where its scheduler takes more of them.

    >>> _step_words(20, 21), _step_words(1, 1)
    ('20 steps in 21 passes', '1 step')
    """
    passes = f" in {num_passes} passes" if num_passes != steps else ""
    return f"{steps} step{'s' * (steps > 1)}{passes}"


def _pipeline() -> Mapping[str, str]:
    """What is known of the code around the passes of a picture: diffusers', as most run them."""
    return shipped_rows("model", "pipelines.csv")[0]


def _guided_words(*, is_guided: bool) -> str:
    return "with guidance" if is_guided else "without guidance"


def _encoders(text: str, rows: float) -> Iterator[Pass]:
    """Each encoder of a prompt, and of the empty one beside it where guidance wants both."""
    for part in text.split():
        name, _, length = part.partition("@")
        graph = _part(f"text_{name}", None)
        graph = graph if not length else replace(graph, graph=at_length(graph.graph, float(length)))
        yield replace(graph, name=f"encode {name}", graph=with_rows(graph.graph, rows))


def _decoder(name: str, workload: Workload) -> Iterator[Pass]:
    """The decoder of latents, at the side of the model's pictures."""
    side = _SIDE.search(workload.input_description)
    if name:
        yield replace(_part(name, int(side[1]) if side else None), name="decode latents")


def _part(name: str, side: int | None) -> Pass:
    """The pass of a network beside the model, with its weights."""
    path = shipped_file(f"published_parts:{name}", "infer")
    assert path is not None, name
    return replace(read_workload(path, side=side).passes[0], network=name)


def _answered(workload: Workload, row: Mapping[str, str] | None, stated: StatedItem) -> Workload:
    """Recordings of a length, beams of a search, and the usual lengths of a request."""
    window_s = _window_s(workload, row)
    sound_s = stated.sound_s or window_s
    is_cut = _is_cut(row)
    windows = _windows(sound_s, window_s, is_cut=is_cut)
    beams = stated.beams or 1
    if windows != 1 or beams > 1:
        passes = tuple(_repeated(workload.passes, windows, beams))
        workload = replace(workload, passes=passes, beams=beams)
    if words := _answer_words(workload, sound_s, math.ceil(windows) if is_cut else 1, beams):
        workload = replace(workload, item=words)
    if window_s:
        workload = replace(workload, sample_unit="seconds of sound", samples_per_item=sound_s)
    if windows != 1 and not is_cut:
        workload = _of_length(workload, sound_s, windows)
    if row is None or not row["output"]:
        return workload
    return replace(
        workload,
        usual_prompt_tokens=int(row["prompt"]),
        usual_output_tokens=int(row["output"]),
    )


def _is_cut(row: Mapping[str, str] | None) -> bool:
    """Whether a model hears windows of one length, and no recording as it is."""
    return row is not None and bool(row["window_s"])


def _windows(sound_s: float, window_s: float, *, is_cut: bool) -> float:
    """How many times what was traced a recording is: whole windows where it is cut into them."""
    if not window_s:
        return 1.0
    return float(math.ceil(sound_s / window_s)) if is_cut else sound_s / window_s


def _of_length(workload: Workload, sound_s: float, windows: float) -> Workload:
    """Said to hear recordings of a length that its trace had not."""
    return replace(
        workload,
        input_description=_SOUND.sub(f"{sound_s:g} s of sound", workload.input_description),
        sample_bytes=workload.sample_bytes * windows,
    )


def _repeated(passes: Sequence[Pass], windows: float, beams: int) -> Iterator[Pass]:
    """Passes over all windows of a recording; of what is written, for each beam."""
    for one in passes:
        rows = windows * (beams if one.name == "decode" else 1)
        yield replace(one, graph=with_rows(one.graph, rows))


def _answer_words(workload: Workload, sound_s: float, windows: int, beams: int) -> str:
    """What an item is, where it is more than a pass or a request of one answer."""
    parts = []
    if sound_s:
        pieces = f" in {windows} windows" if windows > 1 else ""
        written = ", encoded and then written token by token" if workload.generates else ""
        parts = [
            f"a recording: {sound_s:g} s of sound{pieces}{written} (change with --sound)",
            "the real-time factor is 1 over the rate",
        ]
    if workload.encodes or beams > 1:
        kept = f"{beams} beams" if beams > 1 else "one beam"
        parts.append(f"answers are searched with {kept} (change with --beams)")
    return "; ".join(parts)


def _window_s(workload: Workload, row: Mapping[str, str] | None) -> float:
    """Seconds of sound that a pass hears; 0 where it hears none, or writes it."""
    if row is not None and row["window_s"]:
        return float(row["window_s"])
    found = _SOUND.match(workload.input_description)
    return float(found[1]) if found and not workload.name.startswith("published_speech") else 0.0
