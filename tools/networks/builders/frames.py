"""Models of speech that go through time step by step, as published measurements ran them."""

import torch
import torch.nn.functional as F
from torch import nn


class _LocationAttention(nn.Module):
    """Attention that sees where it looked before."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(1024, 128, bias=False)
        self.place = nn.Conv1d(2, 32, 31, padding=15, bias=False)
        self.place_dense, self.v = nn.Linear(32, 128, bias=False), nn.Linear(128, 1, bias=False)

    def forward(self, hidden, memory, keys, weights, mask):
        placed = self.place_dense(self.place(weights).transpose(1, 2))
        energies = self.v(torch.tanh(self.query(hidden[:, None]) + placed + keys))[..., 0]
        looked = torch.softmax(energies.masked_fill(mask, -1e4), 1)
        return torch.bmm(looked[:, None], memory)[:, 0], looked


class Tacotron2(nn.Module):
    """Tacotron 2 with teacher forcing (Shen et al., 2018), frame after frame.

    A step is a cut of ``frames`` mel frames of an utterance of LJ Speech, with its share of the
    characters: work grows with the length alone, so the rate of frames is that of the whole.

    Source:
        NVIDIA/DeepLearningExamples, PyTorch/SpeechSynthesis/Tacotron2, tacotron2/model.py.
    """

    def __init__(self, frames=100, characters=20):
        super().__init__()
        self.frames, self.characters = frames, characters
        self.described = "cuts of %d mel frames and %d characters" % (frames, characters)
        self.embedding = nn.Embedding(148, 512)
        self.convs = nn.ModuleList([self._conv(512, 512) for _ in range(3)])
        self.encoder = nn.LSTM(512, 256, batch_first=True, bidirectional=True)
        self.prenet = nn.ModuleList([nn.Linear(80, 256, False), nn.Linear(256, 256, False)])
        self.keys = nn.Linear(512, 128, bias=False)
        self.attention_cell = nn.LSTM(768, 1024, batch_first=True)
        self.decoder_cell = nn.LSTM(1536, 1024, batch_first=True)
        self.attention = _LocationAttention()
        self.mel, self.gate = nn.Linear(1536, 80), nn.Linear(1536, 1)
        widths = (80, 512, 512, 512, 512, 80)
        self.postnet = nn.ModuleList([self._conv(a, b) for a, b in zip(widths, widths[1:])])

    @staticmethod
    def _conv(inputs, outputs):
        return nn.Sequential(nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs))

    def inputs(self, batch):
        """Characters, and the mel frames that follow from them."""
        return (
            torch.empty(batch, self.characters, dtype=torch.int64),
            torch.empty(batch, self.frames, 80),
        )

    def loss(self, output, inputs):
        """Squared errors of the frames before and after refinement, and where speech ends."""
        mels, refined, gates = output
        target = inputs[1].transpose(1, 2)
        return (
            F.mse_loss(mels, target) + F.mse_loss(refined, target)
            + F.binary_cross_entropy_with_logits(gates, torch.zeros_like(gates))
        )  # fmt: skip

    def forward(self, text, mels):
        x = self.embedding(text).transpose(1, 2)
        for conv in self.convs:
            x = F.dropout(torch.relu(conv(x)))
        memory, _ = self.encoder(x.transpose(1, 2))
        for layer in self.prenet:
            mels = F.dropout(torch.relu(layer(mels)))
        decoded, gates = self._decoded(memory, mels)
        refined = decoded
        for conv in self.postnet[:-1]:
            refined = F.dropout(torch.tanh(conv(refined)))
        return decoded, decoded + F.dropout(self.postnet[-1](refined)), gates

    def _decoded(self, memory, mels):
        keys = self.keys(memory)
        mask = memory.new_zeros(memory.shape[:2], dtype=torch.bool)
        context = memory.new_zeros(memory.shape[0], 512)
        weights = seen = memory.new_zeros(memory.shape[:2])
        first = second = None
        outputs, gates = [], []
        for frame in mels.unbind(1):
            hidden, first = self.attention_cell(torch.cat((frame, context), 1)[:, None], first)
            hidden = F.dropout(hidden[:, 0], 0.1)
            both = torch.cat((weights[:, None], seen[:, None]), 1)
            context, weights = self.attention(hidden, memory, keys, both, mask)
            seen = seen + weights
            hidden, second = self.decoder_cell(torch.cat((hidden, context), 1)[:, None], second)
            joined = torch.cat((F.dropout(hidden[:, 0], 0.1), context), 1)
            outputs.append(self.mel(joined))
            gates.append(self.gate(joined))
        return torch.stack(outputs, 2), torch.stack(gates, 1)


class DeepSpeech2(nn.Module):
    """Two convolutions and five bidirectional LSTMs over utterances (Amodei et al., 2016).

    An utterance of LibriSpeech has 12.3 s on average: 1,230 frames of 10 ms, 161 frequencies.

    Source:
        SeanNaren/deepspeech.pytorch, deepspeech_pytorch/model.py.
    """

    described = "12.3 s of sound"

    def __init__(self, hidden=1024, layers=5, frames=1230, labels=29):
        super().__init__()
        self.frames = frames
        self.convs = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.rnns = nn.ModuleList(
            [
                nn.LSTM(hidden if number else 32 * 41, hidden, batch_first=True, bidirectional=True)
                for number in range(layers)
            ]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(hidden) for _ in range(layers - 1)])
        self.head = nn.Sequential(nn.BatchNorm1d(hidden), nn.Linear(hidden, labels, bias=False))
        self.hidden = hidden

    def inputs(self, batch):
        """Spectrograms, (batch, 1, frequency, frame)."""
        return torch.empty(batch, 1, 161, self.frames)

    def loss(self, output, _inputs):
        """The softmax of CTC; its walk over alignments is not counted."""
        return F.log_softmax(output.float(), -1).mean()

    def forward(self, spectrograms):
        x = self.convs(spectrograms)
        x = x.flatten(1, 2).transpose(1, 2)
        for number, rnn in enumerate(self.rnns):
            if number:
                x = self.norms[number - 1](x.flatten(0, 1)).view(x.shape)
            x = rnn(x)[0].view(x.shape[0], x.shape[1], 2, -1).sum(2)
        return self.head(x.flatten(0, 1))


MODELS = {"tacotron2": Tacotron2, "deepspeech2": DeepSpeech2}
