"""GNMT and Transformer-XL as published measurements ran them, training and inference.

Architectures of NVIDIA/DeepLearningExamples.
"""

import torch
from torch import nn


class _GnmtAttention(nn.Module):
    """Normalised additive attention: every query against every key, in full width."""

    def __init__(self, hidden):
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.bias = nn.Parameter(torch.empty(hidden))
        self.score = nn.Parameter(torch.empty(hidden))
        self.scale = nn.Parameter(torch.empty(1))

    def forward(self, y, x):
        return torch.bmm(torch.softmax(self.energy(y, x), dim=-1), x)

    def energy(self, y, x):
        """How well every query fits every key."""
        both = self.query(y)[:, :, None] + self.key(x)[:, None]
        score = self.score / self.score.norm() * self.scale
        return torch.tanh(both + self.bias).matmul(score)


class Gnmt(nn.Module):
    """GNMT v2: four encoder and four decoder layers of 1024 with normalised attention.

    Wu et al. 2016 as in MLPerf v0.5 to v0.7: 160,671,297 parameters, the embedding shared.
    """

    def __init__(self, hidden=1024, vocabulary=32320):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.first = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.encoder = nn.ModuleList(
            [nn.LSTM(2 * hidden, hidden, batch_first=True)]
            + [nn.LSTM(hidden, hidden, batch_first=True) for _ in range(2)]
        )
        self.reader = nn.LSTM(hidden, hidden, batch_first=True)
        self.attention = _GnmtAttention(hidden)
        self.decoder = nn.ModuleList(
            [nn.LSTM(2 * hidden, hidden, batch_first=True) for _ in range(3)]
        )
        self.dropout = nn.Dropout(0.2)
        self.vocabulary = nn.Linear(hidden, vocabulary)

    def inputs(self, batch, seq):
        """Sentences and their translations."""
        return torch.empty((batch, seq), dtype=torch.int64), torch.empty(
            (batch, seq), dtype=torch.int64
        )

    def forward(self, source, target):
        x, _ = self.first(self.dropout(self.embedding(source)))
        x, _ = self.encoder[0](self.dropout(x))
        for layer in self.encoder[1:]:
            x = layer(self.dropout(x))[0] + x
        return self.vocabulary(self._decoded(target, x))

    def _decoded(self, target, x):
        y, _ = self.reader(self.dropout(self.embedding(target)))
        context = self.attention(y, x)
        for number, layer in enumerate(self.decoder):
            z = layer(self.dropout(torch.cat((y, context), -1)))[0]
            y = z if number == 0 else z + y
        return y


class GnmtStep(Gnmt):
    """One step of a search: a token for every sentence of the batch from ``beam`` candidates.

    The encoder runs once per sentence and is not counted; keys are projected anew in each step.
    What is kept of each candidate (words, length, score, coverage, state) is looked up and written
    as the search of NVIDIA/DeepLearningExamples does (read 2026-11-29), without what it does when
    sentences end.
    """

    def __init__(self, beam, longest=80):
        super().__init__()
        self.beam, self.longest = beam, longest

    def inputs(self, batch, seq):
        """Last tokens, encoded sentences and their lengths, the state of layers, what is kept."""
        rows = batch * self.beam
        whole = {"dtype": torch.int64}
        tokens, lengths = torch.empty((rows, 1), **whole), torch.empty(rows, **whole)
        active, written = torch.empty(rows, **whole), torch.empty((rows, self.longest), **whole)
        kept = (written, torch.empty(rows, **whole), torch.empty(rows), torch.empty(rows, seq))
        return (
            tokens,
            torch.empty(rows, seq, 1024),
            lengths,
            torch.empty(8, rows, 1024),
            active,
            *kept,
        )

    def forward(self, tokens, x, lengths, state, active, written, sizes, scores, covered):
        logits, state, weights = self._step(tokens, x, lengths, state)
        likely, words = torch.log_softmax(logits, dim=-1).topk(self.beam)
        if self.beam == 1:
            return self._extended(words.view(-1), active, written, sizes), state
        done = (tokens == 0).view(-1, self.beam)
        sizes[active] = sizes[active] + (~done.view(-1)).long()
        unfinished = weights.float().squeeze(1).masked_fill(done.view(-1, 1), 0.0)
        covered[active] = covered[active] + unfinished
        words, source, best = self._chosen(words, likely, done, scores[active])
        scores[active] = best.view(-1)
        kept = active[source.view(-1)]
        written[active] = written[kept]
        written[active, 1] = words.view(-1)
        sizes[active] = sizes[kept]
        return done.min(1)[0].any(), done.any(), state.index_select(1, source.view(-1))

    def _step(self, tokens, x, lengths, state):
        hidden = [tuple(layer.chunk(2)) for layer in state.chunk(4)]
        absent = torch.arange(x.shape[1]) >= lengths[:, None]
        y, new = self.reader(self.embedding(tokens), hidden[0])
        energy = self.attention.energy(y, x).masked_fill_(absent[:, None], -65504.0)
        weights = torch.softmax(energy, dim=-1)
        context, states = torch.bmm(weights, x), [*new]
        for number, layer in enumerate(self.decoder):
            z, new = layer(torch.cat((y, context), -1), hidden[number + 1])
            states += new
            y = z if number == 0 else z + y
        return self.vocabulary(y), torch.cat(states), weights

    def _extended(self, words, active, written, sizes):
        written[active, 1] = words
        sizes[active] = sizes[active] + 1
        return (words == 0).any()

    def _chosen(self, words, likely, done, scores):
        """The best of what every candidate goes on with, and of which it is."""
        square = self.beam * self.beam
        words = words.view(-1, self.beam, self.beam).masked_fill(done[..., None], 0)
        total = scores.view(-1, self.beam, 1) + likely.float().view(-1, self.beam, self.beam)
        best, index = total.view(-1, square).topk(self.beam)
        first = torch.arange(index.shape[0]) * self.beam
        source = index // self.beam + first[:, None]
        return words.view(-1, square).gather(1, index), source, best


class _RelativeBlock(nn.Module):
    """A Transformer-XL layer: attention over memory and segment with relative positions."""

    def __init__(self, width, heads, inner, dropout):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.position = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout, self.weight_dropout = nn.Dropout(dropout[0]), nn.Dropout(dropout[1])
        self.content_bias = nn.Parameter(torch.empty(1, heads, 1, self.size))
        self.position_bias = nn.Parameter(torch.empty(1, heads, 1, self.size))

    def forward(self, x, memory, positions, mask):
        batch, length, width = x.shape
        both = torch.cat((memory, x), 1)
        span = both.shape[1]
        q, k, v = self.qkv(both).view(batch, span, 3, self.heads, self.size).unbind(2)
        q, k, v = q[:, span - length :].transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        r = self.position(positions).view(span, self.heads, self.size).permute(1, 2, 0)
        content = torch.matmul(q + self.content_bias, k.transpose(-1, -2))
        rows = (q + self.position_bias).transpose(0, 1).reshape(self.heads, -1, self.size)
        place = torch.bmm(rows, r).view(self.heads, batch, length, span).transpose(0, 1)
        shifted = torch.cat((place[..., -1:], place[..., :-1]), -1)
        scores = ((content + shifted) * 0.125).masked_fill_(mask, float("-inf"))
        weights = self.weight_dropout(torch.softmax(scores, -1))
        y = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, width)
        x = self.norm1(x + self.dropout(self.out(y)))
        return self.norm2(x + self.dropout(self.down(self.dropout(torch.relu(self.up(x))))))


class TransformerXl(nn.Module):
    """Transformer-XL with the hidden states of earlier segments as memory.

    Args:
        sizes: Layers, width, heads and width of the feed-forward.
        dropout: Of activations and of attention weights.
        head: Columns of logits per token: the whole vocabulary, or with an adaptive softmax the
            20,000 commonest words and the share of the tails, see `_ADAPTIVE_HEAD`.
        memory: Tokens remembered; as many as the segment has if None.
    """

    def __init__(self, sizes, dropout, head, memory=None):
        super().__init__()
        layers, width, heads, inner = sizes
        self.embedding = nn.Embedding(_VOCABULARY, width)
        self.layers = nn.ModuleList(
            [_RelativeBlock(width, heads, inner, dropout) for _ in range(layers)]
        )
        self.head = nn.Linear(width, head)
        if head == _VOCABULARY:
            self.head.weight = self.embedding.weight
        self.width, self.memory = width, memory

    def forward(self, tokens):
        x = self.embedding(tokens)
        length = tokens.shape[1]
        past = self.memory or length
        memory = x.new_empty(tokens.shape[0], past, self.width)
        positions = x.new_empty(past + length, self.width)
        mask = x.new_empty((length, past + length), dtype=torch.bool)
        for layer in self.layers:
            x = layer(x, memory, positions, mask)
        return self.head(x)


#: Words of WikiText-103.
_VOCABULARY = 267_735
#: 20,000 common words and three clusters; tails of 20,000, 160,000 and 67,735 words are computed
#: only for the tokens in them: an estimated 2.5, 3.5 and 0.3 % of the text.
_ADAPTIVE_HEAD = 20_003 + 6_300

_BASE, _LARGE = (16, 512, 8, 2048), (18, 1024, 16, 4096)

MODELS = {
    "gnmt": Gnmt,
    "gnmt_beam1": lambda: GnmtStep(1),
    "gnmt_beam2": lambda: GnmtStep(2),
    "gnmt_beam5": lambda: GnmtStep(5),
    "transformer_xl_base": lambda: TransformerXl(_BASE, (0.1, 0.0), _ADAPTIVE_HEAD),
    "transformer_xl_large": lambda: TransformerXl(_LARGE, (0.2, 0.2), _ADAPTIVE_HEAD),
    "transformer_xl_base_full": lambda: TransformerXl(_BASE, (0.1, 0.0), _VOCABULARY),
    "transformer_xl_large_full": lambda: TransformerXl(_LARGE, (0.2, 0.2), _VOCABULARY),
    "transformer_xl_base_640": lambda: TransformerXl(_BASE, (0.0, 0.0), _ADAPTIVE_HEAD, 640),
    "transformer_xl_large_1600": lambda: TransformerXl(_LARGE, (0.0, 0.0), _ADAPTIVE_HEAD, 1600),
}
