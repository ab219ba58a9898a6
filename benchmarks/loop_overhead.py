"""What a step costs more in `loop.resume` than by hand: thread CPU time, by turns, medians.

``python benchmarks/loop_overhead.py [ROUNDS]``; rows of Accelerate, Fabric and Lightning where they
are installed. Lightning's trainer runs its own loop, without logger, checkpoints and progress.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import sys
import tempfile
import time
import warnings

import torch
from torch import nn

from paceline import loop

STEPS, BATCH = 200, 16


def parts(made: int):
    """A perceptron, its optimizer and its loader."""
    torch.manual_seed(made)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = torch.utils.data.TensorDataset(
        torch.randn(STEPS * BATCH, 64), torch.randint(0, 10, (STEPS * BATCH,))
    )
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    return model, optimizer, loader


def steps(batches, model, optimizer, backward=None) -> float:
    """Thread CPU microseconds of a step of an epoch."""
    began_ns = time.thread_time_ns()
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        backward(loss) if backward else loss.backward()
        optimizer.step()
    return (time.thread_time_ns() - began_ns) / 1e3 / STEPS


def contenders(folder: str):
    """Each way to run an epoch, by its name."""
    model, optimizer, loader = parts(0)
    yield "by hand", lambda: steps(loader, model, optimizer)
    other, its, its_loader = parts(0)
    held = loop.resume(its_loader, model=other, optimizer=its, folder=folder, every_s=1e9, seed=0)
    yield "loop.resume", lambda: steps(held, other, its)
    for name, make in (("Accelerate", accelerate), ("Fabric", fabric), ("Lightning", trainer)):
        with contextlib.suppress(ImportError):
            yield name, make()


def accelerate():
    """An epoch as Accelerate's documents show it."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    *rest, loader = accelerator.prepare(*parts(0))
    return lambda: steps(loader, *rest, accelerator.backward)


def fabric():
    """An epoch as Fabric's documents show it."""
    from lightning.fabric import Fabric

    ours = Fabric(accelerator="cpu", devices=1)
    ours.launch()
    model, optimizer, loader = parts(0)
    model, optimizer = ours.setup(model, optimizer)
    loader = ours.setup_dataloaders(loader)
    return lambda: steps(loader, model, optimizer, ours.backward)


def trainer():
    """An epoch of Lightning's trainer, from its first batch to its last."""
    import lightning

    model, optimizer, loader = parts(0)

    class Perceptron(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return optimizer

    class Clock(lightning.Callback):
        def on_train_epoch_start(self, *_):
            self.began_ns = time.thread_time_ns()

        def on_train_epoch_end(self, *_):
            self.took_us = (time.thread_time_ns() - self.began_ns) / 1e3 / STEPS

    clock = Clock()

    def run() -> float:
        lightning.Trainer(
            accelerator="cpu", devices=1, max_epochs=1, logger=False, callbacks=[clock],
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        ).fit(Perceptron(), loader)  # fmt: skip
        return clock.took_us

    return run


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        ways = dict(contenders(folder))
        took_us = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, run in ways.items():
                one_us = run()
                if number:
                    took_us[name].append(one_us)
    plain = took_us["by hand"]
    for name, found in took_us.items():
        more = statistics.median(a - b for a, b in zip(found, plain, strict=True))
        print(f"{name}: {statistics.median(found):.0f} us a step, {more:+.0f}")


if __name__ == "__main__":
    main()
