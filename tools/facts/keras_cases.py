"""Write down what Keras says of small models: shapes and parameters, for tests without Keras.

Run in a Python that has Keras 3, in ``tools``: ``python -m facts.keras_cases``. It writes
``tests/unit/frontends/data/keras_cases.json``: the settings of a model around each layer and of the
models that tutorials begin with, with Keras's own output shape and ``count_params()``.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from facts.keras_models import slimmed

CASES = Path(__file__).parents[2] / "tests/unit/frontends/data/keras_cases.json"
_PICTURE, _SERIES, _VOLUME, _ROW = (17, 20, 6), (12, 6), (8, 9, 10, 4), (7,)
#: What stands between an input of a shape and the output, as a user writes it.
_LAYERS = {
    _ROW: (
        "Dense(5, activation='relu')", "Dense(5, use_bias=False)", "BatchNormalization()",
        "Dropout(0.3)", "Activation('softmax')", "Reshape((7, 1))", "RepeatVector(3)",
        "LayerNormalization()", "RMSNormalization()", "UnitNormalization()", "GaussianNoise(0.1)",
        "GaussianDropout(0.1)", "AlphaDropout(0.1)", "PReLU()", "ELU()", "LeakyReLU()",
        "ReLU(6.0)", "Softmax()", "Identity()", "Rescaling(1 / 255)", "Normalization()",
        "ActivityRegularization(0.1)",
    ),
    _SERIES: (
        "Conv1D(5, 3, padding='causal', dilation_rate=2)",
        "Conv1D(5, 3, strides=2, padding='same')",
        "Conv1DTranspose(5, 4, strides=2, padding='same')", "SeparableConv1D(5, 3)",
        "DepthwiseConv1D(3)", "MaxPooling1D()", "AveragePooling1D(3, padding='same')",
        "GlobalMaxPooling1D()", "GlobalAveragePooling1D(keepdims=True)", "ZeroPadding1D(2)",
        "Cropping1D(1)", "UpSampling1D(3)", "SpatialDropout1D(0.2)", "Permute((2, 1))",
        "LSTM(5)", "LSTM(5, return_sequences=True, use_bias=False)", "GRU(5)",
        "GRU(5, reset_after=False)", "SimpleRNN(5, return_sequences=True)",
        "Bidirectional(layers.LSTM(5))",
        "Bidirectional(layers.GRU(5, return_sequences=True), merge_mode='sum')",
        "RNN(layers.LSTMCell(5))",
        "RNN(layers.StackedRNNCells([layers.GRUCell(5), layers.GRUCell(4)]))",
        "TimeDistributed(layers.Dense(3))", "EinsumDense('abc,cd->abd', output_shape=(12, 5), "
        "bias_axes='d')", "Masking()", "Flatten()", "GroupNormalization(3)",
        "AdaptiveAveragePooling1D(4)",
    ),
    _PICTURE: (
        "Conv2D(5, 3)", "Conv2D(4, (3, 5), strides=(2, 3), padding='same', groups=2)",
        "Conv2D(5, 3, dilation_rate=2)", "Conv2DTranspose(5, 3, strides=2)",
        "Conv2DTranspose(5, 2, strides=3, padding='same')", "SeparableConv2D(5, 3)",
        "DepthwiseConv2D(3, depth_multiplier=2, padding='same')", "MaxPooling2D()",
        "MaxPooling2D(3, strides=2, padding='same')", "AveragePooling2D((2, 3))",
        "GlobalAveragePooling2D()", "GlobalMaxPooling2D(keepdims=True)",
        "ZeroPadding2D(((1, 0), (2, 3)))", "Cropping2D(((1, 2), (3, 4)))",
        "UpSampling2D((2, 3), interpolation='bilinear')", "SpatialDropout2D(0.1)",
        "BatchNormalization(scale=False)", "LayerNormalization()", "GroupNormalization(3)",
        "PReLU(shared_axes=[1, 2])", "Resizing(9, 11)", "CenterCrop(8, 9)",
        "RandomFlip('horizontal')", "RandomRotation(0.1)", "RandomZoom(0.1)",
        "RandomTranslation(0.1, 0.1)", "RandomContrast(0.1)", "RandomBrightness(0.1)",
        "TimeDistributed(layers.Conv1D(3, 3))", "Flatten()", "AdaptiveMaxPooling2D((4, 5))",
    ),
    _VOLUME: (
        "Conv3D(5, 3, padding='same')", "Conv3DTranspose(3, 2, strides=2)", "MaxPooling3D()",
        "AveragePooling3D(2, padding='same')", "GlobalAveragePooling3D()",
        "GlobalMaxPooling3D()", "ZeroPadding3D(1)", "Cropping3D(1)", "UpSampling3D(2)",
        "SpatialDropout3D(0.1)",
    ),
}  # fmt: skip


def tutorials(keras: Any) -> dict[str, Any]:
    """The models that beginners write, and some that join layers."""
    layers = keras.layers
    mnist = keras.Sequential(
        [
            keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax"),
        ]
    )  # fmt: skip
    mnist.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    found = {"mnist": mnist}
    for kind, optimizer in (("SimpleRNN", "rmsprop"), ("LSTM", "adam"), ("GRU", "nadam")):
        layer = getattr(layers, kind)(32)
        found[kind.lower()] = keras.Sequential([keras.Input((None, 10)), layer, layers.Dense(1)])
        found[kind.lower()].compile(optimizer, "mse")
    base = keras.applications.VGG16(include_top=False, weights=None, input_shape=(224, 224, 3))
    base.trainable = False
    pictures = keras.Input((224, 224, 3))
    x = layers.Dense(256, activation="relu")(layers.Flatten()(base(pictures, training=False)))
    found["vgg16-head"] = keras.Model(pictures, layers.Dense(5, activation="softmax")(x))
    found["vgg16-head"].compile(keras.optimizers.SGD(0.1, 0.9), "sparse_categorical_crossentropy")
    found["encoder"] = _encoder(keras)
    return found


def _encoder(keras: Any) -> Any:
    """One block of a transformer on tokens, with operations between layers."""
    layers = keras.layers
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(1000, 32)(tokens) * 5.0
    y = layers.MultiHeadAttention(4, 8)(x, x)
    x = layers.LayerNormalization()(x + y)
    y = layers.Dense(32)(layers.Dense(64, activation="gelu")(x))
    x = keras.ops.relu(layers.Add()([x, y]))
    x = layers.Concatenate()([layers.GlobalAveragePooling1D()(x), keras.ops.mean(x, axis=1)])
    model = keras.Model(tokens, layers.Dense(1, activation="sigmoid")(x))
    model.compile("adamw", keras.losses.BinaryCrossentropy())
    return model


def case(model: Any) -> dict[str, Any]:
    """What Keras says of a model."""
    settings = json.loads(model.to_json())
    output = model.output_shape
    trained = sum(int(weight.size) for weight in _arrays(model.trainable_weights))
    return {
        "settings": {**slimmed(settings), "compile_config": settings.get("compile_config")},
        "output": list(output), "parameters": model.count_params(), "trained": trained,
    }  # fmt: skip


def _arrays(weights: Any) -> list[Any]:
    return [weight.numpy() for weight in weights]


def main() -> None:
    """Write the file."""
    import keras
    from keras import layers

    found = {}
    for shape, texts in _LAYERS.items():
        for text in texts:
            layer = eval(f"layers.{text}", {"layers": layers})
            found[text] = case(keras.Sequential([keras.Input(shape), layer]))
    found |= {name: case(model) for name, model in tutorials(keras).items()}
    source = f"Keras {keras.__version__}, {datetime.date.today().isoformat()}"
    text = json.dumps({"source": source, "cases": found}, separators=(",", ":"))
    CASES.parent.mkdir(parents=True, exist_ok=True)
    CASES.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
