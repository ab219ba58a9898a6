"""The step loop of an engine: continuous batching, chunked prompts, a cache that can fill up.

Between two events (a request comes, ends, or finds no room) equal steps follow one another, and the
loop takes them in one leap, so that its work grows with requests and not with tokens.

Sources:
    Yu et al., "Orca", OSDI 2022 (scheduling by step); Kwon et al., "PagedAttention", SOSP 2023
    (the cache limit; who came last is evicted, and reads its tokens again); Agrawal et al.,
    "Sarathi-Serve", OSDI 2024 (prompts in chunks beside the tokens of others).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from functools import lru_cache

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.simulation.queue.adapter_slots import AdapterSlots
from paceline.simulation.queue.load import Requests
from paceline.values import dataclass

#: Runs that are kept: plans whose limits differ ask for the same hundred.
_KEPT_RUNS = 256
#: Steps for which the cache must have room before another request is admitted: a block of it
#: (``block_size`` of vLLM).
_SPARE_STEPS = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """What steps of an engine take, by what is in them.

    A step that writes for n requests with C tokens of context in all, and reads r tokens of
    prompts, takes ``max(write_s[n], read_s[n + r]) + context_s[n] * C + draft_s[n]`` and the
    attention of the prompts; n = 0 and r = 0 leave their part out.

    Attributes:
        write_s: Of a step for n requests, all but what grows with their context, from n = 0 on.
        context_s: What a token of context adds to it.
        read_s: Reading so many tokens of prompts, all but their attention, from 0 on.
        attention_s: Attention of a prompt of p tokens takes this times p squared.
        draft_s: Guessing tokens for n requests, which the step then checks.
    """

    write_s: FloatArray
    context_s: FloatArray
    read_s: FloatArray
    attention_s: float = 0.0
    draft_s: FloatArray | float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How an engine forms its steps.

    Attributes:
        max_requests: Sequences at once.
        chunk_tokens: Tokens of a step at most, those that are written included.
        cache_tokens: Tokens that the cache holds; infinite where nothing is cached.
        mixes_prompts: Whether a step that reads prompts writes tokens too.
        reserves_answers: Whether a request is admitted only if its whole answer has room.
        host_s: Of the host for each sequence of a step.
        overlaps: Whether the host works beside the device.
        answers_whole: Whether a step answers its requests whole, however many tokens they have.
        beams: Answers that a search keeps of each request; they share its prompt.
        prefix_share: Of a prompt, what the cache holds before it comes: it is not read, but for
            its last token, and takes its place in the cache all the same.
        tokens_per_step: Written of each answer in a step, in the mean: more than one with guesses.
        tokens_checked: Read of each answer in a step: its guesses and the token before them.
        num_adapters: Of which each request asks for one; where fewer are held, a request waits
            until its own is there, or another one may go.
        held_adapters: On the device at once.
        load_s: Bringing one there.
    """

    max_requests: int
    chunk_tokens: int
    cache_tokens: float = math.inf
    mixes_prompts: bool = True
    reserves_answers: bool = False
    host_s: float = 0.0
    host_step_s: float = 0.0
    overlaps: bool = True
    answers_whole: bool = False
    beams: int = 1
    prefix_share: float = 0.0
    tokens_per_step: float = 1.0
    tokens_checked: int = 1
    num_adapters: int = 0
    held_adapters: int = 0
    load_s: float = 0.0

    def tokens_of(self, requests: Requests) -> IntArray:
        """Tokens of cache that each request holds at its end, (R,)."""
        return requests.prompt_tokens + self.beams * requests.output_tokens

    def check_room(self, requests: Requests) -> None:
        """Raise where a request is longer than the cache.

        Raises:
            InvalidInputError: One is.
        """
        longest = int(self.tokens_of(requests).max())
        if longest > self.cache_tokens:
            raise InvalidInputError(
                f"a request of {longest:,} tokens does not fit the cache of "
                f"{int(self.cache_tokens):,}",
                hint="take devices with more memory, more of them, or shorter requests",
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """When each request came, gave its first token and ended; (R,) each.

    Attributes:
        requests: What was asked.
        finish_s: When its last was.
        num_preempted: Evictions from the cache.
    """

    requests: Requests
    arrival_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    num_preempted: int


def run_steps(requests: Requests, times: StepTimes, batching: Batching) -> Timeline:
    """Serve the requests in the order of their arrival.

    Args:
        requests: R of them; NaN arrivals come one by one, each when another ends.
        times: Of the engine's steps, for as many sequences and tokens as ``batching`` allows.
        batching: How it forms steps.

    Raises:
        InvalidInputError: A request is longer than the cache.
    """
    batching.check_room(requests)
    if batching.answers_whole:
        requests = requests.whole
    return _timeline(_Run(requests, times, batching))


class _Run:
    """A run that is asked for, equal to one of the same numbers."""

    def __init__(self, requests: Requests, times: StepTimes, batching: Batching) -> None:
        self.requests, self.times, self.batching = requests, times, batching
        come = (requests.arrival_s, requests.prompt_tokens, requests.output_tokens)
        steps = (times.write_s, times.context_s, times.read_s, np.asarray(times.draft_s))
        numbers = tuple(array.tobytes() for array in (*come, *steps))
        self._key = (batching, times.attention_s, *numbers)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Run) and self._key == other._key


@lru_cache(maxsize=_KEPT_RUNS)
def _timeline(run: _Run) -> Timeline:
    loop, num_asked = _Loop(run.requests, run.times, run.batching), len(run.requests)
    while loop.num_done < num_asked:
        loop.step()
    arrival_s, first_s, finish_s = map(np.array, (loop.arrival_s, loop.first_s, loop.finish_s))
    for kept in (arrival_s, first_s, finish_s):
        kept.setflags(write=False)
    return Timeline(
        requests=run.requests,
        arrival_s=arrival_s,
        first_token_s=first_s,
        finish_s=finish_s,
        num_preempted=loop.num_preempted,
    )


class _Loop:
    """The state of a run; everything is a plain number, which is fastest one event at a time."""

    def __init__(self, requests: Requests, times: StepTimes, batching: Batching) -> None:
        self.arrival_s: list[float] = requests.arrival_s.tolist()
        self.prompt: list[int] = requests.prompt_tokens.tolist()
        self.output: list[int] = requests.output_tokens.tolist()
        self.first_s = [math.nan] * len(requests)
        self.finish_s = [math.nan] * len(requests)
        self.write_s: list[float] = times.write_s.tolist()
        self.context_s: list[float] = times.context_s.tolist()
        self.read_s: list[float] = times.read_s.tolist()
        self.attention_s = times.attention_s
        self.max_requests = batching.max_requests
        self.chunk_tokens = batching.chunk_tokens
        self.mixes_prompts = batching.mixes_prompts
        self.grows = not batching.reserves_answers
        self.cache_tokens = batching.cache_tokens
        self.spares = self.grows and math.isfinite(batching.cache_tokens)
        self.overlaps = batching.overlaps
        self.host_step_s, self.host_each_s = batching.host_step_s, batching.host_s
        self.beams = batching.beams
        self.rows = batching.beams * batching.tokens_checked
        self.draft_s: list[float] = np.broadcast_to(times.draft_s, times.write_s.shape).tolist()
        #: Of each prompt, the tokens that are in the cache before it comes.
        self.found: list[int] = np.minimum(
            np.floor(batching.prefix_share * requests.prompt_tokens).astype(np.int64),
            requests.prompt_tokens - 1,
        ).tolist()
        self.per_step = batching.tokens_per_step
        #: Who waits for an adapter; None where none does.
        self.slots: AdapterSlots | None = None
        if batching.held_adapters < batching.num_adapters:
            self.slots = AdapterSlots(
                len(requests), num_adapters=batching.num_adapters,
                num_held=batching.held_adapters, load_s=batching.load_s,
            )  # fmt: skip
        self.waiting: deque[int] | AdapterSlots = deque() if self.slots is None else self.slots
        self.now_s = 0.0
        self.num_steps = 0
        self.num_done = 0
        self.num_preempted = 0
        self.next_to_come = 0
        #: When the next request comes; infinite or not a number where that is not known yet.
        self.next_s = math.inf
        #: Tokens to be read before a request can write: its prompt, and after an eviction what it
        #: had written too.
        self.to_read: list[int] = list(self.prompt)
        #: Tokens of cache that a request takes from its admission on.
        self.reserved = self.to_read
        if batching.reserves_answers:
            self.reserved = batching.tokens_of(requests).tolist()
        self.written = [0] * len(requests)
        #: Prompts that are being read, in order, with the tokens already read.
        self.reading: deque[list[int]] = deque()
        #: Tokens that each sequence writes in a step, so that it ends with one.
        self.pace = [1.0] * len(requests)
        #: Those of all running sequences and their beams.
        self.growth = 0.0
        #: Running sequences by the step at which they end; who was evicted has another step.
        self.ends: list[tuple[int, int]] = []
        self.end_of: dict[int, int] = {}
        self.num_running = 0
        self.context = 0.0
        self.held = 0.0
        self.closed_next = int(np.isnan(requests.arrival_s).argmax())
        self.is_closed = bool(np.isnan(requests.arrival_s).any())
        self._come()

    def step(self) -> None:
        """One step that reads, or as many as follow one another without."""
        if not self.num_running and not self.reading and not self.waiting:
            self.now_s = max(self.now_s, self.arrival_s[self.next_to_come])
            self._come()
        # Most steps of a full engine: nobody is read, and nobody who waits may begin.
        may_read = self.reading or (self.waiting and self.num_running < self.max_requests)
        chunk = self._chunk() if may_read else None
        if chunk:
            self._read(chunk)
        else:
            self._write()
        if self.next_s <= self.now_s:
            self._come()

    def _come(self) -> None:
        """Requests that have come by now wait."""
        arrival_s, now_s, last = self.arrival_s, self.now_s, len(self.arrival_s)
        number = self.next_to_come
        while number < last and arrival_s[number] <= now_s:
            self.waiting.append(number)
            number += 1
        self.next_to_come = number
        self.next_s = arrival_s[number] if number < last else math.inf

    def _chunk(self) -> list[tuple[int, int, int]]:
        """Requests with the token from which they are read in the next step, and how many."""
        room, reading, to_read = self.chunk_tokens, self.reading, self.to_read
        if self.mixes_prompts:
            room -= self.num_running * self.rows
        chunk: list[tuple[int, int, int]] = []
        for number, start in reading:
            if room <= 0:
                return chunk
            count = min(to_read[number] - start, room)
            chunk.append((number, start, count))
            room -= count
        while room > 0 and (admitted := self._admitted()) is not None:
            start = self.found[admitted]
            reading.append([admitted, start])
            self.held += self.reserved[admitted]
            count = min(to_read[admitted] - start, room)
            chunk.append((admitted, start, count))
            room -= count
        return chunk

    def _admitted(self) -> int | None:
        """Who has waited longest of those whose adapter may be there, if the cache has room."""
        at_once, waiting = self.num_running + len(self.reading), self.waiting
        if at_once >= self.max_requests or not waiting:
            return None
        number = waiting[0] if isinstance(waiting, deque) else waiting.first()
        if number is None or (at_once and not self._has_room(number)):
            return None
        if isinstance(waiting, deque):
            waiting.popleft()
        else:
            self.now_s += waiting.take(number)
        return number

    def _has_room(self, number: int) -> bool:
        spare = 0.0
        if self.spares:
            rows = (self.num_running + 1) * self.beams
            spare = min(_SPARE_STEPS * rows, self.cache_tokens / 2.0)
        return self.held + self.reserved[number] + spare <= self.cache_tokens

    def _read(self, chunk: list[tuple[int, int, int]]) -> None:
        """A step that reads these tokens, and writes beside them where the engine mixes."""
        tokens, squares = 0, 0
        for _, start, count in chunk:
            tokens += count
            squares += count * (2 * start + count)
        mixes = self.mixes_prompts and self.num_running > 0
        num_written = self.num_running if mixes else 0
        step_s = self.read_s[min(tokens + num_written * self.rows, len(self.read_s) - 1)]
        if mixes:
            step_s = max(step_s, self.write_s[num_written])
            step_s += self.context_s[num_written] * self.context + self.draft_s[num_written]
        step_s += self.attention_s * squares
        self.now_s += self._hosted_s(step_s, num_written + len(chunk))
        if mixes:
            self._advance(1)
        reading, to_read = self.reading, self.to_read
        for number, start, count in chunk:
            if start + count == to_read[number]:
                reading.popleft()
                self._start(number)
            else:
                reading[0][1] += count
        if self.grows and self._overflows():
            self._evict()

    def _start(self, number: int) -> None:
        """A prompt is read, and its next token is written."""
        if math.isnan(self.first_s[number]):
            self.first_s[number] = self.now_s
        self.written[number] += 1
        left = self.output[number] - self.written[number]
        if left == 0:
            self.held -= self.reserved[number]
            if self.slots is not None:
                self.slots.give(number)
            self._finish(number)
            return
        steps = math.ceil(left / self.per_step)
        end = self.num_steps + steps
        self.pace[number] = left / steps
        self.growth += self.pace[number] * self.beams
        self.end_of[number] = end
        heapq.heappush(self.ends, (end, number))
        self.num_running += 1
        self.context += self.to_read[number] + self.beams
        self.held += self.grows * self.beams

    def _write(self) -> None:
        """Steps that only write, up to the next that is unlike."""
        count = self.ends[0][0] - self.num_steps
        while self.end_of.get(self.ends[0][1]) != self.ends[0][0]:
            heapq.heappop(self.ends)
            count = self.ends[0][0] - self.num_steps
        running = self.num_running
        if self.grows:
            free = self.cache_tokens - self.held
            if free < self.growth * count:
                count = max(int(free // self.growth), 1)
        context_s = self.context_s[running]
        first_s = self.write_s[running] + context_s * self.context + self.draft_s[running]
        growth_s = context_s * self.growth / 2.0
        leap_s = self._hosted_s(first_s + growth_s * (count - 1), running)
        gap_s = self.next_s - self.now_s
        is_open = self.slots is not None or not self.waiting
        if gap_s < count * leap_s and is_open and running < self.max_requests:
            soon = math.ceil(gap_s / self._hosted_s(first_s, running))
            soon_s = self._hosted_s(first_s + growth_s * (soon - 1), running)
            count = min(max(math.ceil(gap_s / soon_s), 1), count)
            leap_s = self._hosted_s(first_s + growth_s * (count - 1), running)
        self.now_s += count * leap_s
        self._advance(count)
        if self.grows and self._overflows():
            self._evict()

    def _hosted_s(self, step_s: float, num_requests: int) -> float:
        host_s = self.host_step_s + num_requests * self.host_each_s
        if not self.overlaps:
            return step_s + host_s
        return step_s if step_s >= host_s else host_s

    def _advance(self, count: int) -> None:
        """Every running sequence has written in so many steps more; who is done ends."""
        self.num_steps += count
        written = self.growth * count
        self.context += written
        if self.grows:
            self.held += written
        ends, num_steps = self.ends, self.num_steps
        while ends and ends[0][0] <= num_steps:
            end, number = heapq.heappop(ends)
            if self.end_of.get(number) != end:
                continue
            del self.end_of[number]
            self._leave(number, self.output[number])
            self._finish(number)

    def _leave(self, number: int, written: float) -> None:
        """A sequence with so many tokens of an answer runs no more."""
        tokens = self.prompt[number] + self.beams * written
        if self.slots is not None:
            self.slots.give(number)
        self.num_running -= 1
        self.growth = self.growth - self.pace[number] * self.beams if self.num_running else 0.0
        self.context -= tokens
        self.held -= tokens

    def _finish(self, number: int) -> None:
        self.finish_s[number] = self.now_s
        self.num_done += 1
        if self.is_closed and self.closed_next < len(self.arrival_s):
            self.arrival_s[self.closed_next] = self.now_s
            if self.closed_next == self.next_to_come:
                self.next_s = self.now_s
            self.closed_next += 1

    def _overflows(self) -> bool:
        """Whether the cache would in the next step."""
        return self.held + self.growth > self.cache_tokens

    def _evict(self) -> None:
        """Who came last leaves a cache that would overflow, and reads again."""
        while self.num_running > 1 and self._overflows():
            number, end = self.end_of.popitem()
            written = self.output[number] - (end - self.num_steps) * self.pace[number]
            self._leave(number, written)
            self.written[number] = int(written)
            self.to_read[number] = self.prompt[number] + self.beams * self.written[number]
            self.num_preempted += 1
            self.waiting.appendleft(number)
