"""`resume`: the user's own loop, taken up where it was, on any number of ranks and workers.

Order matters: the generators of random numbers are put back after the loader has begun, and saves
are made only between optimizer steps, when a step is whole.
"""

import os

from paceline.loop.errors import LoopError
from paceline.loop.running import Run, Settings
from paceline.loop.saving.places import default_folder, rate_of

_runs = {}


def resume(
    loader,
    *,
    folder=None,
    seed=None,
    every_s=None,
    every_steps=None,
    interruptions_per_hour=None,
    keep=2,
    **objects,
):
    """Batches of the next epoch: a run that was killed goes on as if it had not been.

    Each iteration over what is returned is one epoch. Epochs that were finished before a kill yield
    nothing; `epochs` leaves them out altogether. The n-th call of a script is its n-th epoch.

    Args:
        loader: The script's own; a `DataLoader` over a map-style dataset is read in an order that
            any number of ranks and workers can take up, another iterable by its own state or again
            from the beginning.
        folder: Of the saves; ``PACELINE_SAVES``, else ``saves/`` and the script's name.
        seed: Of the order and of what samples draw; PyTorch's own seed if None.
        every_s: Seconds between saves; from the measured cost of a save and the rate of
            interruptions if None.
        every_steps: Steps between saves, instead.
        interruptions_per_hour: Of the place; ``PACELINE_INTERRUPTIONS_PER_HOUR``, which `paceline
            run PLAN` sets, else unknown.
        keep: How many saves are kept: the one before is there if the last is damaged.
        objects: Everything that the training changes, by name: ``model=``, ``optimizer=``,
            ``scheduler=``, ``scaler=``, ``ema=`` … modules and whatever has `state_dict`.

    Raises:
        LoopError: The saves are of something else or damaged, or the folder cannot be used.
    """
    for name, held in objects.items():
        if not callable(getattr(held, "state_dict", None)) and not isinstance(held, (list, tuple)):
            raise LoopError(
                "`%s` has no `state_dict`" % name, hint="give modules, optimizers, schedulers"
            )
    if not objects:
        raise LoopError(
            "`loop.resume` was given nothing to save",
            hint="loop.resume(loader, model=model, optimizer=optimizer, scheduler=scheduler)",
        )
    run = _run_in(folder)
    run.adopt(objects, Settings(seed, every_s, every_steps, rate_of(interruptions_per_hour), keep))
    return Resumed(run, loader)


class Resumed:
    """What a loop iterates over; each time is the next epoch."""

    def __init__(self, run, loader):
        self._run = run
        self._loader = loader

    def __iter__(self):
        return self._run.iterate(self._loader)

    def __len__(self):
        return len(self._loader)

    def __getattr__(self, name):
        return getattr(self._loader, name)


def epochs(count, *, folder=None):
    """Numbers of the epochs that are left, for a script that does something between them.

    ``for epoch in loop.epochs(90):`` instead of ``range(90)``: nothing is run again for epochs that
    were finished, and the last one ends with a save.

    Args:
        count: Of all epochs, from the first run on.
        folder: As in `resume`.
    """
    run = _run_in(folder)
    epoch = run.first_epoch()
    while epoch < count:
        run.begin_epoch(epoch)
        yield epoch
        epoch += 1
        run.epoch_is_over(epoch, is_last=epoch == count)


def _run_in(folder):
    """The run of a folder: one in a process."""
    place = os.path.abspath(folder or default_folder())
    if place not in _runs:
        _runs[place] = Run(place)
    return _runs[place]
