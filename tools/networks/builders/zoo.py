"""Models of the zoo that bring their own inputs, losses and phases, of one design each.

Each class is a job as users write them: ``model``, ``inputs``, and where needed ``loss``,
``phases`` and ``optimizers``.
"""

import torch
import torch.nn.functional as F
from torch import nn

from networks.builders.sequences import Gnmt
from networks.builders.stable_diffusion import DiffusionJob


class CifarCnn(nn.Module):
    """The CIFAR-10 CNN of the Keras examples (cifar10_cnn): four convolutions, two dense layers."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout(0.25),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
            nn.Linear(2304, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10),
        )  # fmt: skip

    def forward(self, images):
        return self.features(images)


class CifarJob:
    """32×32 colour images in ten classes."""

    kind, described = "image", "pictures of 32×32"

    def __init__(self):
        self.model = CifarCnn()

    def inputs(self, batch):
        """Images."""
        return torch.empty(batch, 3, 32, 32)


class Vae(nn.Module):
    """The variational autoencoder of the PyTorch examples: 784, 400, 20."""

    def __init__(self):
        super().__init__()
        self.hidden, self.mean, self.spread = (
            nn.Linear(784, 400),
            nn.Linear(400, 20),
            nn.Linear(400, 20),
        )
        self.widen, self.outward = nn.Linear(20, 400), nn.Linear(400, 784)

    def forward(self, x):
        h = F.relu(self.hidden(x))
        mean, spread = self.mean(h), self.spread(h)
        z = mean + torch.randn_like(spread) * torch.exp(0.5 * spread)
        return torch.sigmoid(self.outward(F.relu(self.widen(z)))), mean, spread


class VaeJob:
    """Reconstruction and divergence on flattened 28×28 images."""

    kind = "image"

    def __init__(self):
        self.model = Vae()

    def inputs(self, batch):
        """Flattened images."""
        return torch.empty(batch, 784)

    def loss(self, output, inputs):
        """Binary cross-entropy and the divergence from a unit normal."""
        image, mean, spread = output
        divergence = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
        return F.binary_cross_entropy(image, inputs, reduction="sum") + divergence


class Gan:
    """DCGAN of the PyTorch tutorial on 64×64 images: a discriminator and a generator update."""

    kind, described = "image", "pictures of 64×64"

    def __init__(self, noise=100, width=64):
        self.generator = self._generator(noise, width)
        self.discriminator = self._discriminator(width)
        self.noise = noise
        self.model = nn.ModuleDict({"g": self.generator, "d": self.discriminator})
        self.optimizers = [torch.optim.Adam(m.parameters()) for m in self.model.values()]
        self.phases = [("discriminator", 1, self._update_d), ("generator", 1, self._update_g)]

    @staticmethod
    def _generator(noise, width):
        layers, channels = [], noise
        for number, outputs in enumerate((8 * width, 4 * width, 2 * width, width)):
            stride, padding = (2, 1) if number else (1, 0)
            layers += [nn.ConvTranspose2d(channels, outputs, 4, stride, padding, bias=False),
                       nn.BatchNorm2d(outputs), nn.ReLU(True)]  # fmt: skip
            channels = outputs
        return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())

    @staticmethod
    def _discriminator(width):
        layers, channels = [], 3
        for number, outputs in enumerate((width, 2 * width, 4 * width, 8 * width)):
            layers.append(nn.Conv2d(channels, outputs, 4, 2, 1, bias=False))
            layers += [nn.BatchNorm2d(outputs)] if number else []
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            channels = outputs
        return nn.Sequential(*layers, nn.Conv2d(channels, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def inputs(self, batch):
        """Real images and noise."""
        return torch.empty(batch, 3, 64, 64), torch.empty(batch, self.noise, 1, 1)

    def _update_d(self, model, inputs):
        images, noise = inputs
        model["d"].zero_grad()
        F.binary_cross_entropy(model["d"](images), torch.ones(len(images), 1, 1, 1)).backward()
        fake = model["g"](noise).detach()
        F.binary_cross_entropy(model["d"](fake), torch.zeros(len(images), 1, 1, 1)).backward()
        self.optimizers[1].step()

    def _update_g(self, model, inputs):
        images, noise = inputs
        model["g"].zero_grad()
        verdict = model["d"](model["g"](noise))
        F.binary_cross_entropy(verdict, torch.ones(len(images), 1, 1, 1)).backward()
        self.optimizers[0].step()


class Policy(nn.Module):
    """The convolutional actor and critic of CleanRL's ``ppo_atari``, with four actions."""

    def __init__(self, actions=4):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        )  # fmt: skip
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, frames):
        hidden = self.network(frames / 255.0)
        return self.actor(hidden), self.critic(hidden)


class Ppo:
    """128 steps of roll-out, then 4 epochs of 4 minibatches of a quarter of them each.

    The batch is the number of environments; one update sees ``32 × batch`` frames.
    """

    kind = "features"
    described = "stacks of four frames of 84×84, 128 of each environment: a sample is all of one's"

    def __init__(self):
        self.model = Policy()
        self.optimizers = [torch.optim.Adam(self.model.parameters())]
        self.phases = [("rollout", 128, self._rollout), ("update", 16, self._update)]

    def inputs(self, batch):
        """Stacked frames: of one step, and of a minibatch."""
        return torch.empty(batch, 4, 84, 84), torch.empty(32 * batch, 4, 84, 84)

    def _rollout(self, model, inputs):
        with torch.no_grad():
            scores, _ = model(inputs[0])
            torch.multinomial(F.softmax(scores, dim=-1), 1)

    def _update(self, model, inputs):
        scores, value = model(inputs[1])
        log = F.log_softmax(scores, dim=-1)
        action = torch.zeros(len(log), 1, dtype=torch.int64)
        ratio = (log.gather(1, action) - torch.zeros(len(log), 1)).exp()
        advantage = torch.zeros(len(log), 1)
        policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.9, 1.1)).mean()
        entropy = -(log * log.exp()).sum(-1).mean()
        loss = policy + 0.5 * (value - advantage).pow(2).mean() - 0.01 * entropy
        self.optimizers[0].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        self.optimizers[0].step()


class Dqn:
    """CleanRL's ``dqn_atari``: an action at each of four steps of one game, then an update.

    The batch is the number of transitions that an update draws; its targets come from a second
    network of the same shape, which is not trained.
    """

    kind, described = "features", "stacks of four frames of 84×84"

    def __init__(self, actions=4):
        self.model = nn.ModuleDict({"online": _values(actions), "target": _values(actions)})
        self.model["target"].requires_grad_(False)
        self.optimizers = [torch.optim.Adam(self.model["online"].parameters())]
        self.phases = [("act", 4, self._act), ("update", 1, self._update)]

    def inputs(self, batch):
        """Stacked frames: what the game shows, and before and after each transition."""
        shape = (4, 84, 84)
        return torch.empty(1, *shape), torch.empty(batch, *shape), torch.empty(batch, *shape)

    def _act(self, model, inputs):
        with torch.no_grad():
            model["online"](inputs[0] / 255.0).argmax(dim=1)

    def _update(self, model, inputs):
        _, before, after = inputs
        with torch.no_grad():
            best = model["target"](after / 255.0).max(dim=1)[0]
            wanted = torch.zeros(len(best)) + 0.99 * best * (1 - torch.zeros(len(best)))
        action = torch.zeros(len(best), 1, dtype=torch.int64)
        value = model["online"](before / 255.0).gather(1, action).squeeze()
        loss = F.mse_loss(wanted, value)
        self.optimizers[0].zero_grad()
        loss.backward()
        self.optimizers[0].step()


def _values(actions):
    """The network of Mnih et al. 2015: a value per action."""
    return nn.Sequential(Policy(actions).network, nn.Linear(512, actions))


class NeuralFiltering(nn.Module):
    """NeuMF (He et al. 2017) at MLPerf's size on MovieLens-20M."""

    def __init__(self, users=138_493, items=26_744, factor=64, layers=(256, 256, 128, 64)):
        super().__init__()
        self.user_factor, self.item_factor = (
            nn.Embedding(users, factor),
            nn.Embedding(items, factor),
        )
        self.user_deep = nn.Embedding(users, layers[0] // 2)
        self.item_deep = nn.Embedding(items, layers[0] // 2)
        self.dense = nn.ModuleList([nn.Linear(a, b) for a, b in zip(layers, layers[1:])])
        self.outward = nn.Linear(factor + layers[-1], 1)

    def forward(self, users, items):
        product = self.user_factor(users) * self.item_factor(items)
        x = torch.cat((self.user_deep(users), self.item_deep(items)), dim=-1)
        for layer in self.dense:
            x = F.relu(layer(x))
        return self.outward(torch.cat((product, x), dim=-1))


class FilteringJob:
    """A click or none, per user and item."""

    kind = "features"

    def __init__(self):
        self.model = NeuralFiltering()

    def inputs(self, batch):
        """Users and items."""
        return torch.empty(batch, dtype=torch.int64), torch.empty(batch, dtype=torch.int64)

    def loss(self, output, inputs):
        """Binary cross-entropy."""
        return F.binary_cross_entropy_with_logits(output, torch.zeros_like(output))


#: Rows of the 26 categorical columns of Criteo's Kaggle data set.
_CRITEO_ROWS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992,
    5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip


class Dlrm(nn.Module):
    """DLRM (Naumov et al. 2019) with the sizes of its Criteo Kaggle benchmark script."""

    def __init__(self, width=16):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(n, width, mode="sum") for n in _CRITEO_ROWS])
        self.bottom = self._dense((13, 512, 256, 64, width))
        pairs = len(_CRITEO_ROWS) * (len(_CRITEO_ROWS) + 1) // 2
        self.top = self._dense((width + pairs, 512, 256, 1))

    @staticmethod
    def _dense(widths):
        layers = []
        for a, b in zip(widths, widths[1:]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, numbers, categories):
        x = self.bottom(numbers)
        rows = [table(categories[:, n : n + 1]) for n, table in enumerate(self.tables)]
        features = torch.stack([x, *rows], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        size = features.shape[1]
        low = torch.tril_indices(size, size, -1, device=products.device)
        return self.top(torch.cat((x, products[:, low[0], low[1]]), dim=1))


class RecommendationJob:
    """A click or none, from 13 numbers and 26 categories."""

    kind = "features"

    def __init__(self):
        self.model = Dlrm()

    def inputs(self, batch):
        """Numbers and categories."""
        return torch.empty(batch, 13), torch.empty(batch, 26, dtype=torch.int64)

    def loss(self, output, inputs):
        """Binary cross-entropy."""
        return F.binary_cross_entropy_with_logits(output, torch.zeros_like(output))


class TranslationJob:
    """Cross-entropy of the next word, smoothed, with as many words on either side."""

    kind = "text"

    def __init__(self):
        self.model = Gnmt()

    def inputs(self, batch, seq):
        """Words of the source and of the target."""
        pair = [torch.empty(batch, seq, dtype=torch.int64) for _ in range(2)]
        return tuple(pair)

    def loss(self, output, inputs):
        """Label smoothing of 0.1."""
        scores = output.reshape(-1, output.shape[-1])
        return F.cross_entropy(scores, inputs[1].reshape(-1), label_smoothing=0.1)


class MedicalUNet(nn.Module):
    """The U-Net of Ronneberger et al. 2015 with padded convolutions and batch norm, one channel."""

    def __init__(self, width=64, depth=4, classes=2):
        super().__init__()
        widths = [width * 2**n for n in range(depth + 1)]
        self.inward = self._double(1, width)
        self.down = nn.ModuleList([self._double(a, b) for a, b in zip(widths, widths[1:])])
        back = widths[::-1]
        self.grow = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(back, back[1:])])
        self.up = nn.ModuleList([self._double(a, b) for a, b in zip(back, back[1:])])
        self.outward = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _double(inputs, outputs):
        layers = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                       nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]  # fmt: skip
        return nn.Sequential(*layers)

    def forward(self, x):
        kept = [self.inward(x)]
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat((kept.pop(), grow(x)), dim=1))
        return self.outward(x)


class SegmentationJob:
    """Pixel-wise cross-entropy on 512×512 slices, or on others of a multiple of 16."""

    kind, side, multiple = "image", 512, 16

    def __init__(self):
        self.model = MedicalUNet()

    def inputs(self, batch):
        """Grey slices."""
        return torch.empty(batch, 1, self.side, self.side)

    def loss(self, output, inputs):
        """Cross-entropy of every pixel."""
        return F.cross_entropy(
            output, torch.empty(len(output), *output.shape[2:], dtype=torch.int64)
        )


MODELS = {
    "cifar10-cnn": CifarJob,
    "dcgan": Gan,
    "vae": VaeJob,
    "ppo": Ppo,
    "dqn": Dqn,
    "ncf": FilteringJob,
    "dlrm": RecommendationJob,
    "gnmt": TranslationJob,
    "unet": SegmentationJob,
    "sd15-unet": DiffusionJob,
}
