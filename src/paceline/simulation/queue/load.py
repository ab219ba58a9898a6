"""Which requests come, and when: a Poisson rate, a closed loop, all at once, or a trace.

Shape legend: R requests.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from paceline.columns import take_rows
from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.values import dataclass

#: How requests come: at a mean rate, independent of one another; a new one as soon as one ends;
#: all at the start.
Arrivals = Literal["poisson", "closed", "at-once"]

#: Columns of a trace, and no others.
TRACE_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
#: More would take minutes.
MAX_TRACE_ROWS = 200_000
#: Requests that are simulated where they come by themselves: twenty of them are slower than p99.
NUM_REQUESTS = 2000
#: More requests a second come nowhere.
MAX_RATE_PER_S = 1e6

_TRACE_HINT = f"write a CSV file with the columns {', '.join(TRACE_COLUMNS)}, arrivals rising"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of requests: their mean, and how far they spread.

    Attributes:
        spread: Standard deviation over mean of a log-normal distribution; 0 makes all alike.
    """

    mean: float
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mean >= 1 and 0.0 <= self.spread < math.inf and self.mean < math.inf):
            raise InvalidInputError(
                f"requests of {self.mean:g} tokens with a spread of {self.spread:g} cannot be",
                hint="give at least one token, and a spread of zero or more",
            )

    def drawn(self, count: int, rng: np.random.Generator) -> IntArray:
        """So many lengths, each at least one token, (count,)."""
        if self.spread == 0.0:
            return np.full(count, round(self.mean), dtype=np.int64)
        sigma = math.sqrt(math.log1p(self.spread**2))
        drawn = self.mean * np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2.0)
        return np.maximum(np.rint(drawn), 1.0).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Requests in the order of their arrival, (R,) each.

    Attributes:
        arrival_s: When each comes; of a closed loop NaN but for the first ones, since a request
            comes when another ends.
        prompt_tokens: To be read.
        output_tokens: To be written, the first included.
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    @property
    def whole(self) -> Requests:
        """The same where reading one item is all of a request."""
        one = np.ones(len(self), dtype=np.int64)
        return replace(self, prompt_tokens=one, output_tokens=one)

    def share(self, part: int, num_parts: int) -> Requests:
        """Those that a router gives to one of several replicas in turn."""
        return take_rows(self, slice(part, None, num_parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of a service.

    Attributes:
        arrivals: How requests come.
        prompt: Tokens in.
        output: Tokens out.
        rate_per_s: Of Poisson arrivals.
        concurrency: Of a closed loop.
        num_requests: How many are simulated.
        seed: Of the draws; the same seed gives the same requests.
    """

    arrivals: Arrivals
    prompt: Lengths
    output: Lengths
    rate_per_s: float | None = None
    concurrency: int | None = None
    num_requests: int = NUM_REQUESTS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_requests < 1:
            raise InvalidInputError("a load has no requests", hint="simulate at least one")
        if self.arrivals == "poisson":
            check_rate(self.rate_per_s)
        if self.arrivals == "closed" and (self.concurrency or 0) < 1:
            raise InvalidInputError(
                "a closed loop keeps at least one request in flight", hint="write --concurrency 8"
            )

    def at_rate(self, rate_per_s: float) -> Load:
        """The same requests, coming at another mean rate."""
        return replace(self, arrivals="poisson", rate_per_s=rate_per_s)

    def requests(self) -> Requests:
        """The requests, drawn by the seed.

        Draws do not depend on the rate: at twice the rate the same requests come in half the time.
        """
        rng = np.random.default_rng(self.seed)
        count = self.num_requests
        gaps = rng.standard_exponential(count)
        prompt, output = self.prompt.drawn(count, rng), self.output.drawn(count, rng)
        return Requests(arrival_s=self._arrival_s(gaps), prompt_tokens=prompt, output_tokens=output)

    def _arrival_s(self, gaps: FloatArray) -> FloatArray:
        if self.rate_per_s is not None and self.arrivals == "poisson":
            return np.asarray(np.cumsum(gaps) / self.rate_per_s)
        arrival_s = np.zeros(len(gaps))
        if self.arrivals == "closed":
            arrival_s[self.concurrency :] = np.nan
        return arrival_s


def check_rate(rate_per_s: float | None) -> None:
    """Raise unless requests can come at such a rate.

    Raises:
        InvalidInputError: They cannot.
    """
    if rate_per_s is None or not 0.0 < rate_per_s <= MAX_RATE_PER_S:
        raise InvalidInputError(
            f"a rate of {rate_per_s:g} requests per second cannot be served"
            if rate_per_s is not None
            else "no rate of requests is given",
            hint=f"give a rate above zero and at most {MAX_RATE_PER_S:,.0f} requests per second",
        )


def read_trace(path: Path) -> Requests:
    """Requests of a trace file, times counted from its first.

    Raises:
        InvalidInputError: No such file, other columns, a negative gap, a request without tokens, or
            more rows than can be simulated.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            _check_columns(path, reader.fieldnames or ())
            rows = [_trace_row(path, number, row) for number, row in enumerate(reader, start=2)]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot read the trace `{path}`", hint=_TRACE_HINT) from error
    if not 1 <= len(rows) <= MAX_TRACE_ROWS:
        raise InvalidInputError(
            f"the trace `{path}` has {len(rows):,} requests",
            hint=f"give 1 to {MAX_TRACE_ROWS:,}; a stretch at the busiest hour says enough",
        )
    arrival_s, prompt, output = (np.array(column) for column in zip(*rows, strict=True))
    backwards = np.flatnonzero(np.diff(arrival_s) < 0.0)
    if len(backwards):
        line = int(backwards[0]) + 3
        raise InvalidInputError(
            f"line {line} of the trace `{path}` comes before the line above it",
            hint="sort the trace by arrival_s",
        )
    return Requests(
        arrival_s=arrival_s - arrival_s[0],
        prompt_tokens=prompt.astype(np.int64),
        output_tokens=output.astype(np.int64),
    )


def _check_columns(path: Path, names: object) -> None:
    found = tuple(names) if isinstance(names, (list, tuple)) else ()
    if sorted(found) != sorted(TRACE_COLUMNS):
        shown = ", ".join(found) or "nothing"
        raise InvalidInputError(
            f"the trace `{path}` has the columns {shown}",
            hint=_TRACE_HINT,
        )


def _trace_row(path: Path, number: int, row: Mapping[str, str]) -> tuple[float, float, float]:
    try:
        arrival_s, prompt, output = (float(row[name]) for name in TRACE_COLUMNS)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"line {number} of the trace `{path}` has no three numbers", hint=_TRACE_HINT
        ) from error
    if not (math.isfinite(arrival_s) and 1 <= prompt < math.inf and 1 <= output < math.inf):
        raise InvalidInputError(
            f"line {number} of the trace `{path}`: a request has at least one token in and one out",
            hint="leave empty requests out of the trace",
        )
    return arrival_s, prompt, output
