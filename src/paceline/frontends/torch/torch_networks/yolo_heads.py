"""What YOLOv5 to YOLO26 tell of three levels of a picture: boxes, masks, points, turned boxes.

Standard library and torch only. Choosing among the boxes that are told (suppressing those that
overlap, or the best 300) is not counted.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_networks.yolo_blocks import conv

CLASSES = 80
_ANCHORS = 3
_MASKS = 32
#: Places of a picture that have an object, for the loss of masks: few, and nothing counts them.
_MATCHED = 64


def _three(inputs, width, outputs):
    """Two convolutions and what is told."""
    layers = conv(inputs, width, 3), conv(width, width, 3)
    return nn.Sequential(*layers, nn.Conv2d(width, outputs, 1))


def _separable(inputs, width, outputs):
    return nn.Sequential(
        conv(inputs, inputs, 3, 1, inputs), conv(inputs, width),
        conv(width, width, 3, 1, width), conv(width, width), nn.Conv2d(width, outputs, 1),
    )  # fmt: skip


class Anchored(nn.Module):
    """For three anchors of every place a box, whether there is an object, and its class (v5)."""

    taken = "the head is that of its own release, with anchors; names that end in u have YOLOv8's"

    def __init__(self, widths):
        super().__init__()
        self.told = nn.ModuleList([nn.Conv2d(w, _ANCHORS * (5 + CLASSES), 1) for w in widths])

    def forward(self, levels):
        """Box, object and class of every anchor, [batch, anchors, 85].

        Logits in training, sigmoids of them in inference.

        Args:
            levels: Three, [batch, channels, height, width] each.
        """
        told = [self._by_anchor(one(level)) for one, level in zip(self.told, levels)]
        return torch.cat(told, 1) if self.training else torch.cat([t.sigmoid() for t in told], 1)

    @staticmethod
    def _by_anchor(told):
        batch, _, height, width = told.shape
        told = told.view(batch, _ANCHORS, 5 + CLASSES, height, width).permute(0, 1, 3, 4, 2)
        return told.reshape(batch, -1, 5 + CLASSES)

    def loss(self, told):
        """Binary cross-entropy of objects and classes, and squared differences of boxes."""
        boxes, scores = told.split((4, 1 + CLASSES), 2)
        scored = F.binary_cross_entropy_with_logits(scores, torch.empty_like(scores))
        return scored + F.mse_loss(boxes, torch.empty_like(boxes))


class Decoupled(nn.Module):
    """Of every place a box, whether there is an object, and its class, by two branches (YOLOX).

    Args:
        widths: Channels of three levels.
        inner: Channels of both branches.
    """

    def __init__(self, widths, inner):
        super().__init__()
        self.stems = nn.ModuleList([conv(w, inner) for w in widths])
        self.boxes, self.scores = (
            nn.ModuleList([_three(inner, inner, told) for _ in widths]) for told in (5, CLASSES)
        )

    def forward(self, levels):
        """Box, object and class of every place, [batch, 85, places].

        Logits in training, sigmoids of objects and classes in inference.

        Args:
            levels: Three, [batch, channels, height, width] each.
        """
        told = []
        for number, stem in enumerate(self.stems):
            x = stem(levels[number])
            told.append(torch.cat((self.boxes[number](x), self.scores[number](x)), 1).flatten(2))
        told = torch.cat(told, 2)
        if self.training:
            return told
        return torch.cat((told[:, :4], told[:, 4:].sigmoid()), 1)

    def loss(self, told):
        """Binary cross-entropy of objects and classes, and differences of boxes."""
        boxes, scores = told.split((4, 1 + CLASSES), 1)
        scored = F.binary_cross_entropy_with_logits(scores, torch.empty_like(scores))
        return scored + F.l1_loss(boxes, torch.empty_like(boxes))


class Boxes(nn.Module):
    """Distances of the four sides in bins, and scores of the classes, of every place.

    Args:
        widths: Channels of three levels.
        is_separable: Whether classes are told by separable convolutions.
        classes: How many.
        bins: Of a distance; one tells it as it is.
        more: Numbers of every place besides: of its mask, its points, its angle.
    """

    def __init__(self, widths, is_separable, classes=CLASSES, bins=16, more=0):
        super().__init__()
        narrowest = widths[0]
        sides, scores = max(16, narrowest // 4, 4 * bins), max(narrowest, min(classes, 100))
        told = _separable if is_separable else _three
        self.sides = nn.ModuleList([_three(w, sides, 4 * bins) for w in widths])
        self.scores = nn.ModuleList([told(w, scores, classes) for w in widths])
        inner = max(narrowest // 4, more)
        self.more = nn.ModuleList([_three(w, inner, more) for w in widths] if more else [])
        self.parts = (4 * bins, classes, more)
        if bins > 1:
            self.bins = nn.Conv2d(bins, 1, 1, bias=False).requires_grad_(False)

    def forward(self, levels):
        """Sides, scores and what is more of every place, [batch, numbers, places].

        In training a side is told by logits of its bins; in inference it is their mean, and
        scores are sigmoids.

        Args:
            levels: Three, [batch, channels, height, width] each; places are those of all.
        """
        parts = [(self.sides, self.scores, self.more)[k] for k in range(3 if len(self.more) else 2)]
        told = [torch.cat([part[k](x) for part in parts], 1) for k, x in enumerate(levels)]
        told = torch.cat([level.flatten(2) for level in told], 2)
        return told if self.training else self._decoded(told)

    def _decoded(self, told):
        sides, scores, more = told.split(self.parts, 1)
        batch, channels, places = sides.shape
        if channels > 4:
            sides = sides.view(batch, 4, channels // 4, places).transpose(1, 2).softmax(1)
            sides = self.bins(sides).view(batch, 4, places)
        found = (sides, scores.sigmoid())
        return torch.cat((*found, more) if len(self.more) else found, 1)

    def loss(self, told):
        """Binary cross-entropy of scores, cross-entropy of the bins of sides, and what is more."""
        sides, scores, more = told.split(self.parts, 1)
        classes = F.binary_cross_entropy_with_logits(scores, torch.empty_like(scores))
        rest = F.mse_loss(more, torch.empty_like(more)) if len(self.more) else 0
        return classes + self._sides_loss(sides) + rest

    def _sides_loss(self, sides):
        if sides.shape[1] == 4:
            return F.l1_loss(sides, torch.empty_like(sides))
        bins = sides.transpose(1, 2).reshape(-1, sides.shape[1] // 4)
        target = torch.empty(bins.shape[0], dtype=torch.int64, device=bins.device)
        return F.cross_entropy(bins, target)


class TwiceTold(nn.Module):
    """A head whose places may name an object twice, and one that does not (v10, YOLO26).

    The first is for training alone, and teaches the network below; the second learns from what
    it is given and teaches nothing below.
    """

    def __init__(self, make):
        super().__init__()
        self.many, self.one = make(), make()
        self.many.bins = getattr(self.one, "bins", None)

    def forward(self, levels):
        """What both heads tell of three levels; in inference only the second one runs."""
        if not self.training:
            return self.one(levels)
        return self.many(levels), self.one([level.detach() for level in levels])

    def loss(self, told):
        """Of both."""
        return self.many.loss(told[0]) + self.one.loss(told[1])


class Masks(nn.Module):
    """Boxes with the weights of masks of the whole picture, which are made of the first level."""

    taken = "the loss of masks is taken of %d objects of a picture" % _MATCHED

    def __init__(self, widths, is_separable):
        super().__init__()
        width = widths[0]
        self.boxes = Boxes(widths, is_separable, more=_MASKS)
        self.masks = nn.Sequential(
            conv(width, width, 3), nn.ConvTranspose2d(width, width, 2, 2),
            conv(width, width, 3), conv(width, _MASKS),
        )  # fmt: skip

    def forward(self, levels):
        """What `Boxes` tells, and 32 masks at twice the first level's height and width."""
        return self.boxes(levels), self.masks(levels[0])

    def loss(self, told):
        """Of boxes, and binary cross-entropy of the masks of objects."""
        found, masks = told
        weights = found[:, -_MASKS:, :_MATCHED].mT
        drawn = weights @ masks.flatten(2)
        return self.boxes.loss(found) + F.binary_cross_entropy_with_logits(
            drawn, torch.empty_like(drawn)
        )


class Classes(nn.Module):
    """One answer of a picture."""

    def __init__(self, inputs, classes=1000):
        super().__init__()
        self.conv, self.told = conv(inputs, 1280), nn.Linear(1280, classes)

    def forward(self, levels):
        """Of the last level alone, [batch, classes]: logits in training, shares in inference."""
        told = self.told(self.conv(levels[-1]).mean((2, 3)))
        return told if self.training else told.softmax(1)

    def loss(self, told):
        """Cross-entropy."""
        target = torch.empty(told.shape[0], dtype=torch.int64, device=told.device)
        return F.cross_entropy(told, target)


class Job:
    """Pictures of a size, and the loss of what is told of them.

    Attributes:
        side: Of a picture; another may be asked for.
        multiple: What a side is a multiple of.
    """

    kind, multiple = "image", 32

    def __init__(self, model, side=640):
        self.model, self.side = model, side

    def inputs(self, batch):
        """Pictures."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """As the head has it."""
        return self.model.head.loss(output)
