"""The three questions of ``paceline stack``: resolve, explain, check, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Literal

from paceline.errors import InvalidInputError, StackConflictError, UnknownNameError
from paceline.stack.names import find_gpu
from paceline.stack.resolver import (
    Combination,
    Conflict,
    Reason,
    Resolution,
    WayOut,
    applied_rules,
    resolve_facts,
)
from paceline.stack.rules import Facts
from paceline.stack.tables import Image, Tables, load_tables
from paceline.stack.versions import minor_of, same_line, version_key
from paceline.values import dataclass

#: Facts that are taken or assumed where the question does not state what they are taken from.
_TAKEN_FROM = {"system": "system", "platform": "gpu"}
#: Platforms that NVIDIA's driver runs.
_OF_DRIVERS = ("cuda", "jetson")
#: Stands for the newest release of a driver branch that was named without its minor.
_NEWEST_OF_BRANCH = "999"
_DEFAULT_SYSTEM = "linux-x86_64"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What a user states; None is free. Versions may be short: a line means all its patches.

    Attributes:
        gpu: Product name, compute capability or LLVM target; ``cpu`` for none.
        driver: Driver release; a branch alone means its newest release.
        cuda: CUDA release or line.
        rocm: ROCm release or line.
        python: Python minor version.
        framework: ``torch``, ``tensorflow``, ``jax``, or ``cuda`` for a toolkit image alone.
        release: Framework release or line.
        compiler: ``eager``, ``compiled``.
        system: ``linux-x86_64``, ``linux-aarch64``, ``windows``, ``macos``; None takes the one
            that the GPU usually sits in.
    """

    gpu: str | None = None
    driver: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    python: str | None = None
    framework: str | None = None
    release: str | None = None
    compiler: str | None = None
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an answer is what it is.

    Attributes:
        combination: The newest that works; None where nothing does.
        rules: Rules that bear on it, each with its source.
        conflicts: What contradicts what, where nothing works.
    """

    combination: Combination | None
    rules: tuple[Reason, ...]
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChoice:
    """A CUDA image for one wanted toolkit, or why there is none.

    Attributes:
        image: ``repository:tag``; None where none works.
        source: Where the tag was read.
        reasons: Rules that forbid it.
        ways_out: What works once one constraint is given up.
    """

    toolkit: str
    image: str | None
    source: str
    reasons: tuple[Reason, ...]
    ways_out: tuple[WayOut, ...] = ()


def resolve(constraints: Constraints, *, max_combinations: int = 6) -> Resolution:
    """The newest working combinations under ``constraints``, or the smallest contradictions.

    Raises:
        UnknownNameError: No such GPU or framework.
        InvalidInputError: A version or system that cannot be read.
    """
    answer = resolve_facts(facts_from(constraints), max_combinations=max_combinations)
    return replace(answer, conflicts=_restated(answer.conflicts, constraints))


def explain(constraints: Constraints) -> Explanation:
    """The answer of ``resolve`` with the rules behind its first combination."""
    facts = facts_from(constraints)
    answer = resolve_facts(facts, max_combinations=1)
    rules = tuple(
        Reason(rule=rule.name, text=rule.text, source=rule.source) for rule in applied_rules(facts)
    )
    first = answer.combinations[0] if answer.combinations else None
    conflicts = _restated(answer.conflicts, constraints)
    return Explanation(combination=first, rules=rules, conflicts=conflicts)


def check(constraints: Constraints) -> Combination:
    """The newest combination that ``constraints`` allow.

    Raises:
        StackConflictError: They contradict each other; the message names them and the rules.
    """
    answer = resolve(constraints, max_combinations=1)
    if answer.combinations:
        return answer.combinations[0]
    conflict = answer.conflicts[0]
    reasons = "; ".join(f"{reason.text} ({reason.source})" for reason in conflict.reasons)
    error = nothing_works(conflict)
    raise StackConflictError(f"{error}: {reasons}", hint=error.hint)


def nothing_works(conflict: Conflict) -> StackConflictError:
    """The failure of a question that a conflict answers, its reasons having been told."""
    named = " with ".join(f"{name} {value}" for name, value in conflict.constraints)
    rules = "`paceline stack explain` shows every rule"
    way = next(map(way_out_text, conflict.ways_out), "drop or change one of them")
    return StackConflictError(f"nothing works for {named}", hint=f"{way}; {rules}")


def way_out_text(way: WayOut) -> str:
    """What works without one constraint, as a sentence."""
    name, build, toolkit, python, driver, *_ = _row(way.combination)
    inside = ", ".join(filter(None, (build, toolkit)))
    return f"with another {way.dropped}: {name} ({inside}) on Python {python}, driver {driver}"


def no_image(choices: Sequence[ImageChoice]) -> StackConflictError | None:
    """The failure of a question for images that do not all exist; None where they do."""
    lacking = [choice for choice in choices if choice.image is None]
    if not lacking:
        return None
    named = ", ".join(choice.toolkit for choice in lacking)
    hint = "; ".join(map(image_way_text, lacking[0].ways_out))
    hint = hint or "ask for another CUDA line, or state another host with --gpu or --driver"
    return StackConflictError(f"no image of CUDA {named} starts there", hint=hint)


def image_way_text(way: WayOut) -> str:
    """What would start an image, or which image starts as things are."""
    least = way.combination.min_driver
    texts = {
        "driver": f"a driver from {least} on starts it",
        "cuda": f"CUDA {way.combination.platform_version} starts there",
        "gpu": "it starts on another GPU",
    }
    return texts.get(way.dropped, f"it starts with another {way.dropped}")


def images_side_by_side(
    toolkits: Sequence[str], constraints: Constraints
) -> tuple[ImageChoice, ...]:
    """For each wanted CUDA line, the newest image that the host of ``constraints`` can start.

    A driver runs every older toolkit, and each container brings its own, so they coexist.

    Args:
        toolkits: CUDA lines, from one place (a major) to three.
        constraints: The host: GPU and driver. Framework and toolkit are ignored.
    """
    return tuple(_image_choice(toolkit, constraints) for toolkit in toolkits)


def facts_from(constraints: Constraints) -> Facts:
    """Constraints as the rules read them.

    Raises:
        UnknownNameError: No such GPU, framework, compiler or system.
        InvalidInputError: CUDA and ROCm at once, or a version or system that cannot be read.
    """
    tables = load_tables()
    _check_versions(constraints)
    if constraints.cuda and constraints.rocm:
        raise InvalidInputError("CUDA and ROCm at once", hint="give `--cuda` or `--rocm`")
    _check_word("framework", constraints.framework, {b.framework for b in tables.builds})
    _check_word("compiler", constraints.compiler, {row.name for row in tables.compilers})
    systems = {system for kernels in tables.kernels for system in kernels.systems} | {"macos"}
    _check_word("system", constraints.system, systems)
    target = None if constraints.gpu is None else find_gpu(constraints.gpu)
    toolkit = constraints.cuda or constraints.rocm
    # A release of the driver is NVIDIA's: AMD's come with ROCm, and no table counts them.
    is_nvidia = constraints.cuda or constraints.driver
    platform = "rocm" if constraints.rocm else "cuda" if is_nvidia else None
    if constraints.driver and (target.platform if target else platform) not in _OF_DRIVERS:
        raise InvalidInputError(
            f"`--driver {constraints.driver}` is a release of NVIDIA's driver, and nothing asked "
            "for runs by one",
            hint="leave --driver out, or name an NVIDIA GPU or --cuda",
        )
    return Facts(
        platform=platform if target is None else target.platform,
        device=None if target is None else target.code,
        driver=_driver(constraints.driver),
        framework=constraints.framework,
        release=constraints.release,
        platform_version=toolkit,
        python=constraints.python,
        compiler=constraints.compiler,
        system=constraints.system or (_DEFAULT_SYSTEM if target is None else target.system),
    )


def combination_rows(resolution: Resolution) -> tuple[tuple[str, ...], ...]:
    """Cells of a table: framework, build, platform, Python, driver, cuDNN, status."""
    return tuple(_row(combination) for combination in resolution.combinations)


def _row(combination: Combination) -> tuple[str, ...]:
    toolkit = f"{combination.platform} {combination.platform_version or ''}".strip()
    driver = f"≥ {combination.min_driver}" if combination.min_driver else "any"
    if combination.below_driver:
        driver += f", < {combination.below_driver}"
    pythons = combination.pythons
    python = f"{pythons[-1]}–{pythons[0]}" if pythons else "any"
    name = f"{combination.framework} {combination.release}"
    cudnn = combination.cudnn or "–"
    return name, combination.tag, toolkit, python, driver, cudnn, combination.status


def _restated(conflicts: tuple[Conflict, ...], constraints: Constraints) -> tuple[Conflict, ...]:
    """Conflicts in the user's own words: what was typed, not what it was taken for or assumed."""
    toolkit = "cuda" if constraints.cuda else "rocm"
    words = {"device": "gpu", "platform": "gpu", "platform_version": toolkit}

    def in_words(name: str, value: str) -> tuple[str, str]:
        word = words.get(name, name)
        return word, str(getattr(constraints, word, None) or value)

    return tuple(
        replace(
            conflict,
            constraints=tuple(
                in_words(name, value)
                for name, value in conflict.constraints
                if getattr(constraints, _TAKEN_FROM.get(name, ""), "said") is not None
            ),
            ways_out=tuple(
                replace(way, dropped=words.get(way.dropped, way.dropped))
                for way in conflict.ways_out
            ),
        )
        for conflict in conflicts
    )


def _image_choice(toolkit: str, constraints: Constraints) -> ImageChoice:
    tables = load_tables()
    host = Constraints(
        gpu=constraints.gpu, driver=constraints.driver, framework="cuda", cuda=toolkit
    )
    answer = resolve(host, max_combinations=len(tables.builds))
    for combination in answer.combinations:
        image = _newest_image(combination.platform_version or "", tables)
        if image is not None:
            name = f"{image.repository}:{image.tag}"
            return ImageChoice(toolkit=toolkit, image=name, source=image.source, reasons=())
    reasons = (reason for conflict in answer.conflicts for reason in conflict.reasons)
    ways = (way for conflict in answer.conflicts for way in conflict.ways_out)
    return ImageChoice(
        toolkit=toolkit,
        image=None,
        source="",
        reasons=tuple(dict.fromkeys(reasons)),
        ways_out=tuple(dict.fromkeys(ways)),
    )


def _newest_image(toolkit: str, tables: Tables) -> Image | None:
    fitting = (
        image
        for image in tables.images
        if image.platform == "cuda"
        and not image.framework
        and same_line(minor_of(image.platform_version), toolkit)
    )
    return max(
        fitting,
        key=lambda image: (version_key(image.platform_version), version_key(image.ubuntu)),
        default=None,
    )


def _driver(text: str | None) -> str | None:
    return text if text is None or "." in text else f"{text}.{_NEWEST_OF_BRANCH}"


def _check_versions(constraints: Constraints) -> None:
    for field in fields(constraints):
        value = getattr(constraints, field.name)
        if value is not None and field.name in {"driver", "cuda", "rocm", "python", "release"}:
            version_key(value)


def _check_word(
    kind: Literal["framework", "compiler", "system"], word: str | None, known: set[str]
) -> None:
    if word is not None and word not in known:
        raise UnknownNameError.from_name(kind, word, sorted(known))
