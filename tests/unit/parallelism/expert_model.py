"""A small model with experts whose router is balanced: what is traced, and what ranks run."""

import torch
from torch import nn

VOCAB, WIDTH, HIDDEN, NUM_EXPERTS, LAYERS = 512, 64, 128, 4, 2


class Experts(nn.Module):
    """Every token goes to every expert: a balanced router, whatever the batch."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(0.02 * torch.randn(NUM_EXPERTS, WIDTH, HIDDEN))
        self.down = nn.Parameter(0.02 * torch.randn(NUM_EXPERTS, HIDDEN, WIDTH))

    def forward(self, tokens):
        copies = self.sent(tokens.repeat(NUM_EXPERTS, 1).view(NUM_EXPERTS, -1, WIDTH))
        hidden = torch.relu(torch.bmm(copies, self.up))
        made = self.returned(torch.bmm(hidden, self.down))
        return made.sum(0)

    def sent(self, copies):
        """Copies where their experts are; all are here."""
        return copies

    def returned(self, made):
        """Results where their tokens are."""
        return made


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.experts = Experts()

    def forward(self, x):
        x = x + torch.relu(self.mix(x))
        return x + self.experts(x.reshape(-1, WIDTH)).view_as(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Job:
    """The model with its inputs and loss, as a tracer wants them."""

    def __init__(self):
        self.model = Model()

    def inputs(self, batch, length):
        return {
            "tokens": torch.zeros(batch, length, dtype=torch.long),
        }

    def loss(self, logits, *_):
        targets = torch.zeros(logits.shape[:2], dtype=torch.long, device=logits.device)
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_job():
    return Job()
