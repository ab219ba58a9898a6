"""The options that state a goal and an amount of work, said once for the command line and the API.

`paceline.plan.options` reads them; here stands what a user is told about them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, TypeVar

Verb = TypeVar("Verb", bound=Callable[..., None])


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalOption:
    """One option of a goal or of work.

    Attributes:
        name: As typed, without dashes.
        help: What a user is told.
        example: Value shown in the help; empty for a flag.
        key: Name that `paceline.plan.options` knows it by, where that differs.
        is_repeatable: Whether it may be given several times.
    """

    name: str
    help: str
    example: str = ""
    key: str = ""
    is_repeatable: bool = False

    @property
    def parameter(self) -> str:
        """Name as a Python parameter."""
        return self.name.replace("-", "_")


class PlanOptions(TypedDict, total=False):
    """Goal and work as keywords of the Python API, written as on the command line."""

    samples: str | float
    epochs: str | float
    tokens: str | float
    rps: str | float
    prompt_tokens: str | int
    output_tokens: str | int
    concurrency: str | int
    deadline: str
    budget: str | float
    latency: str
    ttft: str
    throughput: str | float
    power_limit: str
    vendor: str
    cloud: str
    region: str
    device_class: str
    device: str
    max_devices: str | int
    spot: bool
    datacenter: bool
    confidence: str | float
    memory_confidence: str | float
    objective: str
    precision: str
    compiler: str
    global_batch: str | int
    max_price_age_days: str | int
    pin: str | list[str]


WORK_OPTIONS = (
    GoalOption(name="samples", example="400k", help="Samples per epoch."),
    GoalOption(name="epochs", example="30", help="Passes over the samples."),
    GoalOption(name="tokens", example="10B", help="Tokens in all, for language models."),
    GoalOption(name="rps", example="20", help="Requests per second to be served."),
    GoalOption(
        name="prompt-tokens", key="prompt", example="512", help="Tokens in, of one request."
    ),
    GoalOption(
        name="output-tokens", key="output", example="128", help="Tokens out, of one request."
    ),
    GoalOption(name="concurrency", example="8", help="Requests in flight at once."),
)

GOAL_OPTIONS = (
    GoalOption(name="deadline", example="24h", help="Done within this time."),
    GoalOption(name="budget", example="50usd", help="Costs no more than this."),
    GoalOption(
        name="latency", example="50ms", help="Time per output token, or of one batch, at most."
    ),
    GoalOption(name="ttft", example="1s", help="Time to the first token, at most."),
    GoalOption(name="throughput", example="5k", help="Samples or tokens per second, at least."),
    GoalOption(
        name="power-limit", example="1.2kW", help="Rated power of all devices together, at most."
    ),
    GoalOption(name="vendor", example="NVIDIA,AMD", help="Accepted makers."),
    GoalOption(name="cloud", example="Lambda,own", help="Accepted clouds; own is your machines."),
    GoalOption(name="region", example="eu", help="Accepted regions, by their beginning."),
    GoalOption(
        name="device-class", example="datacenter", help="Accepted classes: consumer, edge, …"
    ),
    GoalOption(name="device", example="a100,4090", help="Accepted devices or families."),
    GoalOption(name="max-devices", example="8", help="Most devices in one plan."),
    GoalOption(name="spot", help="Let interruptible prices compete."),
    GoalOption(
        name="datacenter", help="Leave out cards whose driver licence forbids data centres."
    ),
    GoalOption(
        name="confidence", example="0.8", help="Chance at which time and money must be kept."
    ),
    GoalOption(name="memory-confidence", example="0.9", help="Chance at which the job must fit."),
    GoalOption(
        name="objective",
        example="cost",
        help="What is best: cost, time, energy, performance-per-usd.",
    ),
    GoalOption(name="precision", example="bf16", help="Accepted precisions."),
    GoalOption(name="compiler", example="eager", help="Accepted compilers."),
    GoalOption(name="global-batch", example="256", help="Items per optimizer step, exactly."),
    GoalOption(name="max-price-age-days", example="365", help="Older prices stand below the line."),
    GoalOption(
        name="pin",
        example="offer=NAME",
        help="Fix the offer, device, nodes, batch, precision, compiler or strategy; repeatable.",
        is_repeatable=True,
    ),
)


def option_texts(values: Mapping[str, Any], known: tuple[GoalOption, ...]) -> dict[str, str]:
    """The options of ``known`` that are set, as the text that `paceline.plan.options` reads.

    >>> option_texts({"deadline": "24h", "spot": True, "samples": 5}, GOAL_OPTIONS)
    {'deadline': '24h', 'spot': 'yes'}
    """
    texts = {o.key or o.name: _text(values.get(o.parameter)) for o in known}
    return {name: text for name, text in texts.items() if text is not None}


def takes(*options: GoalOption) -> Callable[[Verb], Verb]:
    """Give a verb that ends in ``**values`` a command-line option for each of ``options``."""

    def decorate(verb: Verb) -> Verb:
        signature = inspect.signature(verb, eval_str=True)
        kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        extra = [_parameter(option) for option in options]
        verb.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*(p.replace(kind=p.KEYWORD_ONLY) for p in kept), *extra]
        )
        return verb

    return decorate


def _parameter(option: GoalOption) -> inspect.Parameter:
    import typer

    flag = f"--{option.name}"
    if not option.example:
        annotation: Any = Annotated[bool, typer.Option(flag, help=option.help)]
        return _keyword(option.parameter, annotation, default=False)
    described = typer.Option(flag, metavar=option.example, help=option.help)
    if option.is_repeatable:
        return _keyword(option.parameter, Annotated[list[str] | None, described], default=None)
    return _keyword(option.parameter, Annotated[str | None, described], default=None)


def _keyword(name: str, annotation: Any, *, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _text(value: object) -> str | None:
    if value is None or value is False:
        return None
    if value is True:
        return "yes"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or None
    return str(value)
