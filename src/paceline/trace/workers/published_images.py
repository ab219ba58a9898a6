"""Detectors, segmenters and diffusion transformers as published measurements ran them.

Standard library, torch and timm only. ``published_images:published__NAME`` builds one.
"""

import torch
import torch.nn.functional as F
from torch import nn


def _separable(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs),
    )  # fmt: skip


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
    """EfficientDet-D0 at 512×512 (Tan et al., 2020), without choosing boxes."""

    def __init__(self, width=64, cells=3, anchors=9, classes=90):
        super().__init__()
        import torch_models

        torch_models.import_torchvision()
        import timm

        self.backbone = timm.create_model("efficientnet_b0", features_only=True, pretrained=False)
        self.lateral = nn.ModuleList([nn.Conv2d(c, width, 1) for c in (40, 112, 320)])
        self.cells = nn.ModuleList([_FeaturePyramidCell(width) for _ in range(cells)])
        self.scores = nn.Sequential(*[_separable(width, width) for _ in range(3)])
        self.places = nn.Sequential(*[_separable(width, width) for _ in range(3)])
        self.score, self.place = (
            _separable(width, anchors * classes), _separable(width, anchors * 4)
        )  # fmt: skip

    def inputs(self, batch):
        return torch.empty(batch, 3, 512, 512)

    def loss(self, output, _inputs):
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


class SsdResNet34(nn.Module):
    """SSD at 300×300 on ResNet-34 up to its third stage, 81 classes (MLPerf Training v0.5)."""

    image_size = 300

    def __init__(self, classes=81):
        super().__init__()
        import torch_models

        backbone = torch_models.import_torchvision().models.resnet34(weights=None)
        self.backbone = nn.Sequential(*list(backbone.children())[:7])
        block = self.backbone[-1][0]
        block.conv1.stride, block.downsample[0].stride = (1, 1), (1, 1)
        widths, mids = (256, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
        self.extra = nn.ModuleList([])
        for n, (a, mid, b) in enumerate(zip(widths, mids, widths[1:])):
            stride, padding = (2, 1) if n < 3 else (1, 0)
            self.extra.append(
                nn.Sequential(
                    nn.Conv2d(a, mid, 1), nn.ReLU(), nn.Conv2d(mid, b, 3, stride, padding),
                    nn.ReLU(),
                )
            )  # fmt: skip
        self.heads = nn.ModuleList(
            [
                nn.Conv2d(w, (4 + classes) * n, 3, padding=1)
                for w, n in zip(widths, (4, 6, 6, 6, 4, 4))
            ]
        )
        self.columns = 4 + classes

    def forward(self, images):
        x = self.backbone(images)
        found = [self.heads[0](x)]
        for extra, head in zip(self.extra, self.heads[1:]):
            x = extra(x)
            found.append(head(x))
        joined = [one.reshape(images.shape[0], self.columns, -1) for one in found]
        return torch.cat(joined, 2).transpose(1, 2)


class RetinaNetMlperf(nn.Module):
    """RetinaNet of MLPerf Training v2.0 on: ResNeXt-50 32x4d, 264 classes, images of 800×800.

    Norms are frozen and so is the backbone up to its first stage. Matching boxes is not counted.
    Architecture of mlcommons/training, single_stage_detector/ssd/model.
    """

    def __init__(self, classes=264):
        super().__init__()
        import torch_models

        vision = torch_models.import_torchvision()
        trunk = vision.models.detection.backbone_utils.resnet_fpn_backbone(
            backbone_name="resnext50_32x4d", weights=None, returned_layers=[2, 3, 4],
            extra_blocks=vision.ops.feature_pyramid_network.LastLevelP6P7(256, 256),
            trainable_layers=3,
        )  # fmt: skip
        heads = vision.models.detection.retinanet.RetinaNetHead(256, 9, classes)
        self.trunk, self.heads = trunk, heads

    def inputs(self, batch):
        return torch.empty(batch, 3, 800, 800)

    def loss(self, output, _inputs):
        scores, boxes = (output[name].float() for name in ("cls_logits", "bbox_regression"))
        classes = F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
        return classes + F.l1_loss(boxes, torch.zeros_like(boxes))

    def forward(self, images):
        return self.heads(list(self.trunk(images).values()))


class UNetIndustrial(nn.Module):
    """The small U-Net of NVIDIA/DeepLearningExamples on grey images of 512×512."""

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
        return torch.empty(batch, 1, 512, 512)

    def loss(self, output, _inputs):
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


class _RmsNorm(nn.Module):
    """As diffusers spells it (models/normalization.py, `RMSNorm`): op by op."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + 1e-6) * self.weight


#: What normalises the queries and keys of a head.
_HEAD_NORMS = {
    "rms": _RmsNorm, "layer": nn.LayerNorm, "none": lambda _size: nn.Identity()
}  # fmt: skip


class _DiffusionBlock(nn.Module):
    """Self-attention, attention to the text where there is any, and a feed-forward."""

    def __init__(self, width, heads, inner, has_text, has_rotary, norm):
        super().__init__()
        self.heads, self.has_rotary = heads, has_rotary
        self.norm_q, self.norm_k = (_HEAD_NORMS[norm](width // heads) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.text = nn.ModuleList(
            [nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)]
            if has_text
            else []
        )
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.scales = nn.Parameter(torch.empty(6, width))

    def forward(self, x, text):
        shift, scale, gate, shift2, scale2, gate2 = self.scales.unbind(0)
        q, k, v = self.qkv(self.norm(x) * (1 + scale) + shift).chunk(3, -1)
        x = x + gate * self.out(self._attended(q, k, v))
        if len(self.text):
            k, v = self.text[1](text).chunk(2, -1)
            x = x + self.text[2](self._attended(self.text[0](x), k, v))
        hidden = F.gelu(self.up(self.norm(x) * (1 + scale2) + shift2), approximate="tanh")
        return x + gate2 * self.down(hidden)

    def _attended(self, q, k, v):
        parts = [
            one.view(one.shape[0], one.shape[1], self.heads, -1).transpose(1, 2)
            for one in (q, k, v)
        ]
        turned = self._placed(self.norm_q(parts[0])), self._placed(self.norm_k(parts[1]))
        y = F.scaled_dot_product_attention(*turned, parts[2])
        return y.transpose(1, 2).reshape(q.shape)

    def _placed(self, x):
        """With rotary positions, in FP32 as the libraries do."""
        if not self.has_rotary:
            return x
        half, wide = x.shape[-1] // 2, x.float()
        angles = wide.new_empty(x.shape[-2], x.shape[-1])
        turned = torch.cat((-wide[..., half:], wide[..., :half]), -1)
        return (wide * angles + turned * angles).to(x.dtype)


class _PatchAttention(nn.Module):
    """Attention of the patches to themselves, beside that of patches and text together.

    Source: huggingface/diffusers, models/attention.py, `JointTransformerBlock` with
    ``use_dual_attention``; stabilityai/stable-diffusion-3.5-medium, transformer/config.json,
    ``dual_attention_layers`` 0 to 12.
    """

    def __init__(self, width, heads, norm):
        super().__init__()
        self.block = _DiffusionBlock(width, heads, 1, False, False, norm)

    def forward(self, x, num_patches):
        block, patches = self.block, x[:, :num_patches]
        shift, scale, gate, *_ = block.scales.unbind(0)
        q, k, v = block.qkv(block.norm(patches) * (1 + scale) + shift).chunk(3, -1)
        added = gate * block.out(block._attended(q, k, v))
        return torch.cat((patches + added, x[:, num_patches:]), 1)


class DiffusionTransformer(nn.Module):
    """One denoising step of a transformer on latent patches.

    Time embedding, text encoders and the decoder of latents are not counted: they run once.

    Args:
        layers: Blocks.
        width: Hidden size.
        heads: Attention heads.
        inner: Width of the feed-forward.
        tokens: Patches of one item.
        text: Tokens of the prompt.
        is_joint: The text goes through the blocks with the patches; else it is attended to.
        guided: Passes per item: two where guidance needs the item without its prompt.
        has_rotary: Positions turn queries and keys; else they are added to the patches.
        norm: Of the queries and keys of a head.
        dual: So many of the first blocks attend to the patches a second time.
    """

    def __init__(
        self, layers, width, heads, inner, tokens, text, is_joint=False, guided=2,
        has_rotary=False, norm="rms", dual=0,
    ):  # fmt: skip
        super().__init__()
        self.patch, self.head = nn.Linear(64, width), nn.Linear(width, 64)
        self.blocks = nn.ModuleList(
            [
                _DiffusionBlock(width, heads, inner, not is_joint, has_rotary, norm)
                for _ in range(layers)
            ]
        )
        self.dual = nn.ModuleList([_PatchAttention(width, heads, norm) for _ in range(dual)])
        self.tokens, self.words, self.width = tokens, text, width
        self.is_joint, self.guided = is_joint, guided

    def inputs(self, batch):
        return (
            torch.empty(self.guided * batch, self.tokens, 64),
            torch.empty(self.guided * batch, self.words, self.width),
        )

    def forward(self, patches, text):
        x = self.patch(patches)
        if self.is_joint:
            x = torch.cat((x, text), 1)
        for number, block in enumerate(self.blocks):
            x = block(x, text)
            if number < len(self.dual):
                x = self.dual[number](x, self.tokens)
        return self.head(x)


def _diffusion(*sizes, **more):
    return lambda: DiffusionTransformer(*sizes, **more)


_MODELS = {
    "efficientdet_d0": EfficientDet,
    "ssd_resnet34": SsdResNet34,
    "retinanet_mlperf": RetinaNetMlperf,
    "unet_industrial": UNetIndustrial,
    "pixart_sigma": _diffusion(28, 1152, 16, 4608, 4096, 300, norm="none"),
    "pixart_alpha": _diffusion(28, 1152, 16, 4608, 4096, 120, norm="none"),
    "sd3_medium": _diffusion(24, 1536, 24, 6144, 4096, 333, is_joint=True, norm="none"),
    "flux1": _diffusion(57, 3072, 24, 12_288, 4096, 512, is_joint=True, guided=1, has_rotary=True),
    "sd35_large": _diffusion(38, 2432, 38, 9728, 4096, 333, is_joint=True),
    "sd35_medium": _diffusion(24, 1536, 24, 6144, 4096, 333, is_joint=True, dual=13),
    "wan21_1b": _diffusion(30, 1536, 12, 8960, 32_760, 512, has_rotary=True),
    "wan21_14b": _diffusion(40, 5120, 40, 13_824, 32_760, 512, has_rotary=True),
    "cogvideox_5b": _diffusion(
        42, 3072, 48, 12_288, 17_550, 226, is_joint=True, has_rotary=True, norm="layer"
    ),
    "cogvideox_2b": _diffusion(30, 1920, 30, 7680, 17_550, 226, is_joint=True, norm="layer"),
    "cogvideox15_5b": _diffusion(
        42, 3072, 48, 12_288, 44_880, 224, is_joint=True, has_rotary=True, norm="layer"
    ),
    "hunyuan_video": _diffusion(
        60, 3072, 24, 12_288, 118_800, 256, is_joint=True, guided=1, has_rotary=True
    ),
}
