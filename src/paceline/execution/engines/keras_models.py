"""The models of the zoo as Keras 3 definitions, equal in shape to the PyTorch ones.

Standard library and keras only; the same file serves TensorFlow, JAX and PyTorch as backends.
Images are channels last, as TensorFlow and JAX want them on a CPU.
"""

from functools import partial

import keras
from keras import layers


def mnist_cnn():
    """The 28×28×1 CNN of the Keras examples."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )


def recurrent(cell):
    """Embedding, one recurrent layer, one dense layer: text classification."""
    kinds = {"lstm": layers.LSTM, "gru": layers.GRU, "rnn": layers.SimpleRNN}
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(20000, 128),
            kinds[cell](128),
            layers.Dense(2),
        ]
    )


def alexnet():
    """AlexNet as torchvision has it (one tower, no local response normalisation)."""
    x = images = keras.Input((224, 224, 3))
    x = _conv(x, 64, 11, stride=4, pad=2)
    x = layers.MaxPooling2D(3, 2)(x)
    x = _conv(x, 192, 5, pad=2)
    x = layers.MaxPooling2D(3, 2)(x)
    for width in (384, 256, 256):
        x = _conv(x, width, 3, pad=1)
    x = layers.MaxPooling2D(3, 2)(x)
    x = layers.Dropout(0.5)(layers.Flatten()(x))
    x = layers.Dropout(0.5)(layers.Dense(4096, activation="relu")(x))
    x = layers.Dense(4096, activation="relu")(x)
    return keras.Model(images, layers.Dense(1000)(x))


def vgg16():
    """VGG-16 as torchvision has it."""
    x = images = keras.Input((224, 224, 3))
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            x = _conv(x, width, 3, pad=1)
        x = layers.MaxPooling2D(2)(x)
    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dropout(0.5)(layers.Dense(4096, activation="relu")(x))
    return keras.Model(images, layers.Dense(1000)(x))


def resnet(blocks, is_bottleneck):
    """A residual network; the stride is in the 3×3 convolution, as in torchvision."""
    x = images = keras.Input((224, 224, 3))
    x = _normed(x, 64, 7, stride=2, pad=3)
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for stage, depth in enumerate(blocks):
        for number in range(depth):
            stride = 2 if stage > 0 and number == 0 else 1
            x = _block(x, 64 * 2**stage, stride, is_bottleneck)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, layers.Dense(1000)(x))


def _block(x, width, stride, is_bottleneck):
    wide = width * 4 if is_bottleneck else width
    shortcut = x
    if stride != 1 or x.shape[-1] != wide:
        shortcut = _normed(x, wide, 1, stride=stride, activation=False)
    if is_bottleneck:
        x = _normed(x, width, 1)
        x = _normed(x, width, 3, stride=stride, pad=1)
        x = _normed(x, wide, 1, activation=False)
    else:
        x = _normed(x, width, 3, stride=stride, pad=1)
        x = _normed(x, width, 3, pad=1, activation=False)
    return layers.ReLU()(layers.Add()([x, shortcut]))


def _conv(x, width, size, stride=1, pad=0):
    x = layers.ZeroPadding2D(pad)(x) if pad else x
    return layers.Conv2D(width, size, stride, activation="relu")(x)


def _normed(x, width, size, stride=1, pad=0, activation=True):
    x = layers.ZeroPadding2D(pad)(x) if pad else x
    x = layers.Conv2D(width, size, stride, use_bias=False)(x)
    x = layers.BatchNormalization(epsilon=1e-5, momentum=0.9)(x)
    return layers.ReLU()(x) if activation else x


#: name -> (builder, what one item is, shape of an item)
ZOO = {
    "mnist-cnn": (mnist_cnn, "image", (28, 28, 1)),
    "lstm": (partial(recurrent, "lstm"), "text", None),
    "gru": (partial(recurrent, "gru"), "text", None),
    "alexnet": (alexnet, "image", (224, 224, 3)),
    "vgg16": (vgg16, "image", (224, 224, 3)),
    "resnet18": (partial(resnet, (2, 2, 2, 2), False), "image", (224, 224, 3)),
    "resnet34": (partial(resnet, (3, 4, 6, 3), False), "image", (224, 224, 3)),
    "resnet50": (partial(resnet, (3, 4, 6, 3), True), "image", (224, 224, 3)),
    "resnet101": (partial(resnet, (3, 4, 23, 3), True), "image", (224, 224, 3)),
}
