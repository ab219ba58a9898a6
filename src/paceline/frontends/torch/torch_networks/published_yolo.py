"""YOLOv5, YOLOv7 to YOLO26 and YOLOX as their releases lay them out, on 640×640, 80 classes.

Standard library and torch only. Layers, widths and depths of ultralytics/cfg/models: yolov5.yaml of
v5, yolov8.yaml of v8, yolov9t.yaml to yolov9e.yaml of v9, yolov10n.yaml to yolov10x.yaml of v10,
yolo11.yaml, yolo12.yaml, yolo26.yaml, and those of YOLOv8 and YOLO11 for other tasks (read
2026-11-21 and 2026-11-22). YOLO12 has whole convolutions, as Ultralytics has it, not those in
groups of its authors' later release. YOLOX: Ge et al. 2021, arXiv:2107.08430, table 3 (9.0 to 99.1
million numbers). YOLOv7: Wang et al. 2022, arXiv:2207.02696, cfg/training/yolov7.yaml (37.6 million
before it is merged).

In training a loss at every place stands for the one at the places that are matched, and what is
merged or left out later is there: both of two convolutions that are added (v9, v10) and both heads
(v10, YOLO26). Inference runs one of each, but all parameters are counted.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_networks.yolo_blocks import (
    AttentionSplit,
    Averaged,
    AveragedHalves,
    Beside,
    Kept,
    Pool,
    Scaled,
    Summed,
    aggregated,
    area_block,
    attention_block,
    bottleneck,
    conv,
    inverted_bottleneck,
    nested,
    separable_half,
    split,
)
from torch_networks.yolo_heads import (
    Anchored,
    Boxes,
    Classes,
    Decoupled,
    Job,
    Masks,
    TwiceTold,
)

_CHANNELS = (64, 128, 256, 512, 1024)
_TAKEN9 = "as Ultralytics trains it, without the branch that its first release trains beside it"


class _Backbone(nn.Module):
    """Levels of a half of the size each; the last three are given on."""

    def __init__(self, stem, stages, top):
        super().__init__()
        self.stem, self.stages, self.top = stem, nn.ModuleList(stages), top

    def forward(self, pictures):
        kept, x = [], self.stem(pictures)
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        return kept[1], kept[2], self.top(x)


class _TwoBackbones(nn.Module):
    """Every level of one, in all widths below its own, is added to those of another (v9e)."""

    def __init__(self, stem, stages, told, other, top):
        super().__init__()
        self.stem, self.stages = stem, nn.ModuleList(stages)
        self.told, self.other, self.top = nn.ModuleList(told), nn.ModuleList(other), top

    def forward(self, pictures):
        x, kept = self.stem(pictures), []
        first = x
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        told = [self._parts(k, one(x)) for k, (one, x) in enumerate(zip(self.told, (first, *kept)))]
        x, levels = pictures, []
        for number, (narrow, stage) in enumerate(self.other):
            x = self._added(narrow(x), [parts[number] for parts in told[number:]])
            x = stage(x)
            levels.append(x)
        return levels[2], levels[3], self.top(levels[4])

    @staticmethod
    def _parts(number, told):
        return told.split([64 * 2**k for k in range(number + 1)], 1)

    @staticmethod
    def _added(x, parts):
        return sum((F.interpolate(part, size=x.shape[2:]) for part in parts), x)


class _Neck(nn.Module):
    """Levels merged upwards, then downwards.

    Args:
        levels: Channels that it is given.
        ends: Channels that it gives.
        halves: Channels of two levels at half the size.
        stage: Makes a stage of (inputs, outputs, its number from 4).
        half: Makes what halves the size, of (inputs, outputs, number of the stage after it).
        reduced: Channels to which the two upper levels are brought before they go down; None
            where they go as they are.
    """

    def __init__(self, levels, ends, halves, stage, half, reduced=None):
        super().__init__()
        three, four, five = ends
        top, middle = levels[2], four
        self.reduce5 = self.reduce4 = nn.Identity()
        if reduced:
            self.reduce5, self.reduce4 = conv(top, reduced[1]), conv(middle, reduced[0])
            middle, top = reduced
        self.up4 = stage(top + levels[1], four, 4)
        self.up3 = stage(middle + levels[0], three, 5)
        self.half3, self.down4 = half(three, halves[0], 6), stage(halves[0] + middle, four, 6)
        self.half4, self.down5 = half(four, halves[1], 7), stage(halves[1] + top, five, 7)

    def forward(self, levels):
        low, middle, top = levels
        top = self.reduce5(top)
        middle = self.up4(torch.cat((F.interpolate(top, scale_factor=2.0), middle), 1))
        middle = self.reduce4(middle)
        low = self.up3(torch.cat((F.interpolate(middle, scale_factor=2.0), low), 1))
        middle = self.down4(torch.cat((self.half3(low), middle), 1))
        return low, middle, self.down5(torch.cat((self.half4(middle), top), 1))


class Yolo(nn.Module):
    """A backbone, a neck, and a head.

    Attributes:
        taken: What was taken where the name leaves it open.
    """

    def __init__(self, backbone, neck, head, taken=""):
        super().__init__()
        self.backbone, self.neck, self.head = backbone, neck, head
        self.taken = taken or getattr(head, "taken", "")

    def forward(self, pictures):
        """What the head tells of pictures [batch, 3, height, width]."""
        return self.head(self.neck(self.backbone(pictures)))


def _half(inputs, outputs, _number):
    return conv(inputs, outputs, 3, 2)


def _pool(width):
    return Pool(width, width // 2, width)


def _stages(before, widths, outputs, stage, half):
    """Stages of four levels, each after what halves the size."""
    made = []
    for number, (width, output) in enumerate(zip(widths, outputs)):
        made.append(nn.Sequential(half(before, width, number), stage(width, output, number)))
        before = output
    return made


def _widths(channels, width, most):
    """Channels at a multiple of the width, in eights."""
    return [int(-(-min(one, most) * width // 8) * 8) for one in channels]


def _depth(repeats, depth):
    return max(round(repeats * depth), 1)


def _backbone(plan, top, kernel=3):
    (stem, *widths), outputs, stage, half = plan
    return _Backbone(conv(3, stem, kernel, 2), _stages(stem, widths, outputs, stage, half), top)


def _joined(plan, top, head, halves=None, reduced=None, kernel=3, taken=""):
    """A network of (widths of five levels, outputs of the last four, stage, half)."""
    widths, outputs, stage, half = plan
    neck = _Neck(outputs[1:], widths[2:], halves or widths[2:4], stage, half, reduced)
    return Yolo(_backbone(plan, top, kernel), neck, head, taken)


def _of_classes(plan, top):
    """A backbone alone that tells one class of a picture of 224×224."""
    return Job(Yolo(_backbone(plan, top), nn.Identity(), Classes(plan[1][-1])), 224)


def _yolo5(depth, width, is_anchored):
    def stage(inputs, outputs, number):
        repeats = _depth((3, 6, 9, 3)[number] if number < 4 else 3, depth)
        return Beside(inputs, outputs, repeats, lambda w: bottleneck(w, number < 4, 1.0, 1))

    widths = _widths(_CHANNELS, width, 1024)
    three, four, five = widths[2:]
    head = Anchored(widths[2:]) if is_anchored else Boxes(widths[2:], False)
    plan = widths, widths[1:], stage, _half
    return Job(_joined(plan, _pool(five), head, reduced=(three, four), kernel=6))


def _yolox(depth, width, side=640):
    """The backbone and neck of YOLOv5; its nine middle blocks twice, its head in two branches."""

    def stage(inputs, outputs, number):
        repeats = _depth((3, 9, 9, 3)[number] if number < 4 else 3, depth)
        return Beside(inputs, outputs, repeats, lambda w: bottleneck(w, number < 3, 1.0, 1))

    widths = _widths(_CHANNELS, width, 1024)
    three, four, five = widths[2:]
    plan = widths, widths[1:], stage, _half
    head = Decoupled(widths[2:], three)
    return Job(_joined(plan, _pool(five), head, reduced=(three, four), kernel=6), side)


class _Halves(nn.Module):
    """Half the size: maxima beside a convolution, of a width each (MP)."""

    def __init__(self, inputs, width):
        super().__init__()
        self.most = conv(inputs, width)
        self.moved = nn.Sequential(conv(inputs, width), conv(width, width, 3, 2))

    def forward(self, x):
        """From [batch, inputs, height, width] to twice the width at half the size."""
        return torch.cat((self.moved(x), self.most(F.max_pool2d(x, 2))), 1)


def _elan(inputs, width, outputs):
    """Two pairs of convolutions, kept after each (ELAN)."""
    pairs = [nn.Sequential(conv(width, width, 3), conv(width, width, 3)) for _ in range(2)]
    return Kept(conv(inputs, 2 * width), 2, pairs, conv(4 * width, outputs))


def _elan_of_neck(inputs, width):
    """Four convolutions of half a width, kept after each (ELAN-H)."""
    half = width // 2
    blocks = [conv(width if number == 0 else half, half, 3) for number in range(4)]
    return Kept(conv(inputs, 2 * width), 2, blocks, conv(4 * width, width))


class _PoolBeside(nn.Module):
    """Maxima of three ranges on one way, a convolution on the other (SPPCSPC)."""

    def __init__(self, inputs, width):
        super().__init__()
        first = (conv(inputs, width), conv(width, width, 3), conv(width, width))
        self.first, self.aside = nn.Sequential(*first), conv(inputs, width)
        self.last = nn.Sequential(conv(4 * width, width), conv(width, width, 3))
        self.merge = conv(2 * width, width)

    def forward(self, x):
        """From [batch, inputs, height, width] to [batch, width, height, width]."""
        y = self.first(x)
        y = self.last(torch.cat([y, *(F.max_pool2d(y, k, 1, k // 2) for k in (5, 9, 13))], 1))
        return self.merge(torch.cat((y, self.aside(x)), 1))


class _NeckSeven(nn.Module):
    """Levels of 512, 1024 and 512 channels merged upwards, then downwards, and widened at last."""

    def __init__(self):
        super().__init__()
        self.narrow5, self.narrow4 = conv(512, 256), conv(256, 128)
        self.beside4, self.beside3 = conv(1024, 256), conv(512, 128)
        self.up4, self.up3 = _elan_of_neck(512, 256), _elan_of_neck(256, 128)
        self.half3, self.half4 = _Halves(128, 128), _Halves(256, 256)
        self.down4, self.down5 = _elan_of_neck(512, 256), _elan_of_neck(1024, 512)
        made = [Summed(width, (3, 1), outputs=2 * width) for width in (128, 256, 512)]
        self.wide = nn.ModuleList(made)

    def forward(self, levels):
        low, middle, top = levels
        up = F.interpolate(self.narrow5(top), scale_factor=2.0)
        middle = self.up4(torch.cat((self.beside4(middle), up), 1))
        up = F.interpolate(self.narrow4(middle), scale_factor=2.0)
        low = self.up3(torch.cat((self.beside3(low), up), 1))
        middle = self.down4(torch.cat((self.half3(low), middle), 1))
        top = self.down5(torch.cat((self.half4(middle), top), 1))
        return [one(level) for one, level in zip(self.wide, (low, middle, top))]


def _yolo7():
    stem = nn.Sequential(conv(3, 32, 3), conv(32, 64, 3, 2), conv(64, 64, 3))
    stages = [nn.Sequential(conv(64, 128, 3, 2), _elan(128, 64, 256))]
    for inputs, width, outputs in ((256, 128, 512), (512, 256, 1024), (1024, 256, 1024)):
        stages.append(nn.Sequential(_Halves(inputs, inputs // 2), _elan(inputs, width, outputs)))
    backbone = _Backbone(stem, stages, _PoolBeside(1024, 512))
    return Job(Yolo(backbone, _NeckSeven(), Anchored((256, 512, 1024))))


def _plan8(depth, width, most):
    def stage(inputs, outputs, number):
        repeats = _depth(6 if number in (1, 2) else 3, depth)
        return split(inputs, outputs, repeats, lambda w: bottleneck(w, number < 4))

    widths = _widths(_CHANNELS, width, most)
    return widths, widths[1:], stage, _half


def _yolo8(depth, width, most, head=Boxes, side=640):
    plan = _plan8(depth, width, most)
    return Job(_joined(plan, _pool(plan[0][-1]), head(plan[0][2:], False)), side)


def _yolo8_classes(depth, width):
    return _of_classes(_plan8(depth, width, 1024), nn.Identity())


def _aggregated(widths, repeats):
    """Stages by the width inside each, with that many blocks in all or in each."""

    def stage(inputs, outputs, number):
        num_blocks = repeats[0] if number == 0 else repeats[1]
        return aggregated(inputs, outputs, widths[number], widths[number] // 2, num_blocks)

    return stage


def _shrinking(make):
    """What halves the size: a convolution before the first stage, another layer after it."""
    return lambda inputs, outputs, number: (
        make(inputs, outputs) if number else _half(inputs, outputs, 0)
    )


def _yolo9_narrow(widths, outputs, repeats):
    """Tiny, small and medium; before the lower stages of the neck, half as wide as those."""
    inside = (*outputs, *reversed(outputs[1:3]), *outputs[2:])
    stage, half = _aggregated(inside, repeats), _shrinking(Averaged)
    five = widths[-1]
    plan = widths, outputs, stage, half
    return _with_pool9(plan, _widths(outputs[2:], 0.5, outputs[3]), Pool(five, five // 2, five))


def _yolo9c():
    stage = _aggregated((128, 256, 512, 512, 512, 256, 512, 512), (1, 1))
    plan = (64, 128, 256, 512, 512), (256, 512, 512, 512), stage, _shrinking(AveragedHalves)
    return _with_pool9(plan, (256, 512), Pool(512, 256, 512))


def _with_pool9(plan, halves, top):
    head = Boxes(plan[0][2:], False)
    return Job(_joined(plan, top, head, halves=halves, taken=_TAKEN9))


def _yolo9e():
    stage = _aggregated((128, 256, 512, 512, 512, 256, 512, 1024), (2, 2))
    half = _shrinking(AveragedHalves)
    widths, outputs = (128, 256, 512, 1024), (256, 512, 1024, 1024)
    told = [
        nn.Conv2d(before, 64 * (2 ** (k + 1) - 1), 1) for k, before in enumerate((64, *outputs))
    ]
    other = [nn.Sequential(conv(3, 64, 3, 2), nn.Identity())]
    first, second = (_stages(64, widths, outputs, stage, half) for _ in range(2))
    top = Pool(1024, 256, 512)
    backbone = _TwoBackbones(conv(3, 64, 3, 2), first, told, other + second, top)
    ends = (256, 512, 512)
    neck = _Neck((512, 1024, 512), ends, (256, 512), stage, half)
    return Job(Yolo(backbone, neck, Boxes(ends, False), _TAKEN9))


def _yolo10(depth, width, most, inverted, large=()):
    """Some stages are of inverted bottlenecks, with large kernels in some of those."""

    def stage(inputs, outputs, number):
        def make(w):
            """The block of a stage: inverted where the variant has it so."""
            if number in inverted:
                return inverted_bottleneck(w, number in large)
            return bottleneck(w, number < 4)

        return split(inputs, outputs, _depth(6 if number in (1, 2) else 3, depth), make)

    def half(inputs, outputs, number):
        is_separable = number in (2, 3, 7)
        return separable_half(inputs, outputs) if is_separable else _half(inputs, outputs, number)

    widths = _widths(_CHANNELS, width, most)
    five = widths[-1]
    head = TwiceTold(lambda: Boxes(widths[2:], True))
    top = nn.Sequential(_pool(five), AttentionSplit(five, 1))
    return Job(_joined((widths, widths[1:], stage, half), top, head))


def _yolo11_stage(depth, is_nested, nested_in):
    """Stages of C3k2: those of the given numbers are nested, and all of larger models."""
    repeats = _depth(2, depth)

    def stage(inputs, outputs, number):
        make = nested if is_nested or number in nested_in else _plain11
        return split(inputs, outputs, repeats, make, 0.25 if number < 2 else 0.5)

    return stage


def _plain11(width):
    return bottleneck(width, True, 0.5)


def _plan11(depth, width, most, is_nested):
    stage = _yolo11_stage(depth, is_nested, (2, 3, 7))
    outputs = _widths((256, 512, 512, 1024), width, most)
    return _widths(_CHANNELS, width, most), outputs, stage, _half


def _yolo11(depth, width, most, is_nested, head=Boxes, side=640):
    plan = _plan11(depth, width, most, is_nested)
    five = plan[0][-1]
    top = nn.Sequential(_pool(five), AttentionSplit(five, _depth(2, depth)))
    return Job(_joined(plan, top, head(plan[0][2:], True)), side)


def _yolo11_classes(depth, width, most, is_nested):
    plan = _plan11(depth, width, most, is_nested)
    return _of_classes(plan, AttentionSplit(plan[0][-1], _depth(2, depth)))


def _yolo12(depth, width, most, is_nested, is_scaled):
    """Attention of four areas in the third stage, of the whole picture in the fourth."""
    split_stage = _yolo11_stage(depth, is_nested, (7,))

    def stage(inputs, outputs, number):
        """A stage with attention over areas, but for the plain ones."""
        if number in (0, 1, 7):
            return split_stage(inputs, outputs, number)
        inner, areas = outputs // 2, {2: 4, 3: 1}.get(number)
        repeats = _depth(4 if areas else 2, depth)
        growth = 1.2 if is_scaled else 2.0

        def make():
            return _twice(lambda: area_block(inner, areas, growth)) if areas else nested(inner)

        merge = conv((1 + repeats) * inner, outputs)
        kept = Kept(conv(inputs, inner), 1, [make() for _ in range(repeats)], merge)
        return Scaled(kept, outputs) if areas and is_scaled else kept

    widths, outputs, _, half = _plan11(depth, width, most, is_nested)
    head = Boxes(widths[2:], True)
    return Job(_joined((widths, outputs, stage, half), nn.Identity(), head))


def _twice(make):
    return nn.Sequential(make(), make())


def _yolo26(depth, width, most, is_nested):
    """As YOLO11, with nested stages but for the first two, and attention in the last."""
    nested_stage = _yolo11_stage(depth, is_nested, range(2, 8))

    def attended(width):
        return nn.Sequential(bottleneck(width, True, 0.5), attention_block(width))

    def stage(inputs, outputs, number):
        if number == 7:
            return split(inputs, outputs, 1, attended)
        return nested_stage(inputs, outputs, number)

    widths, outputs, _, half = _plan11(depth, width, most, is_nested)
    five = widths[-1]
    pool = Pool(five, five // 2, five, is_residual=True)
    top = nn.Sequential(pool, AttentionSplit(five, _depth(2, depth)))
    head = TwiceTold(lambda: Boxes(widths[2:], True, bins=1))
    return Job(_joined((widths, outputs, stage, half), top, head))


def _points(widths, is_separable):
    """A person, and 17 points of three numbers."""
    return Boxes(widths, is_separable, classes=1, more=51)


def _turned(widths, is_separable):
    """Things seen from above, with an angle."""
    return Boxes(widths, is_separable, classes=15, more=1)


def _made(build, *sizes, **more):
    return lambda: build(*sizes, **more)


def _sizes(name, build, sizes):
    return {name + size: _made(build, *values) for size, values in sizes.items()}


def _tasks(name, build, of_classes, sizes, sizes_of_classes):
    """Models of another task by name, pictures as they are trained."""
    made = {}
    for size, values in sizes.items():
        made[f"{name}{size}-seg"] = _made(build, *values, head=Masks)
        made[f"{name}{size}-pose"] = _made(build, *values, head=_points)
        made[f"{name}{size}-obb"] = _made(build, *values, head=_turned, side=1024)
        made[f"{name}{size}-cls"] = _made(of_classes, *sizes_of_classes[size])
    return made


_SIZES5 = {
    "n": (0.33, 0.25),
    "s": (0.33, 0.5),
    "m": (0.67, 0.75),
    "l": (1.0, 1.0),
    "x": (1.33, 1.25),
}
_SIZES8 = {
    "n": (0.33, 0.25, 1024), "s": (0.33, 0.5, 1024), "m": (0.67, 0.75, 768),
    "l": (1.0, 1.0, 512), "x": (1.0, 1.25, 512),
}  # fmt: skip
_SIZES11 = {
    "n": (0.5, 0.25, 1024, False), "s": (0.5, 0.5, 1024, False), "m": (0.5, 1.0, 512, True),
    "l": (1.0, 1.0, 512, True), "x": (1.0, 1.5, 512, True),
}  # fmt: skip
_SIZESX = {
    "tiny": (0.33, 0.375, 416), "s": (0.33, 0.5), "m": (0.67, 0.75), "l": (1.0, 1.0),
    "x": (1.33, 1.25),
}  # fmt: skip
_MODELS = {
    "yolov7": _yolo7,
    **_sizes("yolox_", _yolox, _SIZESX),
    **_sizes("yolov5", _yolo5, {size: (*values, True) for size, values in _SIZES5.items()}),
    **_sizes("yolov5", _yolo5, {size + "u": (*values, False) for size, values in _SIZES5.items()}),
    **_sizes("yolov8", _yolo8, _SIZES8),
    "yolov9t": _made(_yolo9_narrow, (16, 32, 64, 96, 128), (32, 64, 96, 128), (0, 3)),
    "yolov9s": _made(_yolo9_narrow, (32, 64, 128, 192, 256), (64, 128, 192, 256), (0, 3)),
    "yolov9m": _made(_yolo9_narrow, (32, 64, 240, 360, 480), (128, 240, 360, 480), (1, 1)),
    "yolov9c": _yolo9c,
    "yolov9e": _yolo9e,
    "yolov10n": _made(_yolo10, 0.33, 0.25, 1024, {7}, {7}),
    "yolov10s": _made(_yolo10, 0.33, 0.5, 1024, {3, 7}, {3, 7}),
    "yolov10m": _made(_yolo10, 0.67, 0.75, 768, {3, 6, 7}),
    "yolov10b": _made(_yolo10, 0.67, 1.0, 512, {3, 4, 6, 7}),
    "yolov10l": _made(_yolo10, 1.0, 1.0, 512, {3, 4, 6, 7}),
    "yolov10x": _made(_yolo10, 1.0, 1.25, 512, {2, 3, 4, 6, 7}),
    **_sizes("yolo11", _yolo11, _SIZES11),
    **_sizes("yolo12", _yolo12, {s: (*values, s in "lx") for s, values in _SIZES11.items()}),
    **_sizes("yolo26", _yolo26, _SIZES11),
    **_tasks("yolov8", _yolo8, _yolo8_classes, _SIZES8, {s: v[:2] for s, v in _SIZES8.items()}),
    **_tasks("yolo11", _yolo11, _yolo11_classes, _SIZES11, _SIZES11),
}
