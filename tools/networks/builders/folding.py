"""AlphaFold 2 (monomer, with templates) as its paper lays it out, on crops of a protein.

Layers and widths of Jumper et al. 2021 (doi 10.1038/s41586-021-03819-2), supplementary algorithms
2 to 32 (recalled 2026-11-22), as OpenFold has them too; crops, clusters and sequences of its
table 4 and of OpenFold in MLPerf HPC (crop 256, 124 clusters beside four templates, 1,024 further
sequences; read 2026-11-22). Side chains' own loss is left out; other losses are those of every
residue.
"""

import torch
import torch.nn.functional as F
from torch import nn

_MSA, _PAIR, _SINGLE, _EXTRA, _TEMPLATE = 256, 128, 384, 64, 64
_TARGET, _CLUSTER, _SEQUENCE, _ANGLES, _PAIRS = 22, 49, 25, 57, 88
_FAR, _BINS, _NUM_TEMPLATES = 32, 15, 4


def _shared_dropout(x, share, axis, is_training):
    """Dropout of the same places along an axis."""
    if not is_training:
        return x
    return x * F.dropout(torch.ones_like(x.narrow(axis, 0, 1)), share)


class _Attention(nn.Module):
    """Gated attention along the last axis but one (batch, rows, places, channels).

    Args:
        width: Of the input.
        heads: How many.
        size: Of each.
        pair: Channels of pairs that say a bias of every two places; None for none.
    """

    def __init__(self, width, heads, size, pair=None):
        super().__init__()
        self.heads, self.size = heads, size
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.ModuleList([nn.Linear(width, heads * size, bias=False) for _ in range(3)])
        self.gate, self.out = nn.Linear(width, heads * size), nn.Linear(heads * size, width)
        self.bias = nn.Linear(pair, heads, bias=False) if pair else None

    def forward(self, x, pairs=None):
        x = self.norm(x)
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3) for layer in self.qkv)
        weights = q * self.size**-0.5 @ k.transpose(-1, -2)
        if self.bias is not None:
            pairs = x if pairs is None else pairs
            weights = weights + self.bias(pairs).permute(0, 3, 1, 2).unsqueeze(1)
        y = (weights.softmax(-1) @ v).transpose(-2, -3).flatten(-2)
        return self.out(self.gate(x).sigmoid() * y)


class _BiasedAttention(_Attention):
    """The same with a norm of the pairs that say the bias."""

    def __init__(self, width, heads, size, pair):
        super().__init__(width, heads, size, pair)
        self.norm_pairs = nn.LayerNorm(pair)

    def forward(self, x, pairs):
        return super().forward(x, self.norm_pairs(pairs))


class _GlobalAttention(nn.Module):
    """One mean query of a column for all its sequences (algorithm 19)."""

    def __init__(self, width, heads, size):
        super().__init__()
        self.heads, self.size, self.norm = heads, size, nn.LayerNorm(width)
        self.query = nn.Linear(width, heads * size, bias=False)
        self.key, self.value = (nn.Linear(width, size, bias=False) for _ in range(2))
        self.gate, self.out = nn.Linear(width, heads * size), nn.Linear(heads * size, width)

    def forward(self, x):
        x = self.norm(x)
        q = self.query(x.mean(-2)).unflatten(-1, (self.heads, -1)) * self.size**-0.5
        y = (q @ self.key(x).transpose(-1, -2)).softmax(-1) @ self.value(x)
        return self.out(self.gate(x).sigmoid() * y.flatten(-2).unsqueeze(-2))


class _Transition(nn.Sequential):
    def __init__(self, width, growth):
        inner = width * growth
        super().__init__(
            nn.LayerNorm(width), nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)
        )


class _OuterProduct(nn.Module):
    """Mean over sequences of the product of every two places (algorithm 10)."""

    def __init__(self, width, pair, size=32):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.left, self.right = nn.Linear(width, size), nn.Linear(width, size)
        self.out = nn.Linear(size * size, pair)

    def forward(self, x):
        x = self.norm(x)
        product = torch.einsum("bsic,bsjd->bijcd", self.left(x), self.right(x))
        return self.out(product.flatten(-2)) / x.shape[1]


class _Triangle(nn.Module):
    """Every pair by the two others of its triangles, outgoing or incoming (algorithms 11, 12)."""

    def __init__(self, width, inner, is_outgoing):
        super().__init__()
        self.sum = "bikc,bjkc->bijc" if is_outgoing else "bkic,bkjc->bijc"
        self.norm, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(inner)
        self.sides = nn.ModuleList([nn.Linear(width, inner) for _ in range(2)])
        self.gates = nn.ModuleList([nn.Linear(width, inner) for _ in range(2)])
        self.gate, self.out = nn.Linear(width, width), nn.Linear(inner, width)

    def forward(self, x):
        x = self.norm(x)
        a, b = (gate(x).sigmoid() * side(x) for gate, side in zip(self.gates, self.sides))
        return self.gate(x).sigmoid() * self.out(self.norm_out(torch.einsum(self.sum, a, b)))


class _Pairs(nn.Module):
    """What a block does with pairs: triangles, attention around both nodes, a transition."""

    def __init__(self, width, inner, size, growth):
        super().__init__()
        self.triangles = nn.ModuleList([_Triangle(width, inner, out) for out in (True, False)])
        self.around = nn.ModuleList([_Attention(width, 4, size, width) for _ in range(2)])
        self.transition = _Transition(width, growth)

    def forward(self, z):
        for triangle in self.triangles:
            z = z + _shared_dropout(triangle(z), 0.25, 1, self.training)
        start, end = self.around
        z = z + _shared_dropout(start(z), 0.25, 1, self.training)
        turned = z.transpose(1, 2)
        z = (turned + _shared_dropout(end(turned), 0.25, 1, self.training)).transpose(1, 2)
        return z + self.transition(z)


class _Block(nn.Module):
    """One block of the Evoformer (algorithm 6), or of the stack of further sequences (18)."""

    def __init__(self, width, size, is_extra):
        super().__init__()
        self.rows = _BiasedAttention(width, 8, size, _PAIR)
        self.columns = (_GlobalAttention if is_extra else _Attention)(width, 8, size)
        self.transition = _Transition(width, 4)
        self.outer = _OuterProduct(width, _PAIR)
        self.pairs = _Pairs(_PAIR, 128, 32, 4)

    def forward(self, m, z):
        m = m + _shared_dropout(self.rows(m, z), 0.15, 1, self.training)
        m = m + self.columns(m.transpose(1, 2)).transpose(1, 2)
        m = m + self.transition(m)
        return m, self.pairs(z + self.outer(m))


class _Templates(nn.Module):
    """Pairs of four templates, to which every pair attends (algorithms 16, 17)."""

    def __init__(self):
        super().__init__()
        self.pairs, self.norm = nn.Linear(_PAIRS, _TEMPLATE), nn.LayerNorm(_TEMPLATE)
        self.blocks = nn.ModuleList([_Pairs(_TEMPLATE, 64, 16, 2) for _ in range(2)])
        self.query = nn.Linear(_PAIR, 64, bias=False)
        self.key, self.value = (nn.Linear(_TEMPLATE, 64, bias=False) for _ in range(2))
        self.out = nn.Linear(64, _PAIR)
        self.angles = nn.Sequential(nn.Linear(_ANGLES, _MSA), nn.ReLU(), nn.Linear(_MSA, _MSA))

    def forward(self, pairs, z):
        told = self.pairs(pairs).flatten(0, 1)
        for block in self.blocks:
            told = block(told)
        told = self.norm(told).unflatten(0, pairs.shape[:2]).permute(0, 2, 3, 1, 4)
        q = self.query(z).unflatten(-1, (4, 1, -1))
        k, v = (f(told).unflatten(-1, (4, -1)).transpose(-2, -3) for f in (self.key, self.value))
        weights = (q * 16**-0.5 @ k.transpose(-1, -2)).softmax(-1)
        return self.out((weights @ v).flatten(-3))


class _PointAttention(nn.Module):
    """Attention that no turn of the protein changes (algorithm 22)."""

    def __init__(self, heads=12, size=16, queries=4, values=8):
        super().__init__()
        self.heads, self.size, self.counts = heads, size, (queries, values)
        self.query, self.both = (nn.Linear(_SINGLE, n * heads * size) for n in (1, 2))
        self.query_points = nn.Linear(_SINGLE, heads * queries * 3)
        self.both_points = nn.Linear(_SINGLE, heads * (queries + values) * 3)
        self.bias, self.weights = nn.Linear(_PAIR, heads), nn.Parameter(torch.empty(heads))
        self.out = nn.Linear(heads * (size + _PAIR + 4 * values), _SINGLE)

    def forward(self, s, z, turn, shift):
        q = self.query(s).unflatten(-1, (self.heads, -1))
        k, v = self.both(s).unflatten(-1, (self.heads, -1)).chunk(2, -1)
        queried = self._placed(self.query_points(s), turn, shift)
        keyed, valued = self._placed(self.both_points(s), turn, shift).split(self.counts, -2)
        apart = (queried.unsqueeze(2) - keyed.unsqueeze(1)).square().sum((-1, -2))
        scores = torch.einsum("bihc,bjhc->bijh", q, k) * (3 * self.size) ** -0.5
        scores = scores + self.bias(z) * 3**-0.5 - apart * F.softplus(self.weights) * 18**-0.5
        weights = scores.softmax(2)
        points = torch.einsum("bijh,bjhpx->bihpx", weights, valued)
        points = torch.einsum("bixy,bihpx->bihpy", turn, points - shift[:, :, None, None])
        told = (
            torch.einsum("bijh,bjhc->bihc", weights, v), points.flatten(-2),
            points.square().sum(-1).sqrt(), torch.einsum("bijh,bijc->bihc", weights, z),
        )  # fmt: skip
        return self.out(torch.cat(told, -1).flatten(-2))

    def _placed(self, points, turn, shift):
        points = points.unflatten(-1, (self.heads, -1, 3))
        return torch.einsum("bixy,bihpy->bihpx", turn, points) + shift[:, :, None, None]


class _Structure(nn.Module):
    """Eight rounds of the same layers that move every residue (algorithm 20)."""

    def __init__(self, rounds=8):
        super().__init__()
        self.rounds = rounds
        self.norm, self.norm_pairs = nn.LayerNorm(_SINGLE), nn.LayerNorm(_PAIR)
        self.first, self.attention = nn.Linear(_SINGLE, _SINGLE), _PointAttention()
        self.norm_attention, self.norm_last = nn.LayerNorm(_SINGLE), nn.LayerNorm(_SINGLE)
        three = [nn.Linear(_SINGLE, _SINGLE) for _ in range(3)]
        self.layers = nn.Sequential(three[0], nn.ReLU(), three[1], nn.ReLU(), three[2])
        self.move = nn.Linear(_SINGLE, 6)
        self.into = nn.ModuleList([nn.Linear(_SINGLE, 128) for _ in range(2)])
        self.angle_layers = nn.ModuleList([self._two() for _ in range(2)])
        self.angles = nn.Linear(128, 14)

    @staticmethod
    def _two():
        return nn.Sequential(nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))

    def forward(self, s, z):
        initial, z = self.norm(s), self.norm_pairs(z)
        s = self.first(initial)
        turn = torch.eye(3, device=s.device, dtype=s.dtype).expand(*s.shape[:2], 3, 3)
        shift = s.new_zeros(*s.shape[:2], 3)
        frames, angles = [], []
        for _ in range(self.rounds):
            s = s + self.attention(s, z, turn, shift)
            s = self.norm_attention(F.dropout(s, 0.1, self.training))
            s = self.norm_last(F.dropout(s + self.layers(s), 0.1, self.training))
            moved = self.move(s)
            shift = shift + (turn @ moved[..., 3:, None]).squeeze(-1)
            turn = turn @ _turned(moved[..., :3])
            frames.append((turn, shift))
            angles.append(self._angles(s, initial))
            turn = turn.detach()
        return s, frames, angles

    def _angles(self, s, initial):
        x = sum(layer(F.relu(one)) for layer, one in zip(self.into, (s, initial)))
        for layer in self.angle_layers:
            x = x + layer(x)
        x = self.angles(F.relu(x)).unflatten(-1, (7, 2))
        return x / x.square().sum(-1, keepdim=True).sqrt()


def _turned(numbers):
    """Rotations of quaternions whose first number is one."""
    length = (1 + numbers.square().sum(-1, keepdim=True)).sqrt()
    a, (b, c, d) = 1 / length.squeeze(-1), (numbers / length).unbind(-1)
    rows = (
        a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c),
        2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b),
        2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d,
    )  # fmt: skip
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


class AlphaFold(nn.Module):
    """Embeddings, 48 blocks on clusters and pairs, a structure, and what is told of all.

    Attributes:
        taken: What was taken of how often an answer goes in again.
    """

    taken = "an answer goes in again once, of none to three times"

    def __init__(self, blocks=48, extra_blocks=4):
        super().__init__()
        self.target_pairs = nn.ModuleList([nn.Linear(_TARGET, _PAIR) for _ in range(2)])
        self.target, self.cluster = nn.Linear(_TARGET, _MSA), nn.Linear(_CLUSTER, _MSA)
        self.apart = nn.Linear(2 * _FAR + 1, _PAIR)
        again = nn.LayerNorm(_MSA), nn.LayerNorm(_PAIR), nn.Linear(_BINS, _PAIR)
        self.again = nn.ModuleList(again)
        self.templates, self.sequence = _Templates(), nn.Linear(_SEQUENCE, _EXTRA)
        self.extra = nn.ModuleList([_Block(_EXTRA, 8, True) for _ in range(extra_blocks)])
        self.blocks = nn.ModuleList([_Block(_MSA, 32, False) for _ in range(blocks)])
        self.single, self.structure = nn.Linear(_MSA, _SINGLE), _Structure()
        self.masked, self.distances = nn.Linear(_MSA, 23), nn.Linear(_PAIR, 64)
        self.resolved = nn.Linear(_SINGLE, 37)
        self.sure = nn.Sequential(
            nn.LayerNorm(_SINGLE), nn.Linear(_SINGLE, 128), nn.ReLU(), nn.Linear(128, 128),
            nn.ReLU(), nn.Linear(128, 50),
        )  # fmt: skip

    def forward(self, target, clusters, sequences, template_angles, template_pairs):
        given = target, clusters, sequences, template_angles, template_pairs
        batch, places = target.shape[:2]
        shapes = (places, _MSA), (places, places, _PAIR), (places, 3)
        before = [target.new_zeros(batch, *shape) for shape in shapes]
        with torch.no_grad():
            m, z, _, frames, _ = self._once(given, before)
        return self._told(*self._once(given, (m[:, 0], z, frames[-1][1])))

    def _once(self, given, before):
        target, clusters, sequences, template_angles, template_pairs = given
        m = self.cluster(clusters) + self.target(target).unsqueeze(1)
        m = torch.cat((m[:, :1] + self.again[0](before[0]).unsqueeze(1), m[:, 1:]), 1)
        z = self._first_pairs(target, before)
        z = z + self.templates(template_pairs, z)
        m = torch.cat((m, self.templates.angles(template_angles)), 1)
        extra = self.sequence(sequences)
        for block in self.extra:
            extra, z = block(extra, z)
        for block in self.blocks:
            m, z = block(m, z)
        s, frames, angles = self.structure(self.single(m[:, 0]), z)
        return m, z, s, frames, angles

    def _first_pairs(self, target, before):
        left, right = (layer(target) for layer in self.target_pairs)
        line = torch.arange(target.shape[1], device=target.device)
        apart = (line[:, None] - line).clamp(-_FAR, _FAR) + _FAR
        z = left.unsqueeze(2) + right.unsqueeze(1) + self.apart.weight.T[apart] + self.apart.bias
        far = (before[2].unsqueeze(2) - before[2].unsqueeze(1)).square().sum(-1, keepdim=True)
        bins = torch.arange(_BINS, device=z.device, dtype=z.dtype)
        return z + self.again[1](before[1]) + self.again[2]((far > bins).to(z.dtype))

    def _told(self, m, z, s, frames, angles):
        far = self.distances(z)
        told = self.masked(m), far + far.transpose(1, 2), self.sure(s), self.resolved(s)
        return told, frames, angles


class _FoldingJob:
    kind = "features"

    def __init__(self, places, clusters, sequences):
        self.model = AlphaFold()
        self._sizes = places, clusters, sequences
        self.described = "crops of %d residues" % places

    def inputs(self, batch):
        """Residues, clusters and further sequences of a crop, and its templates."""
        places, clusters, sequences = self._sizes
        return (
            torch.empty(batch, places, _TARGET),
            torch.empty(batch, clusters - _NUM_TEMPLATES, places, _CLUSTER),
            torch.empty(batch, sequences, places, _SEQUENCE),
            torch.empty(batch, _NUM_TEMPLATES, places, _ANGLES),
            torch.empty(batch, _NUM_TEMPLATES, places, places, _PAIRS),
        )

    def loss(self, output, _inputs):
        """Of what is told, of every two residues in each other's frames, and of angles."""
        told, frames, angles = output
        total = sum(_unlikely(one) for one in told[:3])
        total = total + F.binary_cross_entropy_with_logits(told[3], torch.empty_like(told[3]))
        for (turn, shift), angle in zip(frames, angles):
            apart = shift.unsqueeze(1) - shift.unsqueeze(2)
            seen = torch.einsum("bixy,bijx->bijy", turn, apart)
            far = ((seen - torch.empty_like(seen)).square().sum(-1) + 1e-4).sqrt().clamp(max=10.0)
            total = total + far.mean() + F.mse_loss(angle, torch.empty_like(angle))
        return total


def _unlikely(scores):
    flat = scores.flatten(0, -2)
    target = torch.empty(flat.shape[0], dtype=torch.int64, device=flat.device)
    return F.cross_entropy(flat, target)


MODELS = {
    "alphafold2_256": lambda: _FoldingJob(256, 128, 1024),
    "alphafold2_384": lambda: _FoldingJob(384, 512, 5120),
}
