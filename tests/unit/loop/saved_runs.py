"""Training in processes of its own, ended at any step, to hold resumed runs against."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
from torch import nn

COUNT, EPOCHS, BATCH = 45, 3, 12


class Noisy(torch.utils.data.Dataset):
    """Samples that draw: as an augmentation would."""

    def __init__(self, count: int = COUNT) -> None:
        made = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, 6, generator=made, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int):
        x = self.x[index] + 0.1 * torch.rand(6, dtype=torch.float64)
        return x, x.sum()[None], index


def train(rank: int, ranks: int, folder: str, out: str, options: dict) -> None:
    """Train, and write a line for each step: step, global loss, samples."""
    from torch import distributed as dist

    from paceline import loop

    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double()
    whole = model
    if ranks > 1:
        whole = nn.parallel.DistributedDataParallel(model)
    kind = options.get("optimizer", "AdamW")
    more = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(torch.optim, kind)(whole.parameters(), lr=0.05, **more)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.5)
    loader = torch.utils.data.DataLoader(
        Noisy(), batch_size=options.get("batch", BATCH // ranks), shuffle=True,
        num_workers=options.get("workers", 0),
    )  # fmt: skip
    lines = open(f"{out}.{rank}", "a", buffering=1)  # noqa: SIM115
    numbers = loop.epochs(EPOCHS, folder=folder) if options.get("epochs") else range(EPOCHS)
    num_steps = 0
    for epoch in numbers:
        for x, y, index in loop.resume(
            loader, model=whole, optimizer=optimizer, scheduler=scheduler, folder=folder,
            every_steps=options.get("every_steps", 2), seed=11,
        ):  # fmt: skip
            each = (whole(x) - y) ** 2
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            lines.write(json.dumps([epoch, each.sum().item(), len(index), index.tolist()]) + "\n")
            num_steps += 1
            if num_steps == options.get("kill_at") and rank in options.get("killed", [rank]):
                time.sleep(options.get("wait_s", 0.0))
                os.kill(os.getpid(), options.get("signal", 9))
        scheduler.step()
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def _process(rank: int, ranks: int, met: str, target, args) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    if ranks > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{met}", rank=rank, world_size=ranks
        )
    try:
        target(rank, ranks, *args)
    except BaseException:  # noqa: BLE001  The status says it.
        if options_of(args).get("is_loud", True):
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stderr.flush()


def options_of(args) -> dict:
    """The options among arguments."""
    return next((one for one in args if isinstance(one, dict)), {})


def run(ranks: int, folder: Path, out: Path, **options) -> list[int]:
    """Run `train` in so many processes; their exit statuses."""
    return launch(ranks, train, str(folder), str(out), options)


def launch(ranks: int, target, *args) -> list[int]:
    """Run a function in so many joined processes; their exit statuses."""
    # Forked from a process of one thread that has loaded torch, and what an optimizer loads as it
    # is made: both take seconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch.distributed.checkpoint", "torch._dynamo"])
    with tempfile.TemporaryDirectory() as met:
        processes = [
            context.Process(target=_process, args=(rank, ranks, f"{met}/met", target, args))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        _wait(processes)
    return [one.exitcode for one in processes]


def _wait(processes) -> None:
    # As torchrun does: when one has failed, the others are ended.
    while any(one.exitcode is None for one in processes):
        if any(one.exitcode not in (None, 0) for one in processes):
            time.sleep(1.0)
            for one in processes:
                if one.exitcode is None:
                    one.kill()
        time.sleep(0.02)
    for one in processes:
        one.join()


def losses(out: Path, ranks: int) -> list[tuple[int, float, tuple[int, ...]]]:
    """Steps of a run: epoch, mean loss, and its samples; a batch's padding counts nothing."""
    parts = [
        [json.loads(line) for line in Path(f"{out}.{rank}").read_text().splitlines()]
        for rank in range(ranks)
    ]
    found = []
    for rows in zip(*parts, strict=False):
        samples = tuple(sorted(index for row in rows for index in row[3]))
        loss = sum(row[1] for row in rows) / sum(row[2] for row in rows)
        found.append((rows[0][0], loss, samples))
    return found
