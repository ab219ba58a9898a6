"""Keras models as tutorials write them: five that are asked for, and others to learn from."""

import keras
from keras import layers

IMAGE = {
    "optimizer": "adam",
    "loss": "sparse_categorical_crossentropy",
    "metrics": ["accuracy"],
}


def _compiled(stack, **settings):
    model = keras.Sequential(stack)
    model.compile(**(settings or IMAGE))
    return model


def _convolutions(side, *widths):
    stack = [keras.Input((side, side, 1 if side == 28 else 3))]
    for width in widths:
        stack += [layers.Conv2D(width, (3, 3), activation="relu"), layers.MaxPooling2D((2, 2))]
    stack += [layers.Flatten(), layers.Dense(64, activation="relu")]
    return _compiled([*stack, layers.Dense(10, activation="softmax")])


def cnn():
    return _convolutions(28, 32, 64)


def wide_cnn():
    return _convolutions(32, 64, 128)


def deep_cnn():
    return _convolutions(64, 32, 64, 128, 128)


def _recurrent(layer, units=64, features=10):
    stack = [layer(units, input_shape=(None, features)), layers.Dense(1)]
    return _compiled(stack, optimizer="adam", loss="mse")


def simple_rnn():
    return _recurrent(layers.SimpleRNN)


def lstm():
    return _recurrent(layers.LSTM)


def gru():
    return _recurrent(layers.GRU)


def wide_lstm():
    return _recurrent(layers.LSTM, 128, 32)


def wide_gru():
    return _recurrent(layers.GRU, 128, 32)


def wide_rnn():
    return _recurrent(layers.SimpleRNN, 128, 32)


def dense():
    wide = [layers.Dense(1024, activation="relu") for _ in range(3)]
    return _compiled([keras.Input((784,)), *wide, layers.Dense(10, activation="softmax")])


def _headed(build):
    base = build(weights=None, include_top=False, input_shape=(224, 224, 3))
    base.trainable = False
    head = [layers.Flatten(), layers.Dense(256, activation="relu")]
    stack = [base, *head, layers.Dense(5, activation="softmax")]
    return _compiled(stack, optimizer="adam", loss="categorical_crossentropy")


def vgg_head():
    return _headed(keras.applications.VGG16)


def resnet_head():
    return _headed(keras.applications.ResNet50)
