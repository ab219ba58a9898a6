"""Networks on graphs: of one large graph, of neighbours drawn from it, of molecules.

Sums over neighbours are sparse products, as `torch_sparse` has them: rows are gathered and added
up in one kernel, and messages are never stored. Sizes are those of the examples of the Open Graph
Benchmark (snap-stanford/ogb, examples/nodeproppred, whose leaderboards count 103,727 numbers of GCN
on products, 110,120 on arxiv, 206,895 of GraphSAGE and 751,574 of GAT; recalled 2026-11-26) and of
PyTorch Geometric's classes.
"""

import torch
import torch.nn.functional as F
from torch import nn


class _Sum(torch.autograd.Function):
    """Weighted sums of the rows of each node's neighbours; edges go both ways, as gradients do."""

    @staticmethod
    def forward(ctx, rows, neighbours, begins, weights):
        ctx.save_for_backward(neighbours, begins, weights)
        return F.embedding_bag(neighbours, rows, begins, mode="sum", per_sample_weights=weights)

    @staticmethod
    def backward(ctx, grad):
        neighbours, begins, weights = ctx.saved_tensors
        summed = F.embedding_bag(neighbours, grad, begins, mode="sum", per_sample_weights=weights)
        return summed, None, None, None


class _OfNodes(nn.Module):
    """Labels of nodes."""

    def loss(self, output, _inputs):
        """Cross-entropy of every node that is answered."""
        target = torch.empty(output.shape[0], dtype=torch.int64, device=output.device)
        return F.cross_entropy(output.float(), target)


class Convolutions(_OfNodes):
    """GCN on a whole graph at a time (Kipf and Welling 2017, arXiv:1609.02907).

    Args:
        nodes: Of the graph.
        edges: Of the graph, each in both directions, with those of nodes to themselves.
        widths: Numbers of a node before the first layer, and after each.
        norms: Whether features are normalised over nodes between layers.
    """

    def __init__(self, nodes, edges, widths, norms=True):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.products = nn.ModuleList([nn.Linear(a, b) for a, b in pairs])
        self.norms = nn.ModuleList([nn.BatchNorm1d(w) for w in widths[1:-1] if norms])
        self.nodes, self.edges, self.width = nodes, edges, widths[0]
        self.described = f"whole graphs of {nodes:,} nodes and {edges:,} edges"

    def inputs(self, batch):
        """Nodes, the neighbours of all, where each one's begin, and weights of edges."""
        nodes, edges = batch * self.nodes, batch * self.edges
        whole = {"dtype": torch.int64}
        return (
            torch.empty(nodes, self.width), torch.empty(edges, **whole),
            torch.empty(nodes, **whole), torch.empty(edges),
        )  # fmt: skip

    def forward(self, x, neighbours, begins, weights):
        for number, product in enumerate(self.products):
            x = _Sum.apply(product(x), neighbours, begins, weights)
            if number < len(self.products) - 1:
                x = self.norms[number](x) if len(self.norms) else x
                x = F.dropout(F.relu(x), 0.5, self.training)
        return x


class _OfDrawn(_OfNodes):
    """A node with neighbours drawn around it, and neighbours of those, none of them twice.

    Args:
        drawn: Neighbours of a node at each distance from the one that is asked.
        width: Numbers of a node.
    """

    def __init__(self, drawn, width):
        super().__init__()
        self.width, self.drawn = width, drawn
        self.counts = [1]
        for number in drawn:
            self.counts.append(self.counts[-1] * number)
        around = ", ".join(map(str, drawn))
        self.described = f"nodes with {around} neighbours of each drawn around them"

    def inputs(self, batch):
        """Nodes by their distance from the one that is asked."""
        return tuple(torch.empty(batch * count, self.width) for count in self.counts)

    def _nearer(self, rings, layer):
        """States of all but the furthest nodes, from those around each."""
        return [
            layer(near, far.view(near.shape[0], -1, far.shape[-1]))
            for near, far in zip(rings, rings[1:])
        ]


class _Mean(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.around = nn.Linear(inputs, outputs, bias=False), nn.Linear(inputs, outputs)

    def forward(self, near, far):
        return self.own(near) + self.around(far.mean(1))


class Sage(_OfDrawn):
    """GraphSAGE by means of neighbours (Hamilton et al. 2017, arXiv:1706.02216)."""

    def __init__(self, drawn=(15, 10, 5), width=100, hidden=256, classes=47):
        super().__init__(drawn, width)
        widths = [width] + [hidden] * (len(drawn) - 1) + [classes]
        self.layers = nn.ModuleList([_Mean(a, b) for a, b in zip(widths, widths[1:])])

    def forward(self, *rings):
        for number, layer in enumerate(self.layers):
            rings = self._nearer(rings, layer)
            if number < len(self.layers) - 1:
                rings = [F.dropout(F.relu(one), 0.5, self.training) for one in rings]
        return rings[0]


class _Attention(nn.Module):
    """Attention of a node to those around it and to itself (a GATConv with its heads)."""

    def __init__(self, inputs, outputs, heads, is_last):
        super().__init__()
        self.product = nn.Linear(inputs, heads * outputs, bias=False)
        self.skip = nn.Linear(inputs, outputs if is_last else heads * outputs)
        self.bias, self.is_last = nn.Parameter(torch.empty(self.skip.out_features)), is_last
        self.near = nn.Parameter(torch.empty(heads, outputs))
        self.far = nn.Parameter(torch.empty(heads, outputs))
        self.heads = heads

    def forward(self, near, far):
        own = self.product(near).view(near.shape[0], 1, self.heads, -1)
        others = self.product(far).view(near.shape[0], far.shape[1], self.heads, -1)
        both = torch.cat((own, others), 1)
        scores = F.leaky_relu((own * self.near).sum(-1) + (both * self.far).sum(-1), 0.2)
        mixed = (torch.softmax(scores, 1)[..., None] * both).sum(1)
        joined = mixed.mean(1) if self.is_last else mixed.flatten(1)
        return joined + self.bias + self.skip(near)


class Attentive(_OfDrawn):
    """GAT with skip connections (Veličković et al. 2018, arXiv:1710.10903)."""

    def __init__(self, drawn=(10, 10, 10), width=100, hidden=128, heads=4, classes=47):
        super().__init__(drawn, width)
        last = len(drawn) - 1
        self.layers = nn.ModuleList(
            _Attention(
                heads * hidden if number else width,
                classes if number == last else hidden,
                heads,
                number == last,
            )
            for number in range(len(drawn))
        )

    def forward(self, *rings):
        for number, layer in enumerate(self.layers):
            rings = self._nearer(rings, layer)
            if number < len(self.layers) - 1:
                rings = [F.dropout(F.elu(one), 0.5, self.training) for one in rings]
        return rings[0]


class _Interaction(nn.Module):
    """A continuous filter over the atoms around each."""

    def __init__(self, width, filters, kernels):
        super().__init__()
        self.filter = nn.Sequential(
            nn.Linear(kernels, filters), nn.Softplus(), nn.Linear(filters, filters)
        )
        self.first = nn.Linear(width, filters, bias=False)
        self.second, self.third = nn.Linear(filters, width), nn.Linear(width, width)

    def forward(self, atoms, pairs, spread, edges):
        weights = self.filter(spread) * edges
        messages = self.first(atoms)[pairs[1]] * weights
        gathered = torch.zeros_like(self.first(atoms)).index_add(0, pairs[0], messages)
        return atoms + self.third(F.softplus(self.second(gathered)))


class SchNet(nn.Module):
    """SchNet (Schütt et al. 2018, arXiv:1706.08566) as PyTorch Geometric's class, 455,809 numbers.

    Molecules as QM9 has them: 18 atoms, all within 10 Å of each other.
    """

    described = "molecules of 18 atoms"

    def __init__(self, width=128, layers=6, kernels=50, atoms=18):
        super().__init__()
        self.words, self.atoms = nn.Embedding(100, width), atoms
        self.layers = nn.ModuleList([_Interaction(width, width, kernels) for _ in range(layers)])
        self.narrow, self.head = nn.Linear(width, width // 2), nn.Linear(width // 2, 1)
        self.register_buffer("offsets", torch.empty(kernels))

    def inputs(self, batch):
        """Numbers of atoms, their places, and pairs of them."""
        atoms, pairs = batch * self.atoms, batch * self.atoms * (self.atoms - 1)
        whole = {"dtype": torch.int64}
        return torch.empty(atoms, **whole), torch.empty(atoms, 3), torch.empty(2, pairs, **whole)

    def loss(self, output, _inputs):
        """Of an energy."""
        return F.l1_loss(output, torch.empty_like(output))

    def forward(self, numbers, places, pairs):
        atoms = self.words(numbers)
        apart = (places[pairs[0]] - places[pairs[1]]).pow(2).sum(-1).sqrt()
        spread = torch.exp(-10.0 * (apart[:, None] - self.offsets).pow(2))
        edges = (0.5 * (torch.cos(apart * 0.314) + 1.0))[:, None]
        for layer in self.layers:
            atoms = layer(atoms, pairs, spread, edges)
        energy = self.head(F.softplus(self.narrow(atoms)))
        return energy.view(-1, self.atoms).sum(1)


MODELS = {
    "gcn_products": lambda: Convolutions(2_449_029, 126_167_309, (100, 256, 256, 47), False),
    "gcn_arxiv": lambda: Convolutions(169_343, 2_484_941, (128, 256, 256, 40)),
    "gcn_cora": lambda: Convolutions(2708, 13_264, (1433, 16, 7), norms=False),
    "sage_products": Sage,
    "gat_products": Attentive,
    "schnet": SchNet,
}
