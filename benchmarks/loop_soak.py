"""Kill training runs in every way, hold them against undisturbed ones, and write loop.md.

    python benchmarks/loop_soak.py [--kills 100] [--terms 20] [--damages 200] [--out PAGE]

Each part prints lines of its own; the page has the counts that were really run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

COUNT, EPOCHS, BATCH, EVERY = 252, 12, 12, 4


class Samples(torch.utils.data.Dataset):
    """Samples with an augmentation that draws."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(3)
        self.x = torch.randn(COUNT, 64, generator=made)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int):
        x = self.x[index] + 0.1 * torch.rand(64)
        return x, x[:8], index


def train(rank: int, ranks: int, met: str, folder: str, out: str, workers: int) -> None:
    """Train a model whose saves last several steps; a line for each step."""
    os.setsid()
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    from torch import distributed as dist

    from paceline import loop

    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{met}", rank=rank, world_size=ranks)
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 1500), nn.Tanh(), nn.Linear(1500, 8)
    )
    whole = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.05, momentum=0.9)
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=BATCH // ranks, shuffle=True, num_workers=workers
    )
    lines = open(f"{out}.{rank}", "a", buffering=1)  # noqa: SIM115
    for epoch in loop.epochs(EPOCHS, folder=folder):
        for x, y, index in loop.resume(
            loader, model=whole, optimizer=optimizer, folder=folder, every_steps=EVERY, seed=11
        ):
            each = (whole(x) - y).square().mean(dim=1)
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            lines.write(json.dumps([epoch, each.sum().item(), len(index), index.tolist()]) + "\n")
    if ranks > 1:
        dist.destroy_process_group()


class Life:
    """A run from its start to its end, in processes of its own."""

    def __init__(self, ranks: int, folder: Path, out: Path, workers: int = 0) -> None:
        context = multiprocessing.get_context("forkserver")
        self.out, self.folder, self.ranks = out, folder, ranks
        self._met = tempfile.TemporaryDirectory()
        self.processes = [
            context.Process(
                target=train,
                args=(rank, ranks, f"{self._met.name}/met", str(folder), str(out), workers),
            )
            for rank in range(ranks)
        ]
        for process in self.processes:
            process.start()

    def is_over(self) -> bool:
        return any(one.exitcode is not None for one in self.processes)

    def steps(self) -> list[tuple[int, float, tuple[int, ...]]]:
        """What was trained: epoch, mean loss, samples."""
        parts = []
        for rank in range(self.ranks):
            path = Path(f"{self.out}.{rank}")
            text = path.read_text() if path.exists() else ""
            parts.append(
                [json.loads(one) for one in text.splitlines(keepends=True) if one[-1] == "\n"]
            )
        return [
            (
                rows[0][0],
                sum(row[1] for row in rows) / sum(row[2] for row in rows),
                tuple(sorted(index for row in rows for index in row[3])),
            )
            for rows in zip(*parts, strict=False)
        ]

    def num_lines(self) -> int:
        path = Path(f"{self.out}.0")
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def torn(self) -> bool:
        """Whether a save is being written now."""
        return any(not (one / "complete.json").exists() for one in self.folder.glob("step-*"))

    def kill(self, number: int, whom: list[int], group: bool = False) -> None:
        for rank in whom:
            pid = self.processes[rank].pid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number) if group else os.kill(pid, number)

    def wait(self, patience_s: float = 60.0) -> list[int | None]:
        """Wait for the end; as torchrun does, end the others when one has failed."""
        until = time.monotonic() + patience_s
        while any(one.exitcode is None for one in self.processes):
            failed = any(one.exitcode not in (None, 0) for one in self.processes)
            if failed and time.monotonic() > until - patience_s + 1.0:
                self.kill(signal.SIGKILL, list(range(self.ranks)))
            if time.monotonic() > until:
                raise SystemExit("a run hangs")
            time.sleep(0.01)
        return [one.exitcode for one in self.processes]


def begin_of(undisturbed: list, found: list) -> int:
    """The step at which a life began."""
    keys = [(row[0], row[2]) for row in undisturbed]
    return keys.index((found[0][0], found[0][2]))


def difference(undisturbed: list, begin: int, found: list) -> float:
    """Largest difference of a loss, and none of what was read."""
    was = undisturbed[begin : begin + len(found)]
    assert [row[2] for row in was] == [row[2] for row in found], "other samples"
    return max(
        (abs(a[1] - b[1]) / max(1.0, a[1]) for a, b in zip(was, found, strict=True)), default=0.0
    )


def soak_kills(num_kills: int, folder: Path, undisturbed: list, until_s: float) -> dict:
    """Kill runs of one to three ranks at random, most of them inside a save."""
    draw = random.Random(29)
    done = {"kills": 0, "of one rank": 0, "inside a save": 0, "runs finished": 0}
    worst, lost = 0.0, []
    number, last, is_last = 0, None, False
    saves = folder / "saves-0"
    while not is_last or last is not None:
        number += 1
        ranks = draw.choice([1, 2, 3])
        life = Life(ranks, saves, folder / f"life-{number}", workers=draw.choice([0, 0, 1]))
        wants_save, wants = draw.random() < 0.75, draw.randrange(3, 50)
        is_last = done["kills"] >= num_kills or time.monotonic() > until_s
        inside = False
        while not life.is_over() and not is_last:
            if life.num_lines() >= wants:
                inside = life.torn()
                if inside or not wants_save:
                    break
            time.sleep(0.002)
        if not life.is_over() and not is_last:
            is_one = ranks > 1 and draw.random() < 0.75
            whom = [draw.randrange(ranks)] if is_one else list(range(ranks))
            inside = inside or life.torn()
            life.kill(signal.SIGKILL, whom)
            done["kills"] += 1
            done["of one rank"] += is_one or ranks == 1
            done["inside a save"] += inside
        status = life.wait()
        found = life.steps()
        if found:
            begin = begin_of(undisturbed, found)
            worst = max(worst, difference(undisturbed, begin, found))
            if last is not None:
                lost.append(last - begin)
            last = begin + len(found)
        if all(one == 0 for one in status):
            assert last == len(undisturbed), "the run ended early"
            done["runs finished"] += 1
            saves, last = folder / f"saves-{number}", None
            is_last = is_last or done["kills"] >= num_kills
        print(done, f"worst {worst:.1e}", f"lost {max(lost, default=0)}", flush=True)
    return {**done, "worst": worst, "lost": lost}


def soak_terms(times: int, folder: Path, undisturbed: list, until_s: float) -> dict:
    """SIGTERM to all ranks and their loaders' processes: nothing is lost."""
    draw, kept, worst = random.Random(7), 0, 0.0
    for number in range(times):
        if time.monotonic() > until_s:
            times = number
            break
        saves, ranks = folder / f"term-{number}", draw.choice([1, 2])
        life = Life(ranks, saves, folder / f"term-a-{number}", workers=2)
        wants = draw.randrange(2, 60)
        while life.num_lines() < wants and not life.is_over():
            time.sleep(0.002)
        life.kill(signal.SIGTERM, list(range(ranks)), group=True)
        status = life.wait()
        after = Life(1, saves, folder / f"term-b-{number}")
        while after.num_lines() < 3 and not after.is_over():
            time.sleep(0.01)
        after.kill(signal.SIGKILL, [0])
        after.wait()
        first, second = life.steps(), after.steps()
        kept += begin_of(undisturbed, second) == len(first) and status == [-signal.SIGTERM] * ranks
        worst = max(worst, difference(undisturbed, len(first), second))
        print("SIGTERM", kept, "of", number + 1, status, f"{worst:.1e}", flush=True)
    return {"times": times, "kept": kept, "worst": worst}


def soak_damages(times: int, folder: Path) -> dict:
    """Flip, cut and remove files of the newest of two saves."""
    from paceline.loop.ranks import Ranks
    from paceline.loop.saving import commit
    from paceline.loop.saving.checkpoint import Checkpoints
    from paceline.loop.saving.states import taken_apart

    draw, said, refused = random.Random(3), [], 0
    checkpoints = Checkpoints(str(folder / "damage"), Ranks(0, 1), keep=2, say=said.append)
    model = nn.Linear(300, 300)
    for step in (1, 2):
        checkpoints.save(*taken_apart({"model": model}), {"step": step, "rng": None}, waits=True)
    directory = folder / "damage" / commit.committed(folder / "damage")[0]
    shard = next(directory.glob("*.safetensors"))
    for number in range(times):
        kind = number % 3
        file = shard if kind == 2 else draw.choice([shard, directory / commit.COMMIT_FILE])
        kept = file.read_bytes()
        if kind == 0:
            at = draw.randrange(len(kept))
            file.write_bytes(
                kept[:at] + bytes([kept[at] ^ (1 << draw.randrange(8))]) + kept[at + 1 :]
            )
        elif kind == 1:
            file.write_bytes(kept[: draw.randrange(len(kept))])
        else:
            file.unlink()
        said.clear()
        found = checkpoints.newest()
        refused += found[1]["step"] == 1 and file.name in said[0] and directory.name in said[0]
        file.write_bytes(kept)
    checkpoints.close()
    return {"times": times, "refused": refused}


def blocked_share(folder: Path, num_bytes: int = 400_000_000, rounds: int = 3) -> dict:
    """What the training waits for of a save of 400 MB, against a save it waits for altogether."""
    from paceline.loop.ranks import Ranks
    from paceline.loop.saving.checkpoint import Checkpoints

    checkpoints = Checkpoints(str(folder / "large"), Ranks(0, 1), keep=1, say=print)
    tensors = {f"model/{n}": torch.randn(num_bytes // 80) for n in range(20)}
    blocked, waited = [], []
    for number in range(rounds + 1):
        for waits, times in ((False, blocked), (True, waited)):
            began_s = time.perf_counter()
            checkpoints.save(tensors, {}, {"step": number, "rng": None}, waits=waits)
            times.append(time.perf_counter() - began_s)
            checkpoints.join()
    checkpoints.close()
    one, other = statistics.median(blocked[1:]), statistics.median(waited[1:])
    return {"blocked_s": one, "sync_s": other, "share": one / other}


#: Lines of the page, each with its figures.
ROWS = (
    "| SIGKILL, then started again on 1, 2 or 3 ranks | {kills} times: {of_one} of one rank, "
    "{inside} inside a save; {finished} whole runs of {steps} steps | losses differ by at most "
    "{worst:.1e} from the undisturbed run; every sample as there |",
    "| work lost by a kill, saves every {every} steps | {num_lost} restarts | "
    "median {lost_median:.0f} steps, at most {lost_max} |",
    "| SIGTERM to all ranks and their loaders' processes | {terms} times | "
    "saved, nothing lost: {kept} |",
    "| flipped bits, cut and missing files | {damages} times | "
    "refused by file name, the save before taken: {refused} |",
    "| a save of 400 MB | 3 rounds | "
    "the training waits {blocked_s:.2f} s of {sync_s:.2f} s: {share:.0%} |",
)
PAGE = """# Kill-proof training: what was tried

`make soak-loop` writes this table; {when} on {cores} cores shared with other work, PyTorch {torch}.

| what | how often | result |
|---|---|---|
{rows}

"""
END = "FP32, SGD with momentum, DDP over gloo; batches of 12 over all ranks; samples that draw.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--terms", type=int, default=20)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=120.0, help="kill no more after so long")
    given = parser.parse_args()
    began_s = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torch.distributed.checkpoint", "paceline.loop.running"]
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        life = Life(1, folder / "undisturbed", folder / "whole")
        assert life.wait(300.0) == [0]
        undisturbed = life.steps()
        assert len(undisturbed) == EPOCHS * COUNT // BATCH
        large, damages = blocked_share(folder), soak_damages(given.damages, folder)
        print(large, damages, flush=True)
        terms = soak_terms(given.terms, folder, undisturbed, 0.4 * given.minutes * 60 + began_s)
        kills = soak_kills(given.kills, folder, undisturbed, given.minutes * 60 + began_s)
    figures = dict(
        kills=kills["kills"], of_one=kills["of one rank"], inside=kills["inside a save"],
        finished=kills["runs finished"], steps=len(undisturbed), worst=kills["worst"], every=EVERY,
        num_lost=len(kills["lost"]), lost_median=statistics.median(kills["lost"]),
        lost_max=max(kills["lost"]), terms=terms["times"], kept=terms["kept"],
        damages=damages["times"], refused=damages["refused"], **large,
    )  # fmt: skip
    page = PAGE.format(
        when=time.strftime("%Y-%m-%d"), cores=os.cpu_count(), torch=torch.__version__,
        rows="\n".join(row.format(**figures) for row in ROWS),
    )  # fmt: skip
    print(page + END)
    if given.out:
        _, _, below = given.out.read_text(encoding="utf-8").partition(END)
        given.out.write_text(page + END + below, encoding="utf-8")
    is_kept = terms["kept"] == terms["times"] and damages["refused"] == damages["times"]
    sys.exit(0 if is_kept and kills["worst"] <= 1e-5 else 1)


if __name__ == "__main__":
    main()
