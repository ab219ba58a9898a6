"""How long the requests of a serving row are, and whose engine serves them."""

from __future__ import annotations

import re
from dataclasses import replace

from paceline.scoring.rows import Row
from paceline.scoring.tables import fitting_lines
from paceline.stack.engines import UNSTATED, EngineProfile, engine_in, engines, nearest_in
from paceline.values import dataclass

_INPUT = re.compile(r"\b(?:isl|input(?:[_ -]?(?:len(?:gth)?|tokens))?)\s*[=: ]\s*(\d+)", re.I)
_OUTPUT = re.compile(r"\b(?:osl|output(?:[_ -]?(?:len(?:gth)?|tokens))?)\s*[=: ]\s*(\d+)", re.I)
#: Serves what generates where a row names its runtime alone.
_RUNTIMES = ((re.compile(r"\btensorrt\b", re.IGNORECASE), "trtllm"),)
#: Serves in the place of one without a profile.
_ENGINE = "vllm 0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Mean lengths of the requests that an engine serves, as many at a time as the batch holds.

    Attributes:
        input_tokens: Of the prompt.
        output_tokens: Generated.
    """

    input_tokens: int
    output_tokens: int

    @property
    def mean_context(self) -> int:
        """Tokens that a decode step looks back on, halfway through a request."""
        return self.input_tokens + self.output_tokens // 2


def requests_of(row: Row) -> Requests | None:
    """Lengths as the row or its flags state them, one token where none is; None if they do not.

    >>> from paceline.scoring.rows import parse_row
    >>> requests_of(parse_row({"model": "m", "gpu": "g", "compiler_flags": "ISL=1000; OSL=200"}))
    Requests(input_tokens=1000, output_tokens=200)
    """
    if row.input_tokens is not None and row.output_tokens is not None:
        return Requests(
            input_tokens=max(round(row.input_tokens), 1),
            output_tokens=max(round(row.output_tokens), 1),
        )
    stated = _INPUT.search(row.flags), _OUTPUT.search(row.flags)
    if stated[0] and stated[1] and int(stated[1].group(1)) > 0:
        return Requests(input_tokens=int(stated[0].group(1)), output_tokens=int(stated[1].group(1)))
    return None


def engine_of(framework: str) -> EngineProfile | None:
    """The engine that a row names; of one whose release it does not state, the slowest habits.

    >>> engine_of("vLLM").overlaps, engine_of("vLLM 0.19").overlaps, engine_of("QServe")
    (False, True, None)
    >>> engine_of("MLPerf Inference v4.1; TensorRT 10.2.0").name, engine_of("Ollama 0.11").name
    ('trtllm', 'llamacpp')
    """
    engine = engine_in(framework) or _of_runtime(framework) or nearest_in(framework)
    if engine is None or engine.release is not None:
        return engine
    return replace(engine, release=UNSTATED)


def _of_runtime(framework: str) -> EngineProfile | None:
    """The engine that its maker builds on a runtime, whose releases count otherwise."""
    names = (name for spelling, name in _RUNTIMES if spelling.search(framework))
    return next((engines()[name] for name in names), None)


def is_loop(framework: str) -> bool:
    """Whether a row names a loop that calls a model's modules one by one, and no engine.

    >>> is_loop("transformers (pytorch)"), is_loop("AutoGPTQ"), is_loop("vLLM"), is_loop("QServe")
    (True, True, False, False)
    """
    named = fitting_lines("served_loops.csv", {"pattern": framework})
    return engine_of(framework) is None and any(named)


def profile_of(framework: str) -> str:
    """The engine that a row names, in the words of a job; its name and the release taken.

    >>> profile_of("vLLM"), profile_of("vLLM 0.19.1")
    ('vllm 0.0', 'vllm 0.19')
    """
    engine = engine_of(framework)
    if engine is None:
        return _ENGINE
    major, minor = engine.release or UNSTATED
    return f"{engine.name} {major}.{minor}"


def note_on_host(framework: str) -> str:
    """What is taken where a row names an engine without its release; empty where nothing is.

    >>> note_on_host("vLLM 0.19"), note_on_host("QServe")
    ('', '')
    """
    engine = engine_in(framework)
    if engine is None or engine.overlaps_since is None or engine.release is not None:
        return ""
    major, minor = engine.overlaps_since
    return (
        f"no release of {framework} is stated: taken to schedule between its steps, as before "
        f"{major}.{minor}"
    )
