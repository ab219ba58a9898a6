"""`paceline train` of a Keras model: a script over `parallelize` and `resume`.

    python train.py --backend jax --model keras:ResNet50 --data /data/train --epochs 90 --devices 2

The model is one of ``keras.applications``, the settings of a ``.keras`` file, or
``package.module:function``; the last two bring their own ``compile``. The data is a folder of
images with a folder for each class, an ``.npz`` file with the arrays ``x`` and ``y``, or
``generated``.
"""

import argparse
import importlib
import os
import sys

if not __package__:
    # Started by its path: what stands beside it is found by its full name alone.
    here = os.path.abspath(__file__)
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(here))))

_GENERATED = "generated"
_NUM_GENERATED = 2048
_SIDE = 224
#: Means and deviations of ImageNet's channels, in bytes, for models of ``keras.applications``.
_MEAN, _DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def arguments(words=None):
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("jax", "tensorflow"), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--devices", type=int, default=None, help="of this process")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32, help="samples of one device")
    parser.add_argument("--size", type=int, default=None, help="pixels of a side; the model's")
    parser.add_argument("--classes", type=int, default=0, help="those of the data without")
    parser.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default=None)
    parser.add_argument("--rate", type=float, default=None, help="0.1 without")
    parser.add_argument("--samples", type=int, default=_NUM_GENERATED, help="of generated data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--saves", default=None)
    return parser.parse_args(words)


def train(given):
    """The whole script, with Keras loaded on its backend."""
    import keras

    from paceline.loop import keras as loop
    from paceline.loop.keras.replicas import place_of

    keras.utils.set_random_seed(given.seed)
    data = open_data(given)
    strategy = None if given.devices is None else "dp%d" % given.devices
    model = loop.parallelize(lambda: build(given, data.num_classes), strategy)
    data.fit_to(model)
    place = place_of(model)
    loop.resume(
        model, data, batch_size=given.batch * place.replicas, epochs=given.epochs,
        folder=given.saves, seed=given.seed, callbacks=[_told(keras, place)], verbose=0,
    )  # fmt: skip


def _told(keras, place):
    """Prints the loss of each epoch, on the first worker."""

    def tell(epoch, logs):
        if place.rank == 0:
            print("epoch %d: loss %.4f" % (epoch, float(logs["loss"])), flush=True)

    return keras.callbacks.LambdaCallback(on_epoch_end=tell)


def build(given, num_classes):
    """A compiled model of the name.

    Raises:
        LoopError: There is none, or it brings a `compile` beside options for one.
    """
    from paceline.loop.errors import LoopError

    scheme, colon, name = given.model.partition(":")
    if given.model.endswith(".keras") or (colon and scheme != "keras"):
        for option in ("optimizer", "rate"):
            if getattr(given, option) is not None:
                raise LoopError(
                    "`%s` has a `compile` of its own" % given.model, "leave out --" + option
                )
        return (
            _of_file(given.model) if given.model.endswith(".keras") else _of_function(scheme, name)
        )
    return _application(name if colon else scheme, given, num_classes)


def _of_file(path):
    import json
    import zipfile

    import keras

    from paceline.loop.errors import LoopError

    try:
        with zipfile.ZipFile(path) as archive:
            settings = json.loads(archive.read("config.json").decode("utf-8"))
        return keras.saving.deserialize_keras_object(settings, safe_mode=True)
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise LoopError(
            "Keras cannot build `%s`: %s" % (path, text[0]), "give module:function"
        ) from None


def _of_function(module, name):
    sys.path.insert(0, "")
    return getattr(importlib.import_module(module), name)()


def _application(name, given, num_classes):
    """One of Keras' own, with weights that are drawn and logits for outputs."""
    import keras

    from paceline.loop.errors import LoopError

    plain = name.lower().replace("_", "").replace("-", "")
    made = {key.lower(): one for key, one in vars(keras.applications).items() if callable(one)}
    if plain not in made:
        raise LoopError(
            "keras.applications has no model `%s`" % name,
            "write `package.module:function` for your own",
        )
    side = given.size or _SIDE
    model = made[plain](
        weights=None, classes=num_classes, classifier_activation=None, input_shape=(side, side, 3)
    )
    rate = 0.1 if given.rate is None else given.rate
    kinds = {
        "sgd": lambda: keras.optimizers.SGD(rate, momentum=0.9),
        "adam": lambda: keras.optimizers.Adam(rate),
        "adamw": lambda: keras.optimizers.AdamW(rate),
    }
    model.compile(
        optimizer=kinds[given.optimizer or "sgd"](),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def open_data(given):
    """Samples by their number, whatever they lie in.

    Raises:
        LoopError: There is nothing that can be read.
    """
    from paceline.loop.keras.data import Arrays, Generated, Images

    if given.data == _GENERATED:
        side = given.size or _SIDE
        return Generated(given.samples, given.classes or 10, side)
    if given.data.endswith(".npz"):
        return Arrays(given.data)
    is_own = ":" not in given.model.replace("keras:", "") and not given.model.endswith(".keras")
    return Images(given.data, given.size or _SIDE, (_MEAN, _DEVIATION) if is_own else None)


def main():
    """Train as the arguments say."""
    given = arguments()
    os.environ["KERAS_BACKEND"] = given.backend
    from paceline.loop.errors import LoopError

    try:
        train(given)
    except LoopError as error:
        sys.exit("error: %s" % error)


if __name__ == "__main__":
    main()
