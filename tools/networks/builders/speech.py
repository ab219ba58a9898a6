"""Models of speech as published measurements ran them.

Architectures of NVIDIA/DeepLearningExamples.
"""

import torch
import torch.nn.functional as F
from torch import nn


class _Residual(nn.Module):
    """Three dilations, each with two convolutions (HiFi-GAN V1)."""

    def __init__(self, channels, kernel):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.ModuleList(
                    [
                        nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel // 2))
                        for d in (dilation, 1)
                    ]
                )
                for dilation in (1, 3, 5)
            ]
        )

    def forward(self, x):
        for wide, plain in self.convs:
            x = x + plain(F.leaky_relu(wide(F.leaky_relu(x, 0.1)), 0.1))
        return x


class HifiGan(nn.Module):
    """The generator of HiFi-GAN V1 (Kong et al., 2020): 80 mels to 256 samples each.

    656 frames: 7.6 s of speech at 22,050 samples per second.
    """

    described = "7.6 s of sound"

    def __init__(self, frames=656):
        super().__init__()
        self.first, self.frames = nn.Conv1d(80, 512, 7, padding=3), frames
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        channels = 512
        for rate in (8, 8, 2, 2):
            up = nn.ConvTranspose2d(
                channels, channels // 2, (1, 2 * rate), (1, rate), (0, rate // 2)
            )
            self.ups.append(up)
            channels //= 2
            self.blocks.append(nn.ModuleList([_Residual(channels, k) for k in (3, 7, 11)]))
        self.last = nn.Conv1d(channels, 1, 7, padding=3)

    def inputs(self, batch):
        """Mel frames."""
        return torch.empty(batch, 80, self.frames)

    def forward(self, mels):
        x = self.first(mels)
        for up, blocks in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1)[:, :, None])[:, :, 0]
            x = sum(block(x) for block in blocks) / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


class _SpeechBlock(nn.Module):
    """Attention and a feed-forward of two convolutions (FastSpeech, 2019)."""

    def __init__(self, width=384, inner=1536, head=64, heads=1):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * head * heads)
        self.out = nn.Linear(head * heads, width, bias=False)
        self.heads = heads
        self.up = nn.Conv1d(width, inner, 3, padding=1)
        self.down = nn.Conv1d(inner, width, 3, padding=1)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        if self.heads > 1:
            return self._finished(x, self._many_heads(x))
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.125, -1)
        return self._finished(x, torch.bmm(self.dropout(weights), v))

    def _many_heads(self, x):
        """Heads beside the batch, as products of batches have them."""
        batch, length, _ = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = (one.reshape(batch * self.heads, length, -1) for one in parts.unbind(0))
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.125, -1)
        y = torch.bmm(self.dropout(weights), v).view(batch, self.heads, length, -1)
        return y.transpose(1, 2).reshape(batch, length, -1)

    def _finished(self, x, attended):
        x = self.norm1(x + self.dropout(self.out(attended)))
        y = self.down(torch.relu(self.up(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm2(x + self.dropout(y))


def _predictor():
    """One number per character."""
    layers = [nn.Conv1d(384, 256, 3, padding=1), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.Conv1d(256, 256, 3, padding=1), nn.ReLU(), nn.Conv1d(256, 1, 1)
    )


class _OfText(nn.Module):
    """What models from characters to mel frames and further answers share."""

    @property
    def described(self):
        """As printed."""
        return "texts of %d characters" % self.characters

    def inputs(self, batch):
        """Texts, as numbers of their characters."""
        return torch.empty((batch, self.characters), dtype=torch.int64)

    def loss(self, output, _inputs):
        """Squares of every answer."""
        return sum(part.float().pow(2).mean() for part in output)

    def _read(self, text):
        x = self.embedding(text)
        for block in self.encoder:
            x = block(x)
        return x

    def _spoken(self, x):
        """Mel frames, as many of each character."""
        x = x[:, :, None].expand(-1, -1, self.stretch, -1).reshape(x.shape[0], -1, 384)
        for block in self.decoder:
            x = block(x)
        return self.head(x)


class FastPitch(_OfText):
    """FastPitch (Łańcucki, 2020): 128 characters to 640 mel frames."""

    def __init__(self, characters=128, frames_per_character=5):
        super().__init__()
        self.embedding = nn.Embedding(148, 384)
        self.encoder = nn.ModuleList([_SpeechBlock() for _ in range(6)])
        self.decoder = nn.ModuleList([_SpeechBlock() for _ in range(6)])
        self.predictors = nn.ModuleList([_predictor() for _ in range(2)])
        self.pitch = nn.Conv1d(1, 384, 3, padding=1)
        self.head = nn.Linear(384, 80)
        self.characters, self.stretch = characters, frames_per_character

    def forward(self, text):
        x = self._read(text)
        lengths, pitch = (one(x.transpose(1, 2)) for one in self.predictors)
        x = x + self.pitch(pitch).transpose(1, 2)
        return self._spoken(x), lengths, pitch


class FastSpeech(_OfText):
    """FastSpeech (Ren et al., 2019) as its CUDA-optimised example runs it.

    122 characters to 610 mel frames; blocks have two heads, and durations alone are predicted.
    """

    def __init__(self, characters=122, frames_per_character=5):
        super().__init__()
        self.embedding = nn.Embedding(149, 384)
        self.encoder = nn.ModuleList([_SpeechBlock(heads=2) for _ in range(6)])
        self.decoder = nn.ModuleList([_SpeechBlock(heads=2) for _ in range(6)])
        self.durations = _predictor()
        self.head = nn.Linear(384, 80)
        self.characters, self.stretch = characters, frames_per_character

    def forward(self, text):
        x = self._read(text)
        durations = self.durations(x.transpose(1, 2))
        return self._spoken(x), durations


class Spoken(nn.Module):
    """Text to mel frames to sound: a model of text and its vocoder, one after the other."""

    def __init__(self, text, vocoder):
        super().__init__()
        self.text, self.vocoder, self.described = text, vocoder, text.described

    def inputs(self, batch):
        """Text, as its own model takes it."""
        return self.text.inputs(batch)

    def forward(self, text):
        mels = self.text(text)[0]
        return self.vocoder(mels.transpose(1, 2))


class _WaveGlowVocoder(nn.Module):
    """WaveGlow backwards: mel frames widened to samples, then noise through its flows."""

    def __init__(self):
        super().__init__()
        from networks.builders.models import WaveGlow

        self.widen = nn.ConvTranspose1d(80, 80, 1024, 256, padding=384)
        self.glow = WaveGlow(256)

    def forward(self, mels):
        wide = self.widen(mels)
        groups = wide.reshape(wide.shape[0], 640, -1)
        noise = torch.empty_like(groups[:, :8]).normal_()
        return self.glow(noise, groups)


class _SpeechLayer(nn.Module):
    """A convolution over time, in full or per channel, with normalisation and dropout."""

    def __init__(self, inputs, outputs, kernel, is_separable, stride=1, dilation=1):
        super().__init__()
        padding = dilation * (kernel // 2)
        if is_separable:
            self.conv = nn.Sequential(
                nn.Conv1d(inputs, inputs, kernel, stride, padding, dilation, inputs, bias=False),
                nn.Conv1d(inputs, outputs, 1, bias=False),
            )
        else:
            self.conv = nn.Conv1d(inputs, outputs, kernel, stride, padding, dilation, bias=False)
        self.norm, self.dropout = nn.BatchNorm1d(outputs), nn.Dropout(0.2)

    def forward(self, x, skip=None):
        x = self.norm(self.conv(x))
        return self.dropout(torch.relu(x if skip is None else x + skip))


class SpeechRecogniser(nn.Module):
    """Blocks of convolutions over time with CTC: Jasper (Li et al., 2019), QuartzNet (2020).

    Args:
        blocks: Kernel and channels of each block.
        repeats: Convolutions per block.
        tail: Channels of the two last layers.
        is_separable: Depthwise and pointwise convolutions (QuartzNet).
        frames: Of 10 ms, in an utterance of 15 s with its padding.
    """

    described = "15 s of sound"

    def __init__(self, blocks, repeats, tail, is_separable, frames=1500):
        super().__init__()
        start = 256
        self.first = _SpeechLayer(64, start, blocks[0][0], is_separable, stride=2)
        self.blocks, self.skips = nn.ModuleList(), nn.ModuleList()
        inputs = start
        for kernel, channels in blocks:
            widths = [inputs] + [channels] * repeats
            self.blocks.append(
                nn.ModuleList(
                    [_SpeechLayer(a, b, kernel, is_separable) for a, b in zip(widths, widths[1:])]
                )
            )
            self.skips.append(
                nn.Sequential(nn.Conv1d(inputs, channels, 1, bias=False), nn.BatchNorm1d(channels))
            )
            inputs = channels
        self.wide = _SpeechLayer(inputs, tail[0], 87, is_separable, dilation=2)
        self.flat = _SpeechLayer(tail[0], tail[1], 1, False)
        self.head, self.frames = nn.Conv1d(tail[1], 29, 1), frames

    def inputs(self, batch):
        """Mel frames."""
        return torch.empty(batch, 64, self.frames)

    def loss(self, output, _inputs):
        """The softmax of CTC; its walk over alignments is not counted."""
        return F.log_softmax(output.float(), 1).mean()

    def forward(self, mels):
        x = self.first(mels)
        for layers, skip in zip(self.blocks, self.skips):
            y = x
            for layer in layers[:-1]:
                y = layer(y)
            x = layers[-1](y, skip(x))
        return self.head(self.flat(self.wide(x)))


class Transducer(nn.Module):
    """RNN-T of MLPerf Inference: LSTMs over sound, and a decoder that walks step by step.

    Five layers of 1024, of which the last three read pairs of frames; two of 320 over letters; one
    layer of 512 joins both. A greedy search takes a step for every frame and every letter.
    Source: mlcommons/inference, speech_recognition/rnnt, pytorch/configs/rnnt.toml and model_*.py
    (recalled 2026-11-27).

    Args:
        frames: Of 30 ms, three stacked: 6.3 s, the mean of LibriSpeech's dev-clean up to 15 s.
        letters: Of its text: 15 a second.
        letter_kinds: Of the alphabet, the blank included.
    """

    described = "6.3 s of sound"

    def __init__(self, frames=210, letters=94, letter_kinds=29, width=1024, inner=320):
        super().__init__()
        self.sizes = frames, letters
        self.before = nn.LSTM(240, width, 2, batch_first=True)
        self.after = nn.LSTM(2 * width, width, 3, batch_first=True)
        self.letters = nn.Embedding(letter_kinds - 1, inner)
        self.spoken = nn.LSTM(inner, inner, 2, batch_first=True)
        self.join_sound, self.join_text = nn.Linear(width, 512), nn.Linear(inner, 512, bias=False)
        self.head = nn.Linear(512, letter_kinds)

    def inputs(self, batch):
        """Stacked mel frames and letters."""
        frames, letters = self.sizes
        return torch.empty(batch, frames, 240), torch.empty((batch, letters), dtype=torch.int64)

    def loss(self, output, _inputs):
        """The softmax of all pairs; its walk over alignments is not counted."""
        return F.log_softmax(output.float(), -1).mean()

    def forward(self, mels, letters):
        x = self.before(mels)[0]
        x = self.after(x.reshape(len(x), -1, 2 * x.shape[2]))[0]
        if self.training:
            text = self.join_text(self.spoken(self.letters(letters))[0])
            return self.head(torch.relu(self.join_sound(x)[:, :, None] + text[:, None]))
        return self._walk(x, letters)

    def _walk(self, x, letters):
        """Each step joins a frame with the last letter; every letter moves the text on."""
        state, text, written = None, None, []
        for step in range(letters.shape[1]):
            text, state = self.spoken(self.letters(letters[:, step : step + 1]), state)
            written.append(self._joined(x[:, step : step + 1], text))
        written += [self._joined(x[:, step : step + 1], text) for step in range(x.shape[1])]
        return torch.cat(written, 1)

    def _joined(self, frame, text):
        joined = torch.relu(self.join_sound(frame) + self.join_text(text))
        return self.head(joined).argmax(-1)


_JASPER = [(k, c) for k, c in ((11, 256), (13, 384), (17, 512), (21, 640), (25, 768))
           for _ in range(2)]  # fmt: skip
_QUARTZNET = [(k, c) for k, c in ((33, 256), (39, 256), (51, 512), (63, 512), (75, 512))
              for _ in range(3)]  # fmt: skip

MODELS = {
    "hifigan": HifiGan,
    "fastpitch": FastPitch,
    "fastpitch_hifigan": lambda: Spoken(FastPitch(), HifiGan()),
    "fastpitch_waveglow": lambda: Spoken(FastPitch(), _WaveGlowVocoder()),
    "fastspeech": FastSpeech,
    "fastspeech_waveglow": lambda: Spoken(FastSpeech(), _WaveGlowVocoder()),
    "jasper": lambda: SpeechRecogniser(_JASPER, 5, (896, 1024), False),
    "rnnt": Transducer,
    "quartznet": lambda: SpeechRecogniser(_QUARTZNET, 5, (512, 1024), True),
}
