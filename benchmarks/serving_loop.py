"""A small continuous-batching loop in PyTorch, loaded with generated requests, against its queue.

A tiny language model is served on one CPU core: requests come by a Poisson process, each step reads
the prompts of who is admitted or writes a token for everybody. From the steps of the run at one
rate the tables of the simulation are fitted; the times that requests see at other rates are then
predicted and compared. The clock is the processor time of the loop, so that neighbours of a shared
machine do not count; arrivals come on that clock.

Run ``python benchmarks/serving_loop.py`` (torch is needed); it prints the table of
``benchmarks/serving_loop.md``.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import torch
from torch import nn

from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.load import Lengths, Load, Requests
from paceline.simulation.queue.percentiles import Served, summed_up
from paceline.simulation.queue.service import saturation
from paceline.simulation.queue.step_loop import Batching, StepTimes, Timeline, run_steps

_WIDTH, _HEADS, _LAYERS, _VOCABULARY = 192, 3, 2, 2048
_MAX_REQUESTS, _LONGEST = 16, 256
_PROMPT, _ANSWER, _SPREAD = 48, 24, 0.4


class Block(nn.Module):
    """Attention over a cache, and two products."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_in, self.norm_out = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.qkv, self.out = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(
        self, x: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        """x (B, T, W) at positions ``at`` (B, T) of slots (B,) in a cache (2, S, H, L, W / H)."""
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm_in(x)).chunk(3, dim=-1)
        split = (batch, tokens, _HEADS, _WIDTH // _HEADS)
        q, k, v = (part.view(split).transpose(1, 2) for part in (q, k, v))
        cache[0][slots[:, None], :, at] = k.transpose(1, 2)
        cache[1][slots[:, None], :, at] = v.transpose(1, 2)
        length = int(at.max()) + 1
        seen = torch.arange(length)[None, None, :] <= at[:, :, None]
        y = nn.functional.scaled_dot_product_attention(
            q, cache[0][slots, :, :length], cache[1][slots, :, :length], attn_mask=seen[:, None]
        )
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, _WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm_out(x))))


class Model(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(_VOCABULARY, _WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(_LAYERS))
        self.head = nn.Linear(_WIDTH, _VOCABULARY)

    @torch.inference_mode()
    def forward(
        self, tokens: torch.Tensor, caches: list[torch.Tensor], slots: torch.Tensor,
        at: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """The next token of each row."""
        x = self.embed(tokens)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, slots, at)
        return self.head(x[:, -1]).argmax(dim=-1)


@dataclass(frozen=True, slots=True)
class Step:
    """What was in a step, and how long it took."""

    num_written: int
    context: int
    num_read: int
    seconds: float


@dataclass(slots=True)
class Run:
    """When each request came, gave its first token and ended, and the steps between."""

    requests: Requests
    first_s: np.ndarray
    finish_s: np.ndarray
    steps: list[Step] = field(default_factory=list)

    def seen(self) -> Served:
        """What requests saw."""
        line = Timeline(
            requests=self.requests, arrival_s=self.requests.arrival_s, first_token_s=self.first_s,
            finish_s=self.finish_s, num_preempted=0,
        )  # fmt: skip
        return summed_up([line])


def serve(model: Model, requests: Requests) -> Run:
    """Serve the requests, a step at a time: a prompt, or a token for everybody."""
    count = len(requests)
    run = Run(requests, np.full(count, np.nan), np.full(count, np.nan))
    shape = (2, _MAX_REQUESTS, _HEADS, _LONGEST, _WIDTH // _HEADS)
    caches = [torch.zeros(shape) for _ in range(_LAYERS)]
    slots: dict[int, int] = {}
    length, left = np.zeros(_MAX_REQUESTS, int), np.zeros(_MAX_REQUESTS, int)
    last = torch.zeros(_MAX_REQUESTS, dtype=torch.long)
    now_s, coming = 0.0, 0
    while np.isnan(run.finish_s).any():
        if not slots and requests.arrival_s[coming] > now_s:
            now_s = float(requests.arrival_s[coming])
        start = time.process_time()
        waits = coming < count and requests.arrival_s[coming] <= now_s
        if waits and len(slots) < _MAX_REQUESTS:
            slot = next(one for one in range(_MAX_REQUESTS) if one not in slots)
            tokens = int(requests.prompt_tokens[coming])
            prompt = torch.randint(0, _VOCABULARY, (1, tokens))
            last[slot] = model(prompt, caches, torch.tensor([slot]), torch.arange(tokens)[None])[0]
            slots[slot], length[slot] = coming, tokens
            left[slot] = int(requests.output_tokens[coming]) - 1
            seconds = time.process_time() - start
            now_s += seconds
            run.steps.append(Step(0, 0, tokens, seconds))
            run.first_s[coming] = now_s
            coming += 1
            done = [slot] if left[slot] == 0 else []
        else:
            rows = sorted(slots)
            at = torch.from_numpy(length[rows])[:, None]
            last[rows] = model(last[rows][:, None], caches, torch.tensor(rows), at)
            seconds = time.process_time() - start
            now_s += seconds
            run.steps.append(Step(len(rows), int(length[rows].sum()), 0, seconds))
            length[rows] += 1
            left[rows] -= 1
            done = [slot for slot in slots if left[slot] == 0]
        for slot in done:
            run.finish_s[slots.pop(slot)] = now_s
    return run


def table_of(steps: list[Step]) -> EngineTable:
    """The simulation's tables, fitted to steps: lines over sequences, context and prompt tokens."""
    written = [one for one in steps if one.num_written]
    read = [one for one in steps if one.num_read]
    base, each, token = _fitted(
        np.array([(1.0, one.num_written, one.context) for one in written]),
        np.array([one.seconds for one in written]),
    )
    fixed, tokens = _fitted(
        np.array([(1.0, one.num_read) for one in read]), np.array([one.seconds for one in read])
    )
    sequences = np.arange(_MAX_REQUESTS + 1)
    return EngineTable(
        times=StepTimes(
            write_s=base + each * sequences,
            context_s=np.full(_MAX_REQUESTS + 1, max(token, 0.0)),
            read_s=fixed + tokens * np.arange(_LONGEST + 1),
        ),
        # A step reads one prompt: a chunk is as long as the shortest, and none is cut.
        batching=Batching(
            max_requests=_MAX_REQUESTS, chunk_tokens=_LONGEST, mixes_prompts=False,
        ),
        path_s=0.0, log_sigma=0.0, memory_bytes=0.0, capacity_bytes=np.inf, knowledge=0,
    )  # fmt: skip


def _fitted(columns: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Coefficients, none negative, of steps by what is in them.

    Steps for as many sequences are one point, at their mean: requests wait for slow steps too, and
    the few busy moments of a quiet run count as much as they are sure. Errors are relative.
    Sequences and their context grow together: of the two, a quiet run cannot tell the shares, and
    a negative one would be the noise of the other.
    """
    key = columns[:, 1]
    groups = [np.flatnonzero(key == value) for value in np.unique(key)]
    points = np.array([columns[rows].mean(axis=0) for rows in groups])
    middle = np.array([seconds[rows].mean() for rows in groups])
    weights = np.sqrt([len(rows) for rows in groups]) / middle
    best = np.zeros(columns.shape[1])
    least = np.inf
    for chosen in product((False, True), repeat=len(best)):
        used = np.flatnonzero(chosen)
        if not len(used):
            continue
        found = np.linalg.lstsq(points[:, used] * weights[:, None], middle * weights, rcond=None)[0]
        left = float((((points[:, used] @ found - middle) * weights) ** 2).sum())
        if (found >= 0.0).all() and left < least:
            best, least = np.zeros(len(best)), left
            best[used] = found
    return best


def main() -> None:
    """Calibrate at each rate in turn, predict the others, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model().eval()
    load = Load(
        arrivals="poisson", prompt=Lengths(mean=_PROMPT, spread=_SPREAD),
        output=Lengths(mean=_ANSWER, spread=_SPREAD), rate_per_s=1.0, num_requests=given.requests,
    )  # fmt: skip
    warm = serve(model, load.at_rate(1e6).requests())
    most = saturation(table_of(warm.steps), load).requests_per_s
    rates = {name: share * most for name, share in (("low", 0.3), ("mid", 0.55), ("high", 0.8))}
    runs: dict[str, list[Run]] = {name: [] for name in rates}
    for _ in range(given.rounds):
        for name, rate in rates.items():
            runs[name].append(serve(model, load.at_rate(rate).requests()))
    print(f"capacity {most:.1f} requests/s")
    print("| load | requests/s | what | measured | calibrated at low | at mid | at high |")
    print("|---|--:|---|--:|--:|--:|--:|")
    tables = [table_of([step for run in runs[name] for step in run.steps]) for name in rates]
    for name, rate in rates.items():
        requests = load.at_rate(rate).requests()
        told = [summed_up([run_steps(requests, one.times, one.batching)]) for one in tables]
        seen = [run.seen() for run in runs[name]]
        for what in ("first_token", "per_token"):
            measured_s = float(np.median([getattr(one, what).p50_s for one in seen]))
            off = " | ".join(f"{getattr(one, what).p50_s / measured_s - 1.0:+.0%}" for one in told)
            label = f"p50 {what.replace('_', ' ')}"
            print(f"| {name} | {rate:.1f} | {label} | {measured_s * 1e3:.2f} ms | {off} |")


if __name__ == "__main__":
    main()
