"""Models of tables and series as published measurements ran them.

Architectures of NVIDIA/DeepLearningExamples, and of papers where a class names one.
"""

import torch
import torch.nn.functional as F
from torch import nn


def _perceptron(widths, is_last_plain=False):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers[:-1] if is_last_plain else layers))


#: Values per feature of Criteo's terabyte of clicks that occur 15 times or more.
_CRITEO_15 = (
    7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11, 2209,
    10667, 104, 4, 968, 15, 8165896, 2675940, 7156453, 302516, 12022, 97, 35,
)  # fmt: skip


class Recommender(nn.Module):
    """DLRM (Naumov et al., 2019) at MLPerf's widths: 26 tables of 128 columns in one."""

    usual_optimizer = "sgd"

    def __init__(self, values=_CRITEO_15, width=128):
        super().__init__()
        self.table, self.features = nn.Embedding(sum(values), width), len(values)
        self.bottom = _perceptron((13, 512, 256, width))
        pairs = (self.features + 1) * self.features // 2
        self.top = _perceptron((width + pairs + 1, 1024, 1024, 512, 256, 1), is_last_plain=True)
        places = [(i, j) for i in range(self.features + 1) for j in range(i)]
        self.register_buffer("rows", torch.empty(len(places), dtype=torch.int64))
        self.register_buffer("columns", torch.empty(len(places), dtype=torch.int64))

    def inputs(self, batch):
        """Numbers and ids of categories."""
        return torch.empty(batch, 13), torch.empty((batch, self.features), dtype=torch.int64)

    def loss(self, output, _inputs):
        """Whether it was clicked."""
        return F.binary_cross_entropy_with_logits(output.float(), torch.empty_like(output).float())

    def forward(self, numbers, ids):
        dense = self.bottom(numbers)
        vectors = torch.cat((dense[:, None], self.table(ids)), 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, self.rows, self.columns]
        return self.top(torch.cat((dense, pairs, dense[:, :1]), 1))


#: Rows of each table, and values that a feature has at a time, of MLPerf's DLRM-DCNv2.
_CRITEO_MULTI_HOT = (
    (40000000, 3), (39060, 2), (17295, 1), (7424, 2), (20265, 6), (3, 1), (7122, 1), (1543, 1),
    (63, 1), (40000000, 7), (3067956, 3), (405282, 8), (10, 1), (2209, 6), (11938, 9), (155, 5),
    (4, 1), (976, 1), (14, 1), (40000000, 12), (40000000, 100), (40000000, 27), (590152, 10),
    (12973, 3), (108, 1), (36, 1),
)  # fmt: skip


class CrossRecommender(nn.Module):
    """DLRM-DCNv2 of MLPerf from Training v3.0 and Inference v3.1 on.

    Tables of 128 columns, summed over a feature's values, and three crossings of rank 512 of all
    that was found. Source: mlcommons/training, recommendation_v2/torchrec_dlrm/README.MD (read
    2026-11-22, as is the Adagrad of its reference runs); Wang et al. 2021 (arXiv:2008.13535).
    """

    usual_optimizer = "adagrad"

    def __init__(self, features=_CRITEO_MULTI_HOT, width=128, rank=512, layers=3):
        super().__init__()
        self.num_features, self.num_values = len(features), sum(values for _, values in features)
        self.table = nn.Embedding(sum(rows for rows, _ in features), width)
        self.bottom = _perceptron((13, 512, 256, width))
        joined = (self.num_features + 1) * width
        self.narrow = nn.ModuleList([nn.Linear(joined, rank, bias=False) for _ in range(layers)])
        self.widen = nn.ModuleList([nn.Linear(rank, joined) for _ in range(layers)])
        self.top = _perceptron((joined, 1024, 1024, 512, 256, 1), is_last_plain=True)

    def inputs(self, batch):
        """Numbers, values of all features, and where each feature's values begin."""
        return (
            torch.empty(batch, 13),
            torch.empty(batch * self.num_values, dtype=torch.int64),
            torch.empty(batch * self.num_features, dtype=torch.int64),
        )

    def loss(self, output, _inputs):
        """Whether it was clicked."""
        return F.binary_cross_entropy_with_logits(output.float(), torch.empty_like(output).float())

    def forward(self, numbers, values, begins):
        dense = self.bottom(numbers)
        found = F.embedding_bag(values, self.table.weight, begins, mode="sum")
        x = first = torch.cat((dense, found.view(dense.shape[0], -1)), 1)
        for narrow, widen in zip(self.narrow, self.widen):
            x = first * widen(narrow(x)) + x
        return self.top(x)


class _Gated(nn.Module):
    """Gated residual network of the temporal fusion transformer."""

    def __init__(self, inputs, width, outputs=None, has_context=False, dropout=0.0):
        super().__init__()
        self.a, self.i = nn.Linear(inputs, width), nn.Linear(width, width)
        self.c = nn.Linear(width, width, bias=False) if has_context else None
        self.gate = nn.Linear(width, 2 * (outputs or width))
        self.skip = nn.Linear(inputs, outputs) if outputs else nn.Identity()
        self.norm, self.dropout = nn.LayerNorm(outputs or width, eps=1e-3), nn.Dropout(dropout)

    def forward(self, a, context=None):
        x = self.a(a)
        if context is not None:
            x = x + self.c(context).unsqueeze(1)
        x = F.glu(self.gate(self.dropout(self.i(F.elu(x)))))
        return self.norm(x + self.skip(a))


class _Selection(nn.Module):
    """Weights over variables, from all of them, on each one's own gated network."""

    def __init__(self, variables, width, has_context, dropout):
        super().__init__()
        self.weights = _Gated(variables * width, width, variables, has_context)
        self.each = nn.ModuleList([_Gated(width, width, dropout=dropout) for _ in range(variables)])

    def forward(self, x, context=None):
        weights = torch.softmax(self.weights(x.flatten(-2), context), -1)
        each = torch.stack([one(x[..., i, :]) for i, one in enumerate(self.each)], -1)
        return torch.matmul(each, weights.unsqueeze(-1)).squeeze(-1)


class FusionTransformer(nn.Module):
    """Temporal fusion transformer (Lim et al., 2021): one series of hours, a week and a day.

    Args:
        ids: Series of the data set, which a static input names.
        known: Values that are known ahead.
        width: Of every layer.
        dropout: In gated networks.
        past: Hours behind.
        ahead: Hours to foretell.
        heads: Of its attention, which share their values.
    """

    def __init__(self, ids=369, known=3, width=128, dropout=0.1, past=168, ahead=24, heads=4):
        super().__init__()
        self.sizes = (known, width, past, ahead, heads)
        self.described = "%d hours behind and %d ahead" % (past, ahead)
        self.static = nn.Embedding(ids, width)
        self.known = nn.Parameter(torch.empty(2, known, width))
        self.target = nn.Parameter(torch.empty(2, 1, width))
        self.static_choice = _Selection(1, width, False, dropout)
        self.contexts = nn.ModuleList([_Gated(width, width, dropout=dropout) for _ in range(4)])
        self.past_choice = _Selection(known + 1, width, True, dropout)
        self.ahead_choice = _Selection(known, width, True, dropout)
        self.past_layer = nn.LSTM(width, width, batch_first=True)
        self.ahead_layer = nn.LSTM(width, width, batch_first=True)
        self.gates = nn.ModuleList([nn.Linear(width, 2 * width) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(width, eps=1e-3) for _ in range(3)])
        self.enrich = _Gated(width, width, has_context=True, dropout=dropout)
        self.qkv = nn.Linear(width, (2 * heads + 1) * width // heads, bias=False)
        self.out = nn.Linear(width // heads, width, bias=False)
        self.last, self.quantiles = _Gated(width, width, dropout=dropout), nn.Linear(width, 3)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.empty(past + ahead, past + ahead))

    def inputs(self, batch):
        """Ids, what is known of every hour, and the series."""
        known, _, past, ahead, _ = self.sizes
        ids = torch.empty((batch, 1), dtype=torch.int64)
        return ids, torch.empty(batch, past + ahead, known), torch.empty(batch, past + ahead, 1)

    def loss(self, output, _inputs):
        """As many numbers as the quantile loss."""
        return output.float().abs().sum(-1).mean()

    def forward(self, ids, known, target):
        past = self.sizes[2]
        static = self.static_choice(self.static(ids))
        select, enrich, hidden, cell = (one(static) for one in self.contexts)
        known = known.unsqueeze(-1) * self.known[0] + self.known[1]
        target = target.unsqueeze(-1) * self.target[0] + self.target[1]
        both = torch.cat((known[:, :past], target[:, :past]), -2)
        behind = self.past_choice(both, select)
        before, state = self.past_layer(behind, (hidden[None], cell[None]))
        future = self.ahead_choice(known[:, past:], select)
        after, _ = self.ahead_layer(future, state)
        series = torch.cat((before, after), 1)
        series = self._gated(0, series, torch.cat((behind, future), 1))
        enriched = self.enrich(series, enrich)
        attended = self._attend(enriched)[:, past:]
        x = self._gated(1, attended, enriched[:, past:])
        return self.quantiles(self._gated(2, self.last(x), series[:, past:]))

    def _gated(self, number, x, skip):
        return self.norms[number](F.glu(self.gates[number](x)) + skip)

    def _attend(self, x):
        """Attention whose heads share their values and are averaged."""
        width, heads = self.sizes[1], self.sizes[4]
        head = width // heads
        q, k, v = self.qkv(x).split((width, width, head), -1)
        q, k = (one.view(*one.shape[:2], heads, head).transpose(1, 2) for one in (q, k))
        scores = torch.matmul(q, k.transpose(2, 3)) * head**-0.5 + self.mask
        weights = self.dropout(torch.softmax(scores, -1))
        return self.dropout(self.out(torch.matmul(weights, v.unsqueeze(1)).mean(1)))


class _Clicks(nn.Module):
    """Whether something is clicked, or true."""

    def loss(self, output, _inputs):
        """Cross-entropy of two classes."""
        return F.binary_cross_entropy_with_logits(output.float(), torch.empty_like(output).float())


class FactorsAndLayers(_Clicks):
    """DeepFM (Guo et al. 2017, arXiv:1703.04247): 39 fields of ten numbers, three layers of 400.

    The tables have the 1.3 million features that the paper's table 1 names of Criteo.
    """

    def __init__(self, features=1_300_000, fields=39, width=10):
        super().__init__()
        self.table, self.linear = nn.Embedding(features, width), nn.Embedding(features, 1)
        self.deep = _perceptron((fields * width, 400, 400, 400, 1), is_last_plain=True)
        self.fields = fields

    def inputs(self, batch):
        """A feature of each field."""
        return torch.empty((batch, self.fields), dtype=torch.int64)

    def forward(self, ids):
        vectors = self.table(ids)
        pairs = 0.5 * (vectors.sum(1).pow(2) - vectors.pow(2).sum(1)).sum(-1, keepdim=True)
        return self.linear(ids).sum(1) + pairs + self.deep(vectors.flatten(1))


class TwoTowers(nn.Module):
    """Two towers of layers over ids, trained against the other items of the batch.

    Yi et al. 2019 (RecSys, Sampling-Bias-Corrected Neural Modeling); users and films are those of
    MovieLens 25M.
    """

    def __init__(self, users=162_541, items=62_423, width=128, widths=(512, 256, 128)):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.towers = nn.ModuleList(_perceptron((width, *widths), True) for _ in range(2))

    def inputs(self, batch):
        """Users, and what they chose."""
        whole = {"dtype": torch.int64}
        return torch.empty(batch, **whole), torch.empty(batch, **whole)

    def loss(self, output, _inputs):
        """Which item of the batch is whose."""
        scores = output[0] @ output[1].t()
        return F.cross_entropy(scores, torch.empty(len(scores), dtype=torch.int64))

    def forward(self, users, items):
        asked = F.normalize(self.towers[0](self.users(users)), dim=-1)
        return asked, F.normalize(self.towers[1](self.items(items)), dim=-1)


class _Gate(nn.Module):
    """ReGLU."""

    def forward(self, x):
        a, b = x.chunk(2, -1)
        return a * F.relu(b)


class _TableBlock(nn.Module):
    def __init__(self, width, heads, inner, is_gated):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        up = nn.Linear(width, 2 * inner if is_gated else inner)
        self.deep = nn.Sequential(up, _Gate() if is_gated else nn.GELU(), nn.Linear(inner, width))

    def forward(self, x):
        q, k, v = (
            self.qkv(self.norm1(x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + self.out(y)
        return x + self.deep(self.norm2(x))


class FeatureTransformer(_Clicks):
    """FT-Transformer's default (Gorishniy et al. 2021, arXiv:2106.11959, appendix E), 28 numbers.

    A token for each number of HIGGS and one for the class, three blocks of 192.
    """

    def __init__(self, numbers=28, width=192, layers=3, heads=8, inner=256):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(numbers, width))
        self.shift = nn.Parameter(torch.empty(numbers, width))
        self.whole = nn.Parameter(torch.empty(1, width))
        self.blocks = nn.ModuleList(_TableBlock(width, heads, inner, True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

    def inputs(self, batch):
        """Rows."""
        return torch.empty(batch, len(self.scale))

    def forward(self, rows):
        x = rows[..., None] * self.scale + self.shift
        x = torch.cat((self.whole.expand(len(rows), 1, -1), x), 1)
        for block in self.blocks:
            x = block(x)
        return self.head(F.relu(self.norm(x[:, 0])))


class CategoryTransformer(_Clicks):
    """TabTransformer (Huang et al. 2020, arXiv:2012.06678): six blocks of 32 over categories.

    The eight categories and six numbers of Adult; the layers after are four and two times as wide
    as what enters them.
    """

    def __init__(self, categories=8, values=102, numbers=6, width=32, layers=6):
        super().__init__()
        self.words, self.norm = nn.Embedding(values, width), nn.LayerNorm(numbers)
        self.blocks = nn.ModuleList(_TableBlock(width, 8, 4 * width, False) for _ in range(layers))
        joined = categories * width + numbers
        self.deep = _perceptron((joined, 4 * joined, 2 * joined, 1), is_last_plain=True)
        self.sizes = categories, numbers

    def inputs(self, batch):
        """Categories and numbers of rows."""
        categories, numbers = self.sizes
        return torch.empty((batch, categories), dtype=torch.int64), torch.empty(batch, numbers)

    def forward(self, categories, numbers):
        x = self.words(categories)
        for block in self.blocks:
            x = block(x)
        return self.deep(torch.cat((x.flatten(1), self.norm(numbers)), -1))


class NextItem(nn.Module):
    """SASRec (Kang and McAuley 2018, arXiv:1808.09781): two blocks of 50 over 200 films.

    The 3,416 films of MovieLens 1M.
    """

    def __init__(self, items=3416, length=200, width=50, layers=2):
        super().__init__()
        self.items, self.places = nn.Embedding(items + 1, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(_TableBlock(width, 1, width, False) for _ in range(layers))
        self.norm, self.length = nn.LayerNorm(width), length
        self.described = f"histories of {length} films"

    def inputs(self, batch):
        """What was chosen, what came next, and what did not."""
        return tuple(torch.empty((batch, self.length), dtype=torch.int64) for _ in range(3))

    def loss(self, output, _inputs):
        """What came next above what did not."""
        return F.softplus(-output[0]).mean() + F.softplus(output[1]).mean()

    def forward(self, chosen, nexts, others):
        x = self.items(chosen) + self.places.weight
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return [(x * self.items(one)).sum(-1) for one in (nexts, others)]


MODELS = {
    "deepfm": FactorsAndLayers,
    "two_tower": TwoTowers,
    "ft_transformer": FeatureTransformer,
    "tab_transformer": CategoryTransformer,
    "sasrec": NextItem,
    "dlrm_dcnv2": CrossRecommender,
    "dlrm_small": Recommender,
    "tft_electricity": FusionTransformer,
    "tft_traffic": lambda: FusionTransformer(ids=963, known=3, dropout=0.3),
}
