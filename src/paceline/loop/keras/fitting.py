"""`resume`: Keras' own `fit`, taken up where it was, on any number of devices.

Order matters: a state is put back after Keras has reset its metrics, and saves are made only
between optimizer steps, when a step is whole.
"""

import keras

from paceline.loop.errors import LoopError
from paceline.loop.keras import workers
from paceline.loop.keras.batches import Batches, Samples
from paceline.loop.keras.replicas import place_of
from paceline.loop.keras.running import Between, Run, Settings
from paceline.loop.saving.places import default_folder, rate_of

#: What `fit` is told here.
_OWN = ("initial_epoch", "steps_per_epoch", "validation_split")


def resume(
    model,
    x,
    y=None,
    sample_weight=None,
    *,
    batch_size,
    epochs=1,
    folder=None,
    seed=0,
    shuffle=True,
    every_s=None,
    every_steps=None,
    interruptions_per_hour=None,
    keep=2,
    callbacks=(),
    **options,
):
    """Train as ``model.fit`` does; a run that was killed goes on as if it had not been.

    Args:
        model: Compiled; from `parallelize`, or made in a distribution of the script's own.
        x: Inputs, samples first; or anything that gives the tuple of a sample for an index.
        y: Targets, samples first.
        sample_weight: What each sample counts in the loss.
        batch_size: Samples of a step over all devices. The rest of an epoch that makes no whole
            batch is left out.
        epochs: Of the whole run, from its first start on.
        folder: Of the saves; ``PACELINE_SAVES``, else ``saves/`` and the script's name.
        seed: Of the order of samples.
        shuffle: Whether each epoch has an order of its own.
        every_s: Seconds between saves; from the measured cost of a save and the rate of
            interruptions if None.
        every_steps: Steps between saves, instead.
        interruptions_per_hour: Of the place; ``PACELINE_INTERRUPTIONS_PER_HOUR``, else unknown.
        keep: How many saves are kept.
        callbacks: Of Keras. What they keep for themselves is not saved.
        options: Others of ``fit``, such as ``validation_data``.

    Returns:
        The history of Keras; of the epochs after the one that was taken up.

    Raises:
        LoopError: The saves are of something else or damaged, or a batch does not divide.
    """
    place, samples = place_of(model), Samples(x, y, sample_weight)
    _check(place, samples, batch_size, options)
    share = (place.rank, place.workers)
    batches = Batches(samples, batch_size, seed, shuffle, share)
    settings = Settings(every_s, every_steps, rate_of(interruptions_per_hour), keep)
    run = Run(model, batches, place, folder or default_folder(), settings, epochs, callbacks)
    try:
        run.build()
        return _fit(run, [*callbacks, Between(run)], options)
    finally:
        run.close()


def _fit(run, callbacks, options):
    """One call of `fit` for what is left of an epoch, and one for all others."""
    fit = workers.fit if run.place.workers > 1 else _fit_of_keras
    history = keras.callbacks.History()
    begin, start = run.begins_at()
    parts = [(begin, begin + 1, start)] * (start > 0) + [(begin + (start > 0), run.epochs, 0)]
    for first, last, position in parts:
        if first < last and not run.must_stop:
            run.batches.start = position
            history = fit(run, callbacks, first, last, options)
    run.take_up()  # Where nothing was left to do.
    return history


def _fit_of_keras(run, callbacks, first, last, options):
    return run.model.fit(
        run.batches, initial_epoch=first, epochs=last, shuffle=False, callbacks=callbacks, **options
    )


def _check(place, samples, batch_size, options):
    for name in _OWN:
        if name in options:
            raise LoopError("`%s` belongs to `fit` alone" % name, "leave it out")
    if batch_size % place.replicas:
        raise LoopError(
            "a batch of %d does not divide among %d devices: Keras would weigh samples unequally"
            % (batch_size, place.replicas),
            "give a multiple of %d" % place.replicas,
        )
    if len(samples) < batch_size:
        raise LoopError(
            "%d samples make no batch of %d" % (len(samples), batch_size), "give a smaller batch"
        )
