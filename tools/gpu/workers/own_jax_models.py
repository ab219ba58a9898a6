"""Models of JAX as people write them; ``predict jax:own_jax_models:WriterJob`` reads them too."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

#: Sizes of the writer, GPT-2's: words, width, layers, heads, words of a text.
WORDS, WIDTH, LAYERS, HEADS, LENGTH = 50_304, 768, 12, 12, 1_024


class Block(nnx.Module):
    """Attention and two dense layers, each after a norm, in BF16 over FP32 weights."""

    def __init__(self, rngs):
        settings = {"dtype": jnp.bfloat16, "rngs": rngs}
        self.norm, self.second = nnx.LayerNorm(WIDTH, **settings), nnx.LayerNorm(WIDTH, **settings)
        self.all = nnx.Linear(WIDTH, 3 * WIDTH, **settings)
        self.out = nnx.Linear(WIDTH, WIDTH, **settings)
        self.wide = nnx.Linear(WIDTH, 4 * WIDTH, **settings)
        self.back = nnx.Linear(4 * WIDTH, WIDTH, **settings)

    def __call__(self, x):
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        asked = [one.reshape(shape) for one in jnp.split(self.all(self.norm(x)), 3, -1)]
        seen = jax.nn.dot_product_attention(*asked, is_causal=True)
        x = x + self.out(seen.reshape(x.shape))
        return x + self.back(jax.nn.gelu(self.wide(self.second(x))))


class Writer(nnx.Module):
    """GPT-2 small."""

    def __init__(self, rngs):
        self.words = nnx.Embed(WORDS, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.places = nnx.Embed(LENGTH, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, ids):
        x = self.words(ids) + self.places(jnp.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.words.attend(self.norm(x))


class Bottleneck(nnx.Module):
    """Three convolutions beside what they are added to."""

    def __init__(self, taken, width, stride, rngs):
        conv = {"use_bias": False, "dtype": jnp.bfloat16, "rngs": rngs}
        norm = {"dtype": jnp.bfloat16, "rngs": rngs}
        self.first = nnx.Conv(taken, width, (1, 1), **conv)
        self.middle = nnx.Conv(width, width, (3, 3), strides=stride, **conv)
        self.last = nnx.Conv(width, 4 * width, (1, 1), **conv)
        self.norms = nnx.List([nnx.BatchNorm(one, **norm) for one in (width, width, 4 * width)])
        self.is_wider = stride > 1 or taken != 4 * width
        if self.is_wider:
            self.beside = nnx.Conv(taken, 4 * width, (1, 1), strides=stride, **conv)
            self.norm = nnx.BatchNorm(4 * width, **norm)

    def __call__(self, x):
        y = nnx.relu(self.norms[0](self.first(x)))
        y = nnx.relu(self.norms[1](self.middle(y)))
        y = self.norms[2](self.last(y))
        return nnx.relu(y + (self.norm(self.beside(x)) if self.is_wider else x))


class Seer(nnx.Module):
    """ResNet-50."""

    def __init__(self, rngs):
        self.stem = nnx.Conv(
            3, 64, (7, 7), strides=2, use_bias=False, dtype=jnp.bfloat16, rngs=rngs
        )
        self.norm = nnx.BatchNorm(64, dtype=jnp.bfloat16, rngs=rngs)
        blocks, taken = [], 64
        for width, number in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for index in range(number):
                stride = 2 if index == 0 and width > 64 else 1
                blocks.append(Bottleneck(taken, width, stride, rngs))
                taken = 4 * width
        self.blocks, self.head = nnx.List(blocks), nnx.Linear(taken, 1000, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.stem(x)))
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class WriterJob:
    """The writer with AdamW, and its texts."""

    def __init__(self):
        self.model, self.optimizer = Writer(nnx.Rngs(0)), optax.adamw(1e-6)

    def inputs(self, batch):
        """Numbers of words."""
        return jnp.zeros((batch, LENGTH), jnp.int32)


class SeerJob:
    """ResNet-50 with momentum, and its pictures."""

    def __init__(self):
        self.model, self.optimizer = Seer(nnx.Rngs(0)), optax.sgd(1e-4, momentum=0.9)

    def inputs(self, batch):
        """Pictures of 224 x 224."""
        return jnp.zeros((batch, 224, 224, 3), jnp.bfloat16)


def step_of(job):
    """A jitted training step of a job, and its state is kept between calls."""
    known = {"writer": WriterJob, "seer": SeerJob}[job["name"]]()
    model, x = known.model, known.inputs(job["batch"])
    optimizer = nnx.Optimizer(model, known.optimizer, wrt=nnx.Param)
    shape = x.shape if job["name"] == "writer" else x.shape[:1]
    targets = jnp.zeros(shape, jnp.int32)

    @nnx.jit
    def trained(model, optimizer, x, targets):
        def loss(model):
            logits = model(x).astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

        told, gradients = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradients)
        return told

    return lambda: trained(model, optimizer, x, targets).block_until_ready()


def peak_bytes():
    """Most bytes that arrays of this process held at once."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
