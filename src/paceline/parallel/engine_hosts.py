"""What an inference engine's host does for each request: on its way, and in every step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from paceline.shipped import shipped_rows
from paceline.trace.graph import FloatArray

_RELEASE = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHost:
    """The host's share in serving.

    Attributes:
        engine: Its name.
        path_s: Way of a request from its client to the engine behind HTTP, and of its first token
            back.
        request_s: Per step, for each request that it writes a token for: scheduling, handing out,
            streaming; None where it is unknown.
        overlaps_since: First release that does so while the device works on the next step; None
            where it is unknown.
    """

    engine: str
    path_s: float
    request_s: float | None
    overlaps_since: tuple[int, int] | None

    def overlaps(self, framework: str) -> bool:
        """Whether the release that a text names works beside the device; not if it names none.

        >>> vllm = engine_host("vLLM")
        >>> [vllm.overlaps(name) for name in ("vLLM 0.19.0", "vllm/v0.9", "vLLM")]
        [True, False, False]
        """
        release = _release(framework)
        return bool(release and self.overlaps_since and release >= self.overlaps_since)


def engine_host(framework: str) -> EngineHost | None:
    """The engine that a text names; None where none of them was measured.

    >>> engine_host("TensorRT-LLM 1.0").engine, engine_host("my engine")
    ('trtllm', None)
    """
    found = (host for pattern, host in _known() if pattern.search(framework))
    return next(found, None)


def hosted_step_s(
    step_s: FloatArray, num_requests: FloatArray, request_s: float, *, overlaps: bool
) -> FloatArray:
    """Seconds from one step to the next with the host's work for each request.

    Beside the device the slower of both sets the pace; a host that waits for the tokens of a step
    before it schedules the next takes its time in between.

    Args:
        step_s: On the device.
        num_requests: That write a token.
        request_s: Of the host for each.
        overlaps: Whether it works beside the device.

    >>> [float(hosted_step_s(np.array(0.01), np.array(100.0), 5e-5, overlaps=b)) for b in (1, 0)]
    [0.01, 0.015]
    """
    host_s = num_requests * request_s
    paced: FloatArray = np.maximum(step_s, host_s) if overlaps else step_s + host_s
    return paced


@cache
def _known() -> tuple[tuple[re.Pattern[str], EngineHost], ...]:
    return tuple(
        (re.compile(row["pattern"], re.IGNORECASE), _host(row))
        for row in shipped_rows("parallel", "engine_hosts.csv")
    )


def _host(row: dict[str, str]) -> EngineHost:
    return EngineHost(
        engine=row["engine"],
        path_s=float(row["path_s"]),
        request_s=float(row["request_s"]) if row["request_s"] else None,
        overlaps_since=_release(row["overlaps_since"]),
    )


def _release(text: str) -> tuple[int, int] | None:
    found = _RELEASE.search(text)
    return (int(found.group(1)), int(found.group(2))) if found else None
