"""Detectors, segmenters and diffusion transformers as published measurements ran them.

Of timm and torchvision, as far as these have them.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_networks.denoisers import turned

from networks.builders.gated import Flux2, ZImage
from networks.builders.streams import (
    HEAD_NORMS,
    OfPatches,
    one_stream,
    stable_diffusion_3,
    two_streams,
    two_streams_then_one,
)


def _separable(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs),
    )  # fmt: skip


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al. 1998, figure 2) with all maps read by the next: 61,706 numbers."""

    side, has_one_size = 32, True

    def __init__(self):
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(),
            nn.AvgPool2d(2), nn.Conv2d(16, 120, 5), nn.Tanh(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def inputs(self, batch):
        """Grey digits."""
        return torch.empty(batch, 1, self.side, self.side)

    def loss(self, output, _inputs):
        """Which digit it is."""
        return F.cross_entropy(output, torch.empty(len(output), dtype=torch.int64))

    def forward(self, images):
        return self.head(self.maps(images).flatten(1))


class _FeaturePyramidCell(nn.Module):
    """One cell of BiFPN over five levels: down the pyramid, then up again."""

    def __init__(self, width):
        super().__init__()
        self.mix = nn.ModuleList([_separable(width, width) for _ in range(8)])

    def forward(self, levels):
        down = [levels[4]]
        for number in (3, 2, 1, 0):
            wide = F.interpolate(down[0], size=levels[number].shape[-2:], mode="nearest")
            down.insert(0, self.mix[number](F.silu(levels[number] * 0.5 + wide * 0.5)))
        up = [down[0]]
        for number in (1, 2, 3, 4):
            narrow = F.max_pool2d(up[-1], 3, 2, 1)
            total = levels[number] * 0.3 + down[number] * 0.3 + narrow * 0.3
            up.append(self.mix[3 + number](F.silu(total)))
        return up


class EfficientDet(nn.Module):
    """EfficientDet (Tan et al., 2020, table 1), without choosing boxes.

    Seven levels halve a side: it is a multiple of 128 (section 4.2 of the paper).

    Args:
        backbone: Number of the EfficientNet.
        side: Of a picture.
        width: Channels of the pyramid.
        cells: How often it is gone through.
        depth: Layers of both heads.
        anchors: Boxes of a place.
        classes: What is told apart.
    """

    multiple = 128

    def __init__(self, backbone, side, width, cells, depth, anchors=9, classes=90):
        super().__init__()
        self.side = side
        from torch_networks import zoo

        zoo.import_torchvision()
        import timm

        self.backbone = timm.create_model(
            f"efficientnet_b{backbone}", features_only=True, pretrained=False
        )
        given = self.backbone.feature_info.channels()[-3:]
        self.lateral = nn.ModuleList([nn.Conv2d(c, width, 1) for c in given])
        self.cells = nn.ModuleList([_FeaturePyramidCell(width) for _ in range(cells)])
        self.scores = nn.Sequential(*[_separable(width, width) for _ in range(depth)])
        self.places = nn.Sequential(*[_separable(width, width) for _ in range(depth)])
        self.score, self.place = (
            _separable(width, anchors * classes), _separable(width, anchors * 4)
        )  # fmt: skip

    def inputs(self, batch):
        """Images."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """A square of every score and box: matching boxes to truth is not counted."""
        return sum(part.float().pow(2).mean() for part in output)

    def forward(self, images):
        features = self.backbone(images)[-3:]
        levels = [lateral(x) for lateral, x in zip(self.lateral, features)]
        for _ in range(2):
            levels.append(F.max_pool2d(levels[-1], 3, 2, 1))
        for cell in self.cells:
            levels = cell(levels)
        return [self.score(self.scores(x)) for x in levels] + [
            self.place(self.places(x)) for x in levels
        ]


class UNetIndustrial(nn.Module):
    """The small U-Net of NVIDIA/DeepLearningExamples on grey images of 512×512."""

    side, multiple = 512, 16

    def __init__(self):
        super().__init__()
        widths = (32, 64, 128, 256)
        self.first = self._pair(1, 32)
        self.down = nn.ModuleList([self._pair(a, b) for a, b in zip(widths, (*widths[1:], 512))])
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths)])
        self.merge = nn.ModuleList([self._pair(2 * w, w) for w in reversed(widths)])
        self.head = nn.Conv2d(32, 1, 1)

    @staticmethod
    def _pair(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(),
        )  # fmt: skip

    def inputs(self, batch):
        """Grey images."""
        return torch.empty(batch, 1, self.side, self.side)

    def loss(self, output, _inputs):
        """A square of every pixel."""
        return output.float().pow(2).mean()

    def forward(self, images):
        x = self.first(images)
        kept = []
        for pair in self.down:
            kept.append(x)
            x = pair(F.max_pool2d(x, 2))
        for up, merge, skip in zip(self.up, self.merge, reversed(kept)):
            x = merge(torch.cat((skip, up(x)), 1))
        return torch.sigmoid(self.head(x))


class _DiffusionBlock(nn.Module):
    """Self-attention, attention to the text, and a feed-forward."""

    def __init__(self, width, heads, inner, has_rotary, norm):
        super().__init__()
        self.heads, self.has_rotary = heads, has_rotary
        self.norm_q, self.norm_k = (HEAD_NORMS[norm](width // heads) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.text = nn.ModuleList(
            [nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)]
        )
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.scales = nn.Parameter(torch.empty(6, width))

    def forward(self, x, text):
        shift, scale, gate, shift2, scale2, gate2 = self.scales.unbind(0)
        q, k, v = self.qkv(self.norm(x) * (1 + scale) + shift).chunk(3, -1)
        x = x + gate * self.out(self._attended(q, k, v))
        k, v = self.text[1](text).chunk(2, -1)
        x = x + self.text[2](self._attended(self.text[0](x), k, v))
        hidden = F.gelu(self.up(self.norm(x) * (1 + scale2) + shift2), approximate="tanh")
        return x + gate2 * self.down(hidden)

    def _attended(self, q, k, v):
        parts = [
            one.view(one.shape[0], one.shape[1], self.heads, -1).transpose(1, 2)
            for one in (q, k, v)
        ]
        both = self.norm_q(parts[0]), self.norm_k(parts[1])
        if self.has_rotary:
            both = turned(both[0]), turned(both[1])
        y = F.scaled_dot_product_attention(*both, parts[2])
        return y.transpose(1, 2).reshape(q.shape)


class DiffusionTransformer(OfPatches, nn.Module):
    """One denoising step of a transformer on latent patches that attend to the text, with guidance.

    Time embedding, text encoders and the decoder of latents are not counted: they run once.

    Args:
        layers: Blocks.
        width: Hidden size.
        heads: Attention heads.
        inner: Width of the feed-forward.
        tokens: Patches of one item.
        text: Tokens of the prompt.
        has_rotary: Positions turn queries and keys; else they are added to the patches.
        norm: Of the queries and keys of a head.
        film: What an item is in words, where it is no picture.
    """

    taken = "a sample is one denoising step with guidance"

    def __init__(
        self, layers, width, heads, inner, tokens, text, has_rotary=False, norm="rms", film=""
    ):  # fmt: skip
        super().__init__()
        self.patch, self.head = nn.Linear(64, width), nn.Linear(width, 64)
        self.blocks = nn.ModuleList(
            [_DiffusionBlock(width, heads, inner, has_rotary, norm) for _ in range(layers)]
        )
        self.words, self.width = text, width
        self.show(tokens, film)

    def inputs(self, batch):
        """Patches and text of items with and without their prompt."""
        return (
            torch.empty(2 * batch, self.num_patches, 64),
            torch.empty(2 * batch, self.words, self.width),
        )

    def forward(self, patches, text):
        x = self.patch(patches)
        for block in self.blocks:
            x = block(x, text)
        return self.head(x)


def _made(build, *sizes, **more):
    return lambda: build(*sizes, **more)


def _film(film, build, *sizes, **more):
    return _made(build, *sizes, film=film, **more)


def _turned_film(film, *sizes):
    """Of a transformer whose positions turn queries and keys."""
    return _film(film, DiffusionTransformer, *sizes, has_rotary=True)


def _convolved(inputs, outputs, kernel=1, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


class SsdMobileNet(nn.Module):
    """SSD on MobileNet v1 at 300×300, of MLPerf Inference to v1.1, without choosing boxes.

    Howard et al. 2017 (arXiv:1704.04861), table 1; heads of one kernel on six maps as in
    ``ssd_mobilenet_v1_coco`` of the TensorFlow object detection API (recalled 2026-11-27).
    """

    side, has_one_size = 300, True
    #: Outputs and stride of each separable pair; channels within and after each further map.
    pairs = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5)
    last = ((1024, 2), (1024, 1))
    further = ((256, 512), (128, 256), (128, 256), (64, 128))

    def __init__(self, classes=91):
        super().__init__()
        self.first = _convolved(3, 32, 3, 2)
        self.body, width = self._separable(32, self.pairs)
        self.tail, top = self._separable(width, self.last)
        self.more, widths = nn.ModuleList(), [width, top]
        for inner, outer in self.further:
            pair = (_convolved(widths[-1], inner), _convolved(inner, outer, 3, 2))
            self.more.append(nn.Sequential(*pair))
            widths.append(outer)
        numbers = [boxes * (classes + 4) for boxes in (3, 6, 6, 6, 6, 6)]
        self.heads = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in zip(widths, numbers))

    @staticmethod
    def _separable(width, pairs):
        layers = []
        for outputs, stride in pairs:
            layers += [_convolved(width, width, 3, stride, width), _convolved(width, outputs)]
            width = outputs
        return nn.Sequential(*layers), width

    def inputs(self, batch):
        """Pictures."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """As many numbers as the losses of classes and places."""
        return sum(one.float().abs().mean() for one in output)

    def forward(self, pictures):
        maps = [self.body(self.first(pictures))]
        for layers in (self.tail, *self.more):
            maps.append(layers(maps[-1]))
        return [head(one) for head, one in zip(self.heads, maps)]


#: Backbone, side, channels, cells and layers of the heads, by the number of the detector.
_EFFICIENT_DETECTORS = (
    (0, 512, 64, 3, 3), (1, 640, 88, 4, 3), (2, 768, 112, 5, 3), (3, 896, 160, 6, 4),
    (4, 1024, 224, 7, 4), (5, 1280, 288, 7, 4), (6, 1280, 384, 8, 5), (6, 1536, 384, 8, 5),
)  # fmt: skip

MODELS = {
    "lenet5": LeNet,
    "ssd_mobilenet_v1": SsdMobileNet,
    **{
        f"efficientdet_d{n}": _made(EfficientDet, *sizes)
        for n, sizes in enumerate(_EFFICIENT_DETECTORS)
    },
    "unet_industrial": UNetIndustrial,
    "pixart_sigma": _made(DiffusionTransformer, 28, 1152, 16, 4608, 4096, 300, norm="none"),
    "pixart_alpha": _made(DiffusionTransformer, 28, 1152, 16, 4608, 4096, 120, norm="none"),
    "sd3_medium": _made(stable_diffusion_3, 24, 1536, 24, "none"),
    "sd35_medium": _made(stable_diffusion_3, 24, 1536, 24, "rms", dual=13),
    "sd35_large": _made(stable_diffusion_3, 38, 2432, 38, "rms"),
    "flux1": _made(two_streams_then_one, 19, 38, 4096, 512),
    "flux2_dev": _made(Flux2, 8, 48, 6144, 15_360),
    "flux2_klein_4b": _made(Flux2, 5, 20, 3072, 7680),
    "flux2_klein_9b": _made(Flux2, 8, 24, 4096, 12_288),
    "z_image": ZImage,
    "hunyuan_video": _film("129 frames of 720×1280", two_streams_then_one, 20, 40, 118_800, 256),
    "wan21_1b": _turned_film("81 frames of 480×832", 30, 1536, 12, 8960, 32_760, 512),
    "wan21_14b": _turned_film("81 frames of 480×832", 40, 5120, 40, 13_824, 32_760, 512),
    "wan22_5b": _turned_film("121 frames of 704×1280", 30, 3072, 24, 14_336, 27_280, 512),
    "ltx_2b": _turned_film("161 frames of 512×704", 28, 2048, 32, 8192, 7392, 128),
    "ltx_13b": _turned_film("161 frames of 512×704", 48, 4096, 32, 16_384, 7392, 128),
    "qwen_image": _made(two_streams, 60, 4096, 512, 3584),
    "cogvideox_2b": _film("49 frames of 480×720", one_stream, 30, 1920, 30, 17_550, 226, False),
    "cogvideox_5b": _film("49 frames of 480×720", one_stream, 42, 3072, 48, 17_550, 226, True),
    "cogvideox15_5b": _film("81 frames of 768×1360", one_stream, 42, 3072, 48, 44_880, 224, True),
}
