"""Goals and work from strings, as they are typed on a command line or in ``goal.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paceline.catalog.lookup import split_names
from paceline.document_keys import refuse_twice
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.planning.goal.goal import Goal, Work
from paceline.units import (
    format_count,
    format_duration,
    format_percent,
    format_usd,
    parse_count,
    parse_duration_s,
    parse_power_w,
    parse_usd,
)


def parse_goal(options: Mapping[str, str]) -> Goal:
    """A goal from command-line options, named as typed (``deadline``, ``max-devices`` …).

    Args:
        options: Text per option; ``pin`` holds ``KEY=VALUE`` pairs separated by commas.

    Raises:
        UnknownNameError: An option that is none of a goal's.
        InvalidInputError: A value that cannot be read.

    >>> parse_goal({"deadline": "24h", "budget": "50usd"}).deadline_s
    86400.0
    """
    return Goal(**_parse_fields(options, _GOAL_OPTIONS, kind="goal"))


def parse_work(options: Mapping[str, str]) -> Work:
    """Work from command-line options (``samples``, ``epochs``, ``tokens``, ``rps`` …).

    >>> parse_work({"samples": "1M", "epochs": "10"}).num_samples
    1000000
    """
    return Work(**_parse_fields(options, _WORK_OPTIONS, kind="work"))


def goal_option_names() -> tuple[str, ...]:
    """Options that `parse_goal` reads."""
    return tuple(_GOAL_OPTIONS)


def work_option_names() -> tuple[str, ...]:
    """Options that `parse_work` reads."""
    return tuple(_WORK_OPTIONS)


def format_goal(goal: Goal) -> dict[str, str]:
    """The options of `parse_goal` that differ from the defaults, as text for a reader."""
    default = Goal()
    return {
        option: _format_value(option, getattr(goal, name))
        for option, (name, _) in _GOAL_OPTIONS.items()
        if getattr(goal, name) != getattr(default, name)
    }


def _parse_fields(
    options: Mapping[str, str], known: Mapping[str, tuple[str, Callable[[str], Any]]], *, kind: str
) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for option, text in options.items():
        key = option.replace("_", "-").lstrip("-")
        if key not in known:
            raise UnknownNameError.from_name(
                f"{kind} option", option, known, command="paceline plan --help"
            )
        name, parse = known[key]
        parsed[name] = parse(text)
    return parsed


def _parse_names(text: str) -> tuple[str, ...]:
    names = split_names(text)
    if not names:
        raise InvalidInputError(f"`{text}` names nothing", hint="write names with commas between")
    return names


def _parse_kinds(text: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _parse_names(text))


def _parse_flag(text: str) -> bool:
    flags = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if text.lower() not in flags:
        raise InvalidInputError(f"`{text}` is neither yes nor no", hint="write yes or no")
    return flags[text.lower()]


def _parse_whole(text: str) -> int:
    count = parse_count(text)
    if not count.is_integer():
        raise InvalidInputError(f"`{text}` is not a whole number", hint="write it like 8, 4k, 1.5M")
    return int(count)


def _parse_spread(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"`{text}` is no spread", hint="write 0 for requests that are alike, 1 for chats"
        ) from None


def _parse_chance(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        chance = float(number)
    except ValueError:
        raise InvalidInputError(f"`{text}` is not a chance", hint="write 0.8 or 80%") from None
    return chance / 100 if text.strip().endswith("%") else chance


def _parse_pins(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in _parse_names(text)]
    for key, _, value in pairs:
        if not value:
            raise InvalidInputError(
                f"`{key}` pins nothing", hint="write --pin offer=lambda/gpu_1x_a100"
            )
    refuse_twice("--pin", [key.strip() for key, _, _ in pairs])
    return {key.strip(): value.strip() for key, _, value in pairs}


_GOAL_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "deadline": ("deadline_s", parse_duration_s),
    "budget": ("budget_usd", parse_usd),
    "power-limit": ("power_limit_w", parse_power_w),
    "cooling-limit": ("cooling_limit_w", parse_power_w),
    "latency": ("latency_s", parse_duration_s),
    "ttft": ("ttft_s", parse_duration_s),
    "percentile": ("percentile", _parse_whole),
    "throughput": ("min_samples_per_s", parse_count),
    "vendor": ("vendors", _parse_names),
    "cloud": ("clouds", _parse_names),
    "region": ("regions", _parse_names),
    "device-class": ("device_classes", _parse_names),
    "device": ("devices", _parse_names),
    "spot": ("allow_spot", _parse_flag),
    "datacenter": ("in_datacenter", _parse_flag),
    "max-devices": ("max_devices", _parse_whole),
    "confidence": ("confidence", _parse_chance),
    "memory-confidence": ("memory_confidence", _parse_chance),
    "objective": ("objective", str),
    "hour-value": ("hour_value_usd", parse_usd),
    "strategies": ("strategies", _parse_kinds),
    "ideal": ("is_ideal", _parse_flag),
    "precision": ("precisions", _parse_names),
    "compiler": ("compilers", _parse_names),
    "framework": ("framework", str.lower),
    "global-batch": ("global_batch", _parse_whole),
    "max-price-age-days": ("max_price_age_days", _parse_whole),
    "data": ("data", str),
    "rewrite": ("rewrite", str),
    "pin": ("pins", _parse_pins),
}

_WORK_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "samples": ("num_samples", _parse_whole),
    "epochs": ("num_epochs", parse_count),
    "tokens": ("num_tokens", _parse_whole),
    "rps": ("requests_per_s", parse_count),
    "prompt": ("prompt_tokens", _parse_whole),
    "output": ("output_tokens", _parse_whole),
    "concurrency": ("concurrency", _parse_whole),
    "denoising-steps": ("denoising_steps", _parse_whole),
    "guidance": ("is_guided", _parse_flag),
    "sound": ("sound_s", parse_duration_s),
    "beams": ("beams", _parse_whole),
    "spread": ("length_spread", _parse_spread),
}


def _format_value(option: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, tuple):
        return ",".join(_names(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    printers: Mapping[str, Callable[[Any], str]] = {
        "deadline": format_duration,
        "latency": format_duration,
        "ttft": format_duration,
        "budget": lambda usd: f"{format_usd(usd)} USD",
        "hour-value": lambda usd: f"{format_usd(usd)} USD",
        "power-limit": lambda watts: f"{watts:g} W",
        "cooling-limit": lambda watts: f"{watts:g} W",
        "throughput": lambda rate: f"{format_count(rate)}/s",
        "confidence": format_percent,
        "memory-confidence": format_percent,
    }
    return printers.get(option, str)(value)


def _names(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values]
