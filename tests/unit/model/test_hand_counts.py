"""The CUDA lowering against counts by hand, byte by byte, for every job of the memory tests.

Counted are the activations that the backward pass finds: what is made before it and used in it or
after it. Bytes are per item of the batch (`per_item`), and of what does not grow with it (`fixed`).
FP32 throughout: a number has 4 bytes, a token or an index of max-pooling 8, a mask of dropout 1.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from gpu.workers.memory_models import FAST, SLOW, Job

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner, Phase
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload

LENGTH, WIDTH, HEADS, VOCABULARY = 48, 128, 4, 500
#: Of a loss: the mean, the total weight of the classes, and the gradient that starts backward.
SCALARS = 3 * 4


@dataclass(frozen=True)
class Count:
    per_item: int
    fixed: int


def loss(classes, rows=1):
    """Logits and log-probabilities of every row, and its target."""
    return rows * (2 * 4 * classes + 8)


def mlp():
    """ReLU keeps its result, which is the input of the next layer."""
    return Count(6 * 256 * 4 + loss(10), SCALARS)


def lora():
    """The frozen base keeps nothing: the low-rank middle, GELU's input and its result."""
    return Count(4 * 4 * (8 + 512 + 512) + loss(10), SCALARS)


def transformer_layer():
    """Of a token: what enters, q, k, v, attention, what leaves each half, and GELU's two sides."""
    wide = 4 * WIDTH
    attention = wide + 3 * wide + wide + 4 * HEADS + WIDTH  # input, q k v, result, lse, mask
    norms = 2 * (wide + 2 * 4)  # input, mean and deviation
    feed_forward = wide + 4 * wide + 4 * wide + WIDTH  # input, GELU's input and result, mask
    return attention + norms + feed_forward


def gpt2():
    """Pre-norm: the final norm and the head's input beside the layers, the embedding's mask."""
    wide = 4 * WIDTH
    token = 2 * transformer_layer() + (wide + 8 + wide) + WIDTH
    return Count(LENGTH * token + loss(VOCABULARY, LENGTH), SCALARS + 8 * LENGTH)


def bert():
    """Post-norm: the embedding's norm and mask, the last output, token types; a pooler."""
    wide = 4 * WIDTH
    token = 2 * transformer_layer() + (wide + 8 + WIDTH) + wide + 8
    pooler = wide + WIDTH + wide  # tanh, mask, dropped
    return Count(LENGTH * token + pooler + loss(2), SCALARS + 8 * LENGTH)


def recurrent(kept_per_step, num_first_states):
    """Embedded tokens, states, what cuDNN is taken to keep per step, and the first states."""
    hidden = 4 * 96
    steps = LENGTH * (4 * 64 + hidden + kept_per_step * hidden)
    return Count(steps + num_first_states * hidden + loss(2), SCALARS)


def unet():
    """Two tensors per convolution (its result, and ReLU's); concatenations; pooling's indices."""
    big, middle, small = 32 * 32, 16 * 16, 8 * 8
    double = {c: 2 * 2 * c for c in (16, 32, 64)}
    numbers = double[16] * big + 3 * 16 * middle
    numbers += double[32] * middle + 3 * 32 * small
    numbers += double[64] * small
    numbers += 64 * middle + double[32] * middle
    numbers += 32 * big + double[16] * big
    channels = 2 * (16 + 32 + 64 + 32 + 16)
    return Count(4 * numbers + loss(2, big), SCALARS + 8 * channels)


def resnet18():
    """In-place ReLU: two tensors per convolution; of a shortcut only the convolution's result."""
    numbers, channels = 2 * 64 * 32**2 + 3 * 64 * 16**2 + 8 * 64 * 16**2, 64 + 4 * 64
    for width, side in ((128, 8), (256, 4), (512, 2)):
        numbers += (4 * 2 + 1) * width * side**2
        channels += 5 * width
    return Count(4 * (numbers + 512) + loss(1000), SCALARS + 8 * channels)


#: Input, expanded and output channels, squeeze or not, hard swish or ReLU, stride.
MOBILENET = (
    (16, 16, 16, True, False, 2), (16, 72, 24, False, False, 2), (24, 88, 24, False, False, 1),
    (24, 96, 40, True, True, 2), (40, 240, 40, True, True, 1), (40, 240, 40, True, True, 1),
    (40, 120, 48, True, True, 1), (48, 144, 48, True, True, 1), (48, 288, 96, True, True, 2),
    (96, 576, 96, True, True, 1), (96, 576, 96, True, True, 1),
)  # fmt: skip
SQUEEZED = {16: 8, 96: 24, 240: 64, 120: 32, 144: 40, 288: 72, 576: 144}


def mobilenet_v3():
    """Hard swish in place keeps a copy of what it overwrites: three tensors per convolution.

    The squeeze keeps the means, the middle, a copy for hard sigmoid, the scale and the product. A
    mean over all positions keeps nothing, so the last hard swish leaves no result.
    """
    side, numbers, channels = 32, 3 * 16 * 32**2, 16
    for inputs, expanded, outputs, squeezes, swishes, stride in MOBILENET:
        per_convolution = 3 if swishes else 2
        if expanded != inputs:
            numbers += per_convolution * expanded * side**2
            channels += expanded
        side //= stride
        numbers += per_convolution * expanded * side**2 + 2 * outputs * side**2
        channels += expanded + outputs
        if squeezes:
            numbers += 3 * expanded + SQUEEZED[expanded] + expanded * side**2
    numbers += 2 * 576 * side**2 + 576
    numbers += 3 * 1024  # a copy for hard swish, its result, the noise of dropout in place
    return Count(4 * numbers + loss(1000), SCALARS + 8 * (channels + 576))


#: Input; 1 × 1; 3 × 3 reduced and whole; 5 × 5 likewise; after pooling; side.
INCEPTIONS = (
    (192, 64, 96, 128, 16, 32, 32, 12), (256, 128, 128, 192, 32, 96, 64, 12),
    (480, 192, 96, 208, 16, 48, 64, 6), (512, 160, 112, 224, 24, 64, 64, 6),
    (512, 128, 128, 256, 24, 64, 64, 6), (512, 112, 144, 288, 32, 64, 64, 6),
    (528, 256, 160, 320, 32, 128, 128, 6), (832, 256, 160, 320, 32, 128, 128, 3),
    (832, 384, 192, 384, 48, 128, 128, 3),
)  # fmt: skip


def googlenet():
    """Two tensors per convolution, concatenations, pooling with indices, and two further heads."""
    numbers = 2 * 64 * 48**2 + 3 * 64 * 24**2 + 2 * (64 + 192) * 24**2 + 3 * 192 * 12**2
    numbers += 3 * 480 * 6**2 + 3 * 832 * 3**2
    channels = 64 + 64 + 192
    for inputs, one, *pairs, pooled, side in INCEPTIONS:
        convolved = one + sum(pairs) + pooled
        joined = one + pairs[1] + pairs[3] + pooled
        numbers += (2 * convolved + 3 * inputs + joined) * side**2
        channels += convolved
    numbers -= 1024 * 3**2  # the mean over all positions keeps nothing of the last concatenation
    per_item = 1024 + 4 * 1024  # mask, dropped
    for inputs in (512, 528):
        numbers += inputs * 4**2 + 2 * 128 * 4**2
        channels += 128
        per_item += 4 * 1024 + 1024 + 4 * 1024  # dense in place, mask, dropped
    scalars = 3 * 4 + 4 + 4  # a weight per loss, their sum, the first gradient
    return Count(4 * numbers + per_item + 3 * loss(1000), scalars + 8 * channels)


def frozen_vgg16():
    """Nothing of the frozen layers but what enters the dense ones; two dropouts."""
    dense = 4 * 4096 + 4096 + 4 * 4096  # ReLU in place, mask, dropped
    return Count(4 * 512 * 7**2 + 2 * dense + loss(1000), SCALARS)


COUNTS = {
    "mlp": mlp(),
    "gpt2": gpt2(),
    "bert": bert(),
    "lstm": recurrent(6, 2),
    "gru": recurrent(5, 1),
    "rnn": recurrent(2, 1),
    "lora": lora(),
    "unet": unet(),
    "resnet18": resnet18(),
    "mobilenet_v3": mobilenet_v3(),
    "googlenet": googlenet(),
    "frozen vgg16": frozen_vgg16(),
}


def dense(inputs, outputs):
    return inputs * outputs + outputs


def recurrent_parameters(num_gates):
    """Embedding, one matrix for the input and one for the state with a bias each, per gate."""
    gate = 96 * 64 + 96 * 96 + 2 * 96
    return 500 * 64 + num_gates * gate + dense(96, 2)


#: Four dense layers of attention, two of feed-forward, two norms.
LAYER = 4 * dense(WIDTH, WIDTH) + dense(WIDTH, 4 * WIDTH) + dense(4 * WIDTH, WIDTH) + 4 * WIDTH
EMBEDDINGS = (VOCABULARY + 128) * WIDTH  # tokens, positions


def unet_parameters():
    """Convolutions of 3 × 3 with batch norm (scale and shift), transposed ones, the head."""
    pairs = ((3, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64), (64, 32), (32, 32),
             (32, 16), (16, 16))  # fmt: skip
    double = sum(dense(9 * inputs, outputs) + 2 * outputs for inputs, outputs in pairs)
    return double + (4 * 64 * 32 + 32) + (4 * 32 * 16 + 16) + dense(16, 2)


#: Trained and frozen parameters: by hand, and those that torchvision publishes for its models.
PARAMETERS = {
    "mlp": (6 * dense(256, 256) + dense(256, 10), 0),
    "gpt2": (2 * LAYER + EMBEDDINGS + 2 * WIDTH, 0),
    "bert": (2 * LAYER + EMBEDDINGS + 4 * WIDTH + dense(WIDTH, WIDTH) + dense(WIDTH, 2), 0),
    "lstm": (recurrent_parameters(4), 0),
    "gru": (recurrent_parameters(3), 0),
    "rnn": (recurrent_parameters(1), 0),
    "lora": (4 * 2 * 512 * 8 + dense(512, 10), 4 * dense(512, 512)),
    "unet": (unet_parameters(), 0),
    "resnet18": (11_689_512, 0),
    "mobilenet_v3": (2_542_856, 0),
    "googlenet": (13_004_888, 0),
    "frozen vgg16": (123_642_856, 138_357_544 - 123_642_856),
}


def lowered(name):
    build, inputs = {**FAST, **SLOW}[name]
    configuration = Configuration(precision="fp32", optimizer_kernel="plain")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = load_workload(Job(build(), inputs)).passes[0].graph
    return lower(graph, configuration), lifetimes(graph, configuration)


def test_every_job_is_counted():
    assert COUNTS.keys() == {**FAST, **SLOW}.keys()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in COUNTS]
)
def test_kept_activations_are_those_counted_by_hand(name):
    one, lived = lowered(name)
    phase = one.costs.phase[one.costs.order]
    first_backward = int(np.flatnonzero(phase == Phase.BACKWARD)[0])
    crosses = (lived.birth < first_backward) & (lived.death >= first_backward)
    kept = lived.num_bytes[crosses & (lived.owner == Owner.ACTIVATION)].sum(axis=0)
    assert (kept[0], kept[1]) == (COUNTS[name].fixed, COUNTS[name].per_item)
    assert not kept[2:].any()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in PARAMETERS]
)
def test_gradients_and_state_are_those_of_trained_parameters(name):
    _, lived = lowered(name)
    trained, frozen = PARAMETERS[name]
    sizes = [lived.num_bytes[lived.owner == o].sum() for o in Owner]
    assert sizes[Owner.PARAMETER] == 4 * (trained + frozen)
    assert sizes[Owner.GRADIENT] == 4 * trained
    assert sizes[Owner.OPTIMIZER_STATE] == 8 * trained
