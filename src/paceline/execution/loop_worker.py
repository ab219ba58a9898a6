"""Ask a program of the loop, in the Python that has torch, and read its one JSON answer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError, WorkerError
from paceline.model.reading.worker import find_python

_NUM_LAST_LINES = 5
_SOURCE = Path(__file__).resolve().parents[2]


def ask_loop(
    module: str,
    request: Mapping[str, Any],
    *,
    python: str | None = None,
    timeout_s: float | None = None,
    is_heard: bool = False,
) -> dict[str, Any]:
    """The answer of ``paceline.loop.MODULE``.

    Args:
        module: With a ``main`` that reads a request and prints an answer.
        request: For it.
        python: The Python that has torch; found if None.
        timeout_s: When to give up; never if None.
        is_heard: Whether what it says on the way goes to standard error.

    Raises:
        InvalidInputError: It refuses the request, or there is no Python with torch.
        WorkerError: It died or hung.
    """
    paths = [str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    command = [find_python(python), "-m", f"paceline.loop.{module}", json.dumps(request)]
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=timeout_s,
            stderr=None if is_heard else subprocess.PIPE, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkerError(f"`{module}` did not end: {error}", hint="try less of the data") from None
    if done.returncode or not done.stdout.startswith("{"):
        last = "\n".join((done.stderr or "").strip().splitlines()[-_NUM_LAST_LINES:])
        raise WorkerError(
            f"`{module}` ended with status {done.returncode}",
            hint="its last lines are above", details=last,
        )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise InvalidInputError(answer["error"], hint=answer["hint"])
    return answer
