"""Networks that are trained against each other: StyleGAN2, CycleGAN and pix2pix."""

import torch
import torch.nn.functional as F
from torch import nn


def _blurred(x, kernel):
    """Each channel through the filter of four taps that StyleGAN resamples with."""
    channels = x.shape[1]
    return F.conv2d(x, kernel.expand(channels, 1, 4, 4), groups=channels)


class _Styled(nn.Module):
    """A convolution whose inputs and outputs a style scales, as it runs in training."""

    def __init__(self, inputs, outputs, kernel=3, is_wider=False, has_noise=True):
        super().__init__()
        self.style, self.is_wider = nn.Linear(512, inputs), is_wider
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.strength = nn.Parameter(torch.empty(())) if has_noise else None
        self.register_buffer("blur", torch.empty(4, 4))

    def forward(self, x, w):
        style = self.style(w)
        x = x * style[:, :, None, None]
        if self.is_wider:
            x = F.conv_transpose2d(x, self.weight.transpose(0, 1), stride=2)
            x = _blurred(F.pad(x, (1, 1, 1, 1)), self.blur)
        else:
            x = F.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2)
        if self.strength is None:
            return x + self.bias[:, None, None]
        demodulated = (self.weight.square().sum((2, 3)) @ style.square().t()).t().rsqrt()
        noise = torch.randn(x.shape[0], 1, *x.shape[2:], device=x.device)
        x = x * demodulated[:, :, None, None] + noise * self.strength
        return F.leaky_relu(x + self.bias[:, None, None], 0.2) * 1.414


class _Made(nn.Module):
    """The generator: a style of eight layers, and blocks from 4×4 pixels on."""

    def __init__(self, widths):
        super().__init__()
        self.style = nn.ModuleList(nn.Linear(512, 512) for _ in range(8))
        self.const = nn.Parameter(torch.empty(widths[0], 4, 4))
        self.first = _Styled(widths[0], widths[0])
        pairs = list(zip(widths, widths[1:]))
        self.wider = nn.ModuleList(_Styled(a, b, is_wider=True) for a, b in pairs)
        self.plain = nn.ModuleList(_Styled(b, b) for _, b in pairs)
        self.colours = nn.ModuleList(_Styled(w, 3, 1, has_noise=False) for w in widths)
        self.register_buffer("blur", torch.empty(4, 4))

    def forward(self, noise):
        w = noise
        for layer in self.style:
            w = F.leaky_relu(layer(w), 0.2)
        x = self.first(self.const.expand(len(w), -1, -1, -1), w)
        picture = self.colours[0](x, w)
        for wider, plain, colours in zip(self.wider, self.plain, self.colours[1:]):
            x = plain(wider(x, w), w)
            picture = F.interpolate(picture, scale_factor=2.0) + colours(x, w)
        return picture


class _Judge(nn.Module):
    """The discriminator: residual blocks down to 4×4 pixels."""

    def __init__(self, widths):
        super().__init__()
        widths = list(reversed(widths))
        self.read = nn.Conv2d(3, widths[0], 1)
        pairs = list(zip(widths, widths[1:]))
        self.plain = nn.ModuleList(nn.Conv2d(a, a, 3, padding=1) for a, _ in pairs)
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 2) for a, b in pairs)
        self.skip = nn.ModuleList(nn.Conv2d(a, b, 1, 2, bias=False) for a, b in pairs)
        self.last = nn.Conv2d(widths[-1] + 1, widths[-1], 3, padding=1)
        self.wide, self.head = nn.Linear(widths[-1] * 16, widths[-1]), nn.Linear(widths[-1], 1)
        self.register_buffer("blur", torch.empty(4, 4))

    def forward(self, x):
        x = F.leaky_relu(self.read(x), 0.2)
        for plain, down, skip in zip(self.plain, self.down, self.skip):
            y = F.leaky_relu(plain(x), 0.2)
            y = F.leaky_relu(down(_blurred(F.pad(y, (2, 2, 2, 2)), self.blur)), 0.2)
            x = y + skip(_blurred(F.pad(x, (1, 1, 1, 1)), self.blur))
        unlike = x.var(0, unbiased=False).mean().expand(len(x), 1, 4, 4)
        x = F.leaky_relu(self.last(torch.cat((x, unlike), 1)), 0.2)
        return self.head(F.leaky_relu(self.wide(x.flatten(1)), 0.2))


class _Players(nn.ModuleDict):
    """Networks by name, of which the first answers."""

    def forward(self, *inputs):
        return next(iter(self.values()))(inputs[-1])


class StyleGan2:
    """StyleGAN2 config F (Karras et al. 2020, arXiv:1912.04958): a step of each of its networks.

    30,370,060 numbers in its generator and 29,012,513 in its discriminator at 1024 pixels, as
    NVlabs/stylegan2-ada-pytorch prints them (recalled 2026-11-26).
    Its regularisation of paths and gradients, every fourth and sixteenth step, is not counted.

    Args:
        side: Of a picture, a power of two.
        most: Channels times pixels of a side, 32,768 at 1024 pixels and half below 512.
    """

    has_one_size = True

    def __init__(self, side, most):
        sides = [4 * 2**n for n in range(side.bit_length() - 2)]
        widths = [min(512, most // one) for one in sides]
        self.side, self.described = side, f"pictures of {side}×{side}"
        self.model = _Players({"g": _Made(widths), "d": _Judge(widths)})
        self.optimizers = [torch.optim.Adam(m.parameters()) for m in self.model.values()]
        self.phases = [("generator", 1, self._update_g), ("discriminator", 1, self._update_d)]

    def inputs(self, batch):
        """Real pictures, which training alone looks at, and noise."""
        noise = torch.empty(batch, 512)
        pictures = torch.empty(batch, 3, self.side, self.side)
        return (pictures, noise) if self.model.training else (noise,)

    def _update_g(self, model, inputs):
        model["g"].zero_grad()
        F.softplus(-model["d"](model["g"](inputs[1]))).mean().backward()
        self.optimizers[0].step()

    def _update_d(self, model, inputs):
        pictures, noise = inputs
        model["d"].zero_grad()
        F.softplus(model["d"](model["g"](noise).detach())).mean().backward()
        F.softplus(-model["d"](pictures)).mean().backward()
        self.optimizers[1].step()


def _normed(inputs, outputs, kernel, stride=1, padding=0):
    product = nn.Conv2d(inputs, outputs, kernel, stride, padding)
    return [product, nn.InstanceNorm2d(outputs), nn.ReLU(True)]


class _Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1), *_normed(width, width, 3), nn.ReflectionPad2d(1),
            *_normed(width, width, 3)[:2],
        )  # fmt: skip

    def forward(self, x):
        return x + self.layers(x)


def _translator():
    """The generator of 9 residual blocks, 11,378,179 numbers."""
    up = [
        part
        for a, b in ((256, 128), (128, 64))
        for part in (
            nn.ConvTranspose2d(a, b, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(b), nn.ReLU(True)
        )
    ]  # fmt: skip
    return nn.Sequential(
        nn.ReflectionPad2d(3), *_normed(3, 64, 7), *_normed(64, 128, 3, 2, 1),
        *_normed(128, 256, 3, 2, 1), *[_Residual(256) for _ in range(9)], *up,
        nn.ReflectionPad2d(3), nn.Conv2d(64, 3, 7), nn.Tanh(),
    )  # fmt: skip


def _patch_judge(inputs=3, norm=nn.InstanceNorm2d):
    """The discriminator of patches of 70 pixels, 2,764,737 numbers of three channels."""
    has_bias = norm is nn.InstanceNorm2d
    layers = [nn.Conv2d(inputs, 64, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    for a, b, stride in ((64, 128, 2), (128, 256, 2), (256, 512, 1)):
        product = nn.Conv2d(a, b, 4, stride, 1, bias=has_bias)
        layers += [product, norm(b), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(512, 1, 4, 1, 1))


class CycleGan:
    """CycleGAN at 256×256 (Zhu et al. 2017, arXiv:1703.10593): two generators, two judges."""

    has_one_size, side, described = True, 256, "pairs of pictures of 256×256"

    def __init__(self):
        made = {"ab": _translator(), "ba": _translator(), "a": _patch_judge(), "b": _patch_judge()}
        self.model = _Players(made)
        names = (("ab", "ba"), ("a", "b"))
        self.optimizers = [
            torch.optim.Adam([p for one in pair for p in made[one].parameters()]) for pair in names
        ]
        self.phases = [("generators", 1, self._update_g), ("discriminators", 1, self._update_d)]

    def inputs(self, batch):
        """A picture of each kind; one alone where no network is trained."""
        pictures = torch.empty(batch, 3, 256, 256), torch.empty(batch, 3, 256, 256)
        return pictures if self.model.training else pictures[:1]

    def _update_g(self, model, inputs):
        first, second = inputs
        model.zero_grad()
        fake_b, fake_a = model["ab"](first), model["ba"](second)
        loss = model["b"](fake_b).square().mean() + model["a"](fake_a).square().mean()
        loss = loss + F.l1_loss(model["ba"](fake_b), first) + F.l1_loss(model["ab"](fake_a), second)
        loss = loss + F.l1_loss(model["ba"](first), first) + F.l1_loss(model["ab"](second), second)
        loss.backward()
        self.optimizers[0].step()

    def _update_d(self, model, inputs):
        model.zero_grad()
        for real, source, made, judge in ((inputs[1], inputs[0], "ab", "b"),
                                          (inputs[0], inputs[1], "ba", "a")):  # fmt: skip
            fake = model[made](source).detach()
            both = model[judge](real).square().mean() + model[judge](fake).square().mean()
            both.backward()
        self.optimizers[1].step()


class _UNet(nn.Module):
    """The U-Net of 256 pixels, eight times halved: 54,413,955 numbers."""

    def __init__(self):
        super().__init__()
        pairs = list(zip((3, 64, 128, 256, 512, 512, 512, 512), (64, 128, 256, *[512] * 5)))
        self.down = nn.ModuleList(nn.Conv2d(a, b, 4, 2, 1, bias=False) for a, b in pairs)
        ways = reversed([(b if n == 7 else 2 * b, a) for n, (a, b) in enumerate(pairs)])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, 2, 1, bias=b == 3) for a, b in ways
        )  # fmt: skip
        self.down_norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b in pairs[1:-1])
        self.up_norms = nn.ModuleList(nn.BatchNorm2d(way.out_channels) for way in self.up[:-1])

    def forward(self, x):
        levels = [self.down[0](x)]
        for number, down in enumerate(self.down[1:]):
            x = down(F.leaky_relu(levels[-1], 0.2))
            levels.append(self.down_norms[number](x) if number < len(self.down_norms) else x)
        x = levels.pop()
        for up, norm in zip(self.up, self.up_norms):
            x = torch.cat([levels.pop(), norm(up(F.relu(x)))], 1)
        return torch.tanh(self.up[-1](F.relu(x)))


class Pix2Pix:
    """pix2pix at 256×256 (Isola et al. 2017, arXiv:1611.07004): a U-Net and a judge of pairs.

    54.414 M and 2.769 M numbers, as junyanz/pytorch-CycleGAN-and-pix2pix prints (recalled
    2026-11-27).
    """

    has_one_size, side, described = True, 256, "pairs of pictures of 256×256"

    def __init__(self):
        judge = _patch_judge(6, nn.BatchNorm2d)
        self.model = _Players({"g": _UNet(), "d": judge})
        self.optimizers = [torch.optim.Adam(m.parameters()) for m in self.model.values()]
        self.phases = [("discriminator", 1, self._update_d), ("generator", 1, self._update_g)]

    def inputs(self, batch):
        """A picture and what it is to become; the picture alone where nothing is trained."""
        pictures = torch.empty(batch, 3, 256, 256), torch.empty(batch, 3, 256, 256)
        return pictures if self.model.training else pictures[:1]

    def _update_d(self, model, inputs):
        target, source = inputs
        model["d"].zero_grad()
        fake = model["d"](torch.cat([source, model["g"](source).detach()], 1))
        real = model["d"](torch.cat([source, target], 1))
        (F.softplus(fake).mean() + F.softplus(-real).mean()).backward()
        self.optimizers[1].step()

    def _update_g(self, model, inputs):
        target, source = inputs
        model["g"].zero_grad()
        fake = model["g"](source)
        told = model["d"](torch.cat([source, fake], 1))
        (F.softplus(-told).mean() + 100.0 * F.l1_loss(fake, target)).backward()
        self.optimizers[0].step()


MODELS = {
    "pix2pix": Pix2Pix,
    "stylegan2_1024": lambda: StyleGan2(1024, 32_768),
    "stylegan2_256": lambda: StyleGan2(256, 16_384),
    "cyclegan": CycleGan,
}
