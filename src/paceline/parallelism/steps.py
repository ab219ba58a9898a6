"""Steps: what `simulate` answers, one columnar table, declared once.

Shapes: (num_rows,), or as `laid_out` lays rows; a figure that does not apply, or is not known, is
NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.errors import MissingFactError, PacelineError
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE, bound_bytes, quantile_bytes
from paceline.planfile import Interval
from paceline.prediction.prediction import Bound, Figures
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.values import dataclass

#: Communication that adds more than this share of a step is what holds it back.
_COMMUNICATION_BOUND_FRAC = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps(Figures):
    """One optimizer step, one batch of inference, or one batch of answers, per row.

    Its `Figures` are those of one microbatch on one rank; the peak of memory and ``log_sigma`` are
    the step's.

    Attributes:
        step_low_s: Lower end of the 80 % interval of ``step_s``.
        step_s: Median time.
        step_high_s: Upper end.
        exposed_s: Of ``step_s``, communication that nothing hides, and what a host with the
            optimizer adds.
        communication_s: All of the step's communication between replicas, hidden or not.
        tensor_s: Of ``step_s``, communication of ranks that share layers.
        bubble_s: Of ``step_s``, waiting in a pipeline.
        first_token_s: To the first token of an answer; NaN where none is generated.
        per_token_s: From one token to the next, else ``step_s``.
        prompt_s: Reading one prompt, of an engine that serves, without what ranks exchange; NaN of
            all others, as the next two.
        token_s: Its step that writes a token for every request, likewise.
        weights_s: Of that, all but what grows with the context.
        draft_s: Guessing the tokens that this step checks; zero where none are guessed.
        prompt_exchange_s: What ranks exchange in reading one prompt; zero without others.
        token_exchange_s: In a step that writes a token for every request, waiting included.
        prompt_joint_s: Of ``prompt_s``, what ranks with requests of their own do for all of them.
        communicator_bytes: Of the peak, what collectives hold beside the allocator; NaN without.
        last_memory_frac: Of live bytes on the fullest rank, what the last stage has; NaN without.
        parameter_bytes: Of it, parameters as a rank keeps them.
        optimizer_state_bytes: Of it, optimizer state with master weights.
        adapter_bytes: Of it, one adapter of those that an engine holds; zero without.
        device_log_sigma: Of ``log_sigma``, what comes of what a device computes.
        sharing_log_sigma: What comes of what ranks of one machine share.
        reasons: Why a row has no figure; None where it has.
    """

    step_low_s: FloatArray
    step_s: FloatArray
    step_high_s: FloatArray
    exposed_s: FloatArray
    communication_s: FloatArray
    tensor_s: FloatArray
    bubble_s: FloatArray
    first_token_s: FloatArray
    per_token_s: FloatArray
    prompt_s: FloatArray
    token_s: FloatArray
    weights_s: FloatArray
    draft_s: FloatArray
    prompt_exchange_s: FloatArray
    token_exchange_s: FloatArray
    prompt_joint_s: FloatArray
    communicator_bytes: FloatArray
    last_memory_frac: FloatArray
    parameter_bytes: FloatArray
    optimizer_state_bytes: FloatArray
    adapter_bytes: FloatArray
    device_log_sigma: FloatArray
    sharing_log_sigma: FloatArray
    reasons: npt.NDArray[np.object_]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.step_s)

    @classmethod
    def of(cls, num_rows: int, columns: Mapping[str, npt.ArrayLike]) -> Steps:
        """Rows of which some columns are known; the others are NaN.

        ``columns``: values by name, (num_rows,) or one for all.
        """
        kinds = {"bound": np.int8, "knowledge": np.int8, "reasons": np.object_}
        plain = {"bound": 0, "knowledge": 0, "reasons": None}
        unknown = np.broadcast_to(np.nan, num_rows)

        def column(name: str) -> npt.NDArray[Any]:
            if name not in columns and name not in plain:
                return unknown
            values = columns.get(name, plain.get(name))
            return np.broadcast_to(np.asarray(values, dtype=kinds.get(name, np.float64)), num_rows)

        return cls(**{field.name: column(field.name) for field in fields(cls)})

    @classmethod
    def refused(cls, num_rows: int, reason: PacelineError) -> Steps:
        """Rows that all lack a figure for one reason."""
        return cls.of(num_rows, {"reasons": np.full(num_rows, reason, dtype=object)})

    @classmethod
    def joined(cls, parts: Sequence[tuple[npt.NDArray[np.int64], Steps]], num_rows: int) -> Steps:
        """Parts in their places.

        Args:
            parts: Rows of the whole, and what stands there.
            num_rows: Of the whole.
        """
        if len(parts) == 1 and np.array_equal(parts[0][0], np.arange(num_rows)):
            return parts[0][1]
        unknown = cls.of(num_rows, {})
        columns = {field.name: np.array(getattr(unknown, field.name)) for field in fields(cls)}
        for rows, part in parts:
            for name, column in columns.items():
                column[rows] = getattr(part, name)
        return cls(**columns)

    def take(self, rows: npt.ArrayLike | tuple[IntArray, ...]) -> Steps:
        """Some rows, in this order; rows may repeat. Of rows laid out, an index per dimension."""
        return take_rows(self, rows)

    def laid_out(self, shape: tuple[int, ...]) -> Steps:
        """The same rows in several dimensions, the last fastest."""
        return Steps(
            **{field.name: getattr(self, field.name).reshape(shape) for field in fields(self)}
        )

    @property
    def lost_s(self) -> FloatArray:
        """Of ``step_s``, what ranks exchange with nothing to hide it, and wait for."""
        return self.exposed_s + self.tensor_s + self.bubble_s

    def lost_of(self, row: int) -> float:
        """`lost_s` of one row."""
        return float(self.exposed_s[row] + self.tensor_s[row] + self.bubble_s[row])

    def check(self, row: int = 0) -> None:
        """Raise why a row has no figure, if it has none.

        Raises:
            PacelineError: It has none.
        """
        reason = self.reasons[row]
        if reason is not None:
            raise reason

    def check_asked(self) -> None:
        """Raise a mistake in what was asked, if a row has one; a missing fact is none.

        Raises:
            PacelineError: A row has another reason.
        """
        for reason in self.reasons:
            if reason is not None and not isinstance(reason, MissingFactError):
                raise reason

    def check_known(self) -> None:
        """Raise why a row has no time, if one has none.

        Raises:
            PacelineError: A row has none.
        """
        for row in np.flatnonzero(np.isnan(self.step_s)).tolist():
            self.check(row)

    def step_interval_s(self, row: int = 0) -> Interval:
        """The 80 % interval of a row's step."""
        return Interval(
            low=float(self.step_low_s[row]), mid=float(self.step_s[row]),
            high=float(self.step_high_s[row]),
        )  # fmt: skip

    def memory_interval_bytes(self, row: int = 0) -> Interval:
        """Low, median and 95 % bound of a row's peak."""
        return Interval(
            low=float(self.memory_low_bytes[row]), mid=float(self.memory_mid_bytes[row]),
            high=float(self.memory_high_bytes[row]),
        )  # fmt: skip

    def needed_bytes(self, confidence: float = MEMORY_CONFIDENCE) -> FloatArray:
        """Memory that a device must have for each row to fit with such a chance."""
        return quantile_bytes(self.memory_mid_bytes, self.memory_high_bytes, confidence)

    def with_peak_spread(self, log_sigma: npt.ArrayLike) -> Steps:
        """The same, with peaks that spread so much at least.

        Args:
            log_sigma: `peak_log_sigma` of each row, or of all.
        """
        mid = self.memory_mid_bytes
        low = mid * np.exp(-Z_80 * np.asarray(log_sigma, dtype=np.float64))
        return replace(
            self,
            memory_low_bytes=np.minimum(self.memory_low_bytes, low),
            memory_high_bytes=bound_bytes(mid, self.memory_high_bytes, log_sigma),
        )

    def bound_word(self, row: int = 0) -> str:
        """What holds a row back, as a word: what ranks exchange, or what bounds a microbatch."""
        if self.waits_for_ranks(row):
            return "communication"
        return Bound(int(self.bound[row])).name.lower()

    def waits_for_ranks(self, row: int) -> bool:
        """Whether communication that nothing hides is what holds a row back."""
        return bool(self.lost_of(row) > _COMMUNICATION_BOUND_FRAC * self.step_s[row])

    def with_spread(self, log_sigma: FloatArray, alone: Steps | None = None) -> Steps:
        """The same, with the interval of a log-normal step time.

        Args:
            log_sigma: Of each row.
            alone: What the rows are made of; one to which nothing is added keeps its own interval,
                if it has one.
        """
        factor = np.exp(Z_80 * log_sigma)
        low_s, high_s = self.step_s / factor, self.step_s * factor
        if alone is not None:
            is_alone = (self.step_s == alone.step_s) & np.isfinite(alone.step_low_s)
            low_s = np.where(is_alone, alone.step_low_s, low_s)
            high_s = np.where(is_alone, alone.step_high_s, high_s)
        return replace(self, step_low_s=low_s, step_high_s=high_s, log_sigma=log_sigma)
