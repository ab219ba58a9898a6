"""Models of Flax and Equinox, as their users write them, and functions with loops."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

TOKENS, WIDTH = 2000, 256


class _Images:
    def inputs(self, batch):
        return jnp.zeros((batch, 64, 64, 3))


class _Features:
    def inputs(self, batch):
        return jnp.zeros((batch, 784))


class _Tokens:
    def inputs(self, batch, length):
        return jnp.zeros((batch, length), jnp.int32)


class _NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(784, 512, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(512, 10, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.first(x))))


class NnxMlp(_Features):
    def __init__(self):
        self.model, self.optimizer = _NnxMlp(nnx.Rngs(0)), optax.adam(1e-3)


class _NnxCnn(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(3, 64, (3, 3), padding="VALID", rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.second = nnx.Conv(64, 128, (3, 3), strides=2, padding="VALID", rngs=rngs)
        self.third = nnx.Conv(128, 128, (3, 3), padding="VALID", feature_group_count=4, rngs=rngs)
        self.head = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.first(x)))
        x = nnx.relu(self.third(nnx.relu(self.second(x))))
        return self.head(x.mean((1, 2)))


class NnxCnn(_Images):
    def __init__(self):
        self.model = _NnxCnn(nnx.Rngs(0))


class _NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(8, WIDTH, decode=False, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(2)])
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.down(nnx.gelu(self.up(self.norms[1](x))))


class _NnxTransformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(TOKENS, WIDTH, rngs=rngs)
        self.blocks = nnx.List([_NnxBlock(rngs) for _ in range(2)])
        self.head = nnx.Linear(WIDTH, TOKENS, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class NnxTransformer(_Tokens):
    def __init__(self):
        self.model = _NnxTransformer(nnx.Rngs(0))


class _LinenMlp(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Dense(512)(x))
        return nn.Dense(10)(nn.Dropout(0.2, deterministic=not train)(x))


class LinenMlp(_Features):
    def __init__(self):
        self.model, self.optimizer = _LinenMlp(), optax.sgd(0.1, momentum=0.9)


class _LinenResNet(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Conv(64, (3, 3), padding="VALID", use_bias=False)(x))
        for _ in range(2):
            kept = x
            x = nn.BatchNorm(use_running_average=not train)(nn.Conv(64, (1, 1))(x))
            x = nn.relu(x + kept)
        x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(10)(nn.ConvTranspose(64, (2, 2), strides=(2, 2))(x).mean((1, 2)))


class LinenResNet(_Images):
    def __init__(self):
        self.model = _LinenResNet()


class _Bottleneck(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, x, train=False):
        y, stride = x, (self.stride, self.stride)
        for width, size, steps in ((1, 1, (1, 1)), (1, 3, stride), (4, 1, (1, 1))):
            y = nn.Conv(width * self.width, (size, size), steps, use_bias=False)(y)
            y = nn.BatchNorm(use_running_average=not train)(y)
            y = nn.relu(y) if width == 1 else y
        if x.shape != y.shape:
            x = nn.Conv(4 * self.width, (1, 1), stride, use_bias=False)(x)
            x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.relu(x + y)


class _LinenResNet50(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                stride = 2 if stage and not block else 1
                x = _Bottleneck(64 * 2**stage, stride)(x, train=train)
        return nn.Dense(1000)(x.mean((1, 2)))


class LinenResNet50:
    def __init__(self):
        self.model = _LinenResNet50()

    def inputs(self, batch):
        return jnp.zeros((batch, 224, 224, 3))


class _LinenTransformer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Embed(TOKENS, WIDTH)(x)
        for _ in range(2):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=8)(y, y)
            x = x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))
        return nn.Dense(TOKENS)(x)


class LinenTransformer(_Tokens):
    def __init__(self):
        self.model = _LinenTransformer()


class _LinenRecurrent(nn.Module):
    cell: type

    @nn.compact
    def __call__(self, x):
        return nn.Dense(TOKENS)(nn.RNN(self.cell(WIDTH))(nn.Embed(TOKENS, 64)(x)))


class LinenLstm(_Tokens):
    def __init__(self):
        self.model = _LinenRecurrent(nn.OptimizedLSTMCell)


class LinenGru(_Tokens):
    def __init__(self):
        self.model = _LinenRecurrent(nn.GRUCell)


class EquinoxMlp(_Features):
    def __init__(self):
        self.model = eqx.nn.MLP(784, 10, 512, 2, key=jax.random.key(0))


class _EquinoxCnn(eqx.Module):
    layers: list

    def __init__(self, key):
        first, second, last = jax.random.split(key, 3)
        self.layers = [
            eqx.nn.Conv2d(3, 64, 3, key=first), jax.nn.relu, eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(64, 128, 3, key=second), jax.nn.relu, lambda x: x.mean((1, 2)),
            eqx.nn.Linear(128, 10, key=last),
        ]  # fmt: skip

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class EquinoxCnn:
    def __init__(self):
        self.model = _EquinoxCnn(jax.random.key(0))

    def inputs(self, batch):
        return jnp.zeros((batch, 3, 64, 64))


def _weights(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def scanned():
    """Twelve layers as one scan."""
    return {
        "function": lambda w, x: jax.lax.scan(lambda h, one: (jnp.tanh(h @ one), None), x, w)[0],
        "params": _weights(12, 64, 64),
        "inputs": lambda batch: _weights(batch, 64),
    }


def counted():
    """A loop that runs seven times."""
    return {
        "function": lambda w, x: jax.lax.fori_loop(0, 7, lambda _, h: jnp.tanh(h @ w), x),
        "params": _weights(64, 64),
        "inputs": lambda batch: _weights(batch, 64),
    }


def endless():
    """A loop that data ends."""
    return {
        "function": lambda w, x: jax.lax.while_loop(lambda h: h.sum() < 3, lambda h: h @ w, x),
        "params": _weights(64, 64),
        "inputs": lambda batch: _weights(batch, 64),
    }


def branched():
    """Two branches, of which the dearer one counts."""
    return {
        "function": lambda w, x: jax.lax.cond(x.sum() > 0, lambda h: h @ w @ w, lambda h: h @ w, x),
        "params": _weights(64, 64),
        "inputs": lambda batch: _weights(batch, 64),
    }


def paired():
    """A model beside an example batch, as a tuple."""
    return NnxMlp().model, jnp.zeros((2, 784))


def sized():
    """A model beside the shape of a batch, which is no batch."""
    return NnxMlp().model, (2, 64)
