"""Results of load tests that ``paceline deploy`` wrote, as rows that `calibrate` learns from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError
from paceline.reading import read_text

#: No result without its samples is larger.
_MAX_BYTES = 10_000_000
_MEASURED = ("completed", "duration", "mean_tpot_ms", "mean_e2el_ms")
_STATED = ("paceline_model", "gpu", "n_gpus", "replicas", "precision", "framework", "isl", "osl")
_HINT = "run the load-test.sh that `paceline deploy PLAN` wrote, and give its load-test.json"


def is_load_test(path: Path) -> bool:
    """Whether a file is such a result, by its ending."""
    return path.suffix == ".json"


def row_of_load_test(path: Path) -> dict[str, str]:
    """What ``vllm bench serve`` saw, as a row of `score` with its measured step.

    In the mean so many requests are in flight as come in the time of one (Little's law); a step is
    what lies between two tokens.

    Raises:
        InvalidInputError: Not such a result, or one of another load test, which does not say what
            was served.
    """
    result = _read(path)
    if lacking := [name for name in (*_MEASURED, *_STATED) if name not in result]:
        raise InvalidInputError(
            f"`{path}` is no result of a load test of a plan: it has no {', '.join(lacking[:3])}",
            hint=_HINT,
        )
    try:
        completed, duration_s, token_ms, answer_ms = (float(result[name]) for name in _MEASURED)
        replicas, ranks = int(result["replicas"]), int(result["n_gpus"])
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a figure of `{path}` is no number: {error}", hint=_HINT) from None
    if min(completed, duration_s, token_ms, answer_ms, replicas, ranks) <= 0:
        raise InvalidInputError(f"no request of `{path}` was answered", hint=_HINT)
    in_flight = completed / duration_s * answer_ms / 1e3 / replicas
    return {
        "model": str(result["paceline_model"]),
        "task": "infer",
        "framework": str(result["framework"]),
        "precision": str(result["precision"]),
        "gpu": str(result["gpu"]),
        "n_gpus": str(ranks),
        "parallelism": f"tp={ranks}" if ranks > 1 else "",
        "global_batch": f"{max(in_flight, 1.0):.6g}",
        "compiler_flags": f"ISL={result['isl']}; OSL={result['osl']}",
        "item": str(result.get("item", "")).replace("@", "="),
        "step_time_ms": f"{token_ms:.6g}",
    }


def _read(path: Path) -> dict[str, Any]:
    text = read_text(path, what="result", most_bytes=_MAX_BYTES, hint=_HINT)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"cannot read `{path}`: {error}", hint=_HINT) from None
    if not isinstance(found, dict):
        raise InvalidInputError(f"`{path}` is no result of a load test", hint=_HINT)
    return found
