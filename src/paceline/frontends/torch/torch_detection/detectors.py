"""Detectors of boxes, masks and keypoints: their networks, choices and losses at fixed sizes.

Standard library and torch only. The networks (backbone, heads) are given; ``torchvision`` and
``detectron2`` entries differ in them and in the numbers of `Choices`.

Shapes: as in `box_ops`.
"""

import contextlib
from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import nn
from torch_detection import box_ops
from torch_entries.subjects import Subject
from torch_tracing.loops import each_item
from torch_tracing.structures import tensors_in

#: How many boxes a picture has where. Pairs are (training, inference).
#: before: candidates per level before suppression; after: proposals per picture after it;
#: places: anchors a picture that the proposals are taught on (of SSD: others per fitting one);
#: regions: proposals a picture that the heads are taught on; fitting: how many of these have an
#: object; found: objects at most. None where a network has none.
Choices = namedtuple("Choices", "before after places regions fitting found")

#: What the host reads of each picture's true boxes: that each has a width.
#: Source: pytorch/vision, models/detection, ``degenerate_boxes``.
_CHECKS = 1


class Proposer(nn.Module):
    """A region proposal network (Ren et al. 2015)."""

    def __init__(self, head, nums_per_cell, choices):
        super().__init__()
        self.head, self._nums, self._choices = head, nums_per_cell, choices

    def forward(self, pyramid, truth):
        """(proposals (B, P, 4), loss or None)."""
        scores, distances = self.head(pyramid)
        flat = [box_ops.per_place(s, 1)[..., 0] for s in scores]
        distances = torch.cat([box_ops.per_place(d, 4) for d in distances], 1)
        places = box_ops.places(pyramid, self._nums)[None]
        boxes = box_ops.moved(distances.detach(), places)
        proposals = self._chosen(boxes, [one.detach() for one in flat])
        loss = self._loss(torch.cat(flat, 1), distances, places, truth) if truth else None
        return proposals, loss

    def _chosen(self, boxes, scores):
        is_inference = not self.training
        before = self._choices.before[is_inference]
        best = [box_ops.best(one, before) for one in scores]
        parts = boxes.split([one.shape[1] for one in scores], 1)
        boxes = torch.cat([box_ops.picked(p, b) for p, b in zip(parts, best)], 1)
        scores = torch.cat([s.gather(1, b) for s, b in zip(scores, best)], 1).sigmoid()
        num_kept = min(self._choices.after[is_inference], boxes.shape[1])
        levels = torch.empty(scores.shape, dtype=torch.int64)
        with each_item():
            boxes, scores, levels = box_ops.wide_enough(box_ops.clipped(boxes), scores, levels)
            likely = box_ops.where(scores >= 0.0, scores.shape)
            boxes, scores, levels = box_ops.kept(likely, boxes, scores, levels)
            best = box_ops.suppressed(boxes, scores, num_kept, num_counted=0)
            return box_ops.kept(best, boxes, scores)[0]

    def _loss(self, scores, distances, places, truth):
        with each_item():
            index, labels = box_ops.labelled(truth["boxes"], places, keeps_best=True)
            true = box_ops.picked(truth["boxes"], index)
            count = self._choices.places
            marks = box_ops.sampled(labels, count // 2, count)
        targets = box_ops.distances_to(true, places)
        shape = len(labels), min(count // 2, labels.shape[1])
        near, far = (box_ops.where(one, shape) for one in marks)
        sample = torch.cat((near, far), 1)
        ways = [box_ops.picked(one, near) for one in (distances, targets)]
        labels, scores = labels.gather(1, sample), scores.gather(1, sample)
        is_object = F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype))
        return is_object + F.smooth_l1_loss(*ways, reduction="sum") / sample.shape[1]


class RegionHeads(nn.Module):
    """Classes, boxes, and where asked masks and keypoints of proposals.

    ``shared`` is a stage that regions pass before every head (networks without a pyramid).
    """

    def __init__(self, choices, side, box, shared=None, mask=None, keypoint=None):
        super().__init__()
        self._choices, self._side = choices, side
        self.shared, self.box, self.mask, self.keypoint = shared, box, mask, keypoint

    def forward(self, pyramid, proposals, truth):
        """The loss in training, else tensors of what was found."""
        return self._taught(pyramid, proposals, truth) if truth else self._found(pyramid, proposals)

    def _regions(self, pyramid, boxes, side):
        regions = box_ops.pool_levels(pyramid, boxes.reshape(-1, 4), side)
        return regions if self.shared is None else self.shared(regions)

    def _taught(self, pyramid, proposals, truth):
        boxes, true, labels = self._sampled(proposals, truth)
        targets = box_ops.distances_to(true, boxes)
        regions = self._regions(pyramid, boxes, self._side)
        scores, distances = self.box(regions)
        labels = box_ops.counted(labels.reshape(-1))
        fitting = torch.empty((len(boxes) * self._choices.fitting,), dtype=torch.int64)
        of_class = distances.reshape(-1, 4).index_select(0, fitting)
        loss = F.cross_entropy(scores, labels)
        loss = loss + F.smooth_l1_loss(of_class, targets.reshape(-1, 4)[fitting])
        inside = boxes.reshape(-1, 4)[fitting]
        for head in (self.mask, self.keypoint):
            if head is not None:
                mine = regions[fitting] if self.shared else self._regions(pyramid, inside, 14)
                loss = loss + head.loss(mine, inside, fitting, truth)
        return loss

    def _sampled(self, proposals, truth):
        """Boxes that the heads are taught on, and the true one and the class that each is to be."""
        choices = self._choices
        with each_item():
            boxes = torch.cat((proposals, truth["boxes"]), 1)
            index, fit = box_ops.labelled(truth["boxes"], boxes, keeps_best=False)
            labels = truth["labels"].gather(1, index)
            marks = box_ops.sampled(fit, choices.fitting, choices.regions)
            count = min(choices.regions, boxes.shape[1])
            sample = box_ops.where(marks[0] | marks[1], (len(boxes), count))
            boxes, labels, index = box_ops.kept(sample, boxes, labels, index)
            return boxes, box_ops.picked(truth["boxes"], index), labels

    def _found(self, pyramid, proposals):
        batch, count = proposals.shape[:2]
        scores, distances = self.box(self._regions(pyramid, proposals, self._side))
        scores = scores.softmax(-1)
        # A library keeps a box per class, or one; the first dims of both are boxes.
        distances = distances.reshape(batch, count, -1, 4)
        boxes = box_ops.moved(distances, proposals[:, :, None])
        with each_item():
            boxes = boxes.clamp(min=0.0)
            is_likely = box_ops.counted(scores[:, 1:].reshape(batch, -1) > 0.05)
            likely = torch.empty((batch, count), dtype=torch.int64)
            scores = scores[:, 1:].reshape(batch, -1).gather(1, likely)
            boxes = box_ops.picked(boxes.reshape(batch, -1, 4), likely)
            found = box_ops.suppressed(boxes, scores, self._choices.found)
            boxes, scores = box_ops.picked(boxes, found), scores.gather(1, found)
        inside = [self._regions(pyramid, boxes, 14) for head in (self.mask, self.keypoint) if head]
        heads = [head for head in (self.mask, self.keypoint) if head]
        marks = [h.found(r) for h, r in zip(heads, inside)]
        with each_item():
            boxes = box_ops.resized(boxes)
        if self.mask is not None and self.mask.picture is not None:
            drawn = boxes[:, : self.mask.num_drawn]
            marks.append(box_ops.drawn(marks[0], drawn, self.mask.picture))
        return [is_likely, boxes, scores, *marks]


class BoxHead(nn.Sequential):
    """A body, then scores and distances."""

    def __init__(self, body, predictor):
        super().__init__(body, predictor)


class MaskHead(nn.Module):
    """A mask per class of every region (He et al. 2017).

    ``picture`` is the height and width of the picture into which a library draws each of
    ``num_drawn`` masks by itself; None where its code does not.
    """

    def __init__(self, body, predictor, picture=None, num_drawn=0):
        super().__init__()
        self.body, self.predictor = body, predictor
        self.picture, self.num_drawn = picture, num_drawn

    def _chosen(self, regions):
        masks = self.predictor(self.body(regions))
        index = torch.empty((masks.shape[0],), dtype=torch.int64)
        return masks.reshape(-1, *masks.shape[2:]).index_select(0, index)

    def loss(self, regions, boxes, fitting, truth):
        """Cross-entropy of every pixel of the true class's mask."""
        masks = self._chosen(regions)
        with each_item():
            box_ops.counted(fitting > 0)
            boxes = boxes[torch.empty_like(fitting)]
            boxes = torch.cat((fitting[:, None].to(boxes.dtype), boxes), 1)[:, 1:]
            whole = truth["masks"].flatten(0, 1)[:, None].to(masks.dtype)
            targets = box_ops.pool_regions(whole, boxes, masks.shape[-1])[:, 0]
        return F.binary_cross_entropy_with_logits(masks, targets)

    def found(self, regions):
        """Masks before they are drawn into the picture."""
        return self._chosen(regions).sigmoid()


class KeypointHead(nn.Module):
    """A place per keypoint of every region (He et al. 2017)."""

    def __init__(self, body, predictor):
        super().__init__()
        self.body, self.predictor = body, predictor

    def loss(self, regions, _boxes, fitting, truth):
        """Cross-entropy of all places of a heat map."""
        maps = self.found(regions)
        rows = maps.reshape(-1, maps.shape[-2] * maps.shape[-1])
        targets = truth["keypoints"].flatten(0, 1)[fitting % truth["keypoints"].shape[1]]
        return F.cross_entropy(rows, targets[..., 0].reshape(-1).to(torch.int64))

    def found(self, regions):
        """Heat maps."""
        return self.predictor(self.body(regions))


class TwoStage(nn.Module):
    """Proposals, then heads on them; without heads the proposals are the answer.

    ``resizes``: in training the network itself brings pictures and their truth to size.
    """

    def __init__(self, backbone, proposer, heads, choices, num_pooled, resizes=False):
        super().__init__()
        self.resizes = resizes
        self.backbone, self.proposer, self.heads = backbone, proposer, heads
        self.choices, self._num_pooled = choices, num_pooled

    def forward(self, images, truth=None):
        """The loss where there is a truth, else what was found."""
        if truth and self.resizes:
            with each_item():
                images, truth = box_ops.brought_to_size(images, truth)
        pyramid = tensors_in(self.backbone(_normal(images)))
        proposals, loss = self.proposer(pyramid, truth)
        if self.heads is None:
            return proposals if loss is None else loss
        answer = self.heads(pyramid[: self._num_pooled], proposals, truth)
        return answer if loss is None else loss + answer


class StatedProposals(nn.Module):
    """Proposals that were made beforehand (Fast R-CNN)."""

    def __init__(self, choices):
        super().__init__()
        self._after = choices.after

    def forward(self, pyramid, _truth):
        """Nothing is learnt from them."""
        count = self._after[not self.training]
        proposals = torch.empty((pyramid[0].shape[0], count, 4))
        return proposals, torch.zeros(()) if self.training else None


class OneStage(nn.Module):
    """A class and a box of every place: RetinaNet, FCOS and SSD.

    ``focus`` is the loss of classes: ``focal`` (Lin et al. 2017), ``centred`` (Tian et al. 2019)
    or ``mined`` (Liu et al. 2016). ``loss_by_picture`` says whether a focal loss is that of each
    picture by itself.
    """

    def __init__(self, backbone, head, nums_per_cell, focus, choices, loss_by_picture=True):
        super().__init__()
        self.loss_by_picture = loss_by_picture
        self.backbone, self.head, self._nums = backbone, head, nums_per_cell
        self._focus, self.choices = focus, choices

    def forward(self, images, truth=None):
        """The loss where there is a truth, else what was found."""
        pyramid = tensors_in(self.backbone(_normal(images)))
        made = self.head(pyramid)
        places = box_ops.places(pyramid, self._nums)[None]
        counts = [f.shape[-2] * f.shape[-1] * n for f, n in zip(pyramid, self._nums)]
        if truth:
            return self._loss(made, places, truth)
        with each_item():
            boxes, scores = self._found(made, places, counts)
            return box_ops.resized(boxes), scores

    def _loss(self, made, places, truth):
        losses = {
            "focal": self._focal_loss, "centred": self._centred_loss, "mined": self._mined_loss,
        }  # fmt: skip
        return losses[self._focus](made, places, truth)

    def _focal_loss(self, made, places, truth):
        """Both losses of each picture by itself; detectron2 makes those of all together."""
        with each_item():
            index, fit = box_ops.matched(truth["boxes"], places)
            box_ops.counted(truth["boxes"], _CHECKS)
        with each_item() if self.loss_by_picture else contextlib.nullcontext():
            scores = _focal(made["cls_logits"], fit, truth)
            boxes = self._box_loss(made["bbox_regression"], places, truth, index, fit)
            return (scores + boxes) / len(fit)

    def _box_loss(self, distances, places, truth, index, fit):
        near = box_ops.fitting(fit, truth["boxes"].shape[1])
        true = box_ops.picked(truth["boxes"], index.gather(1, near))
        places = box_ops.picked(places.expand(len(near), -1, -1), near)
        targets = box_ops.distances_to(true, places)
        lost = F.smooth_l1_loss(box_ops.picked(distances, near), targets, reduction="sum")
        return lost / near.shape[1]

    def _centred_loss(self, made, places, truth):
        """Source: torchvision, models/detection/fcos.py, `FCOSHead.compute_loss`."""
        with each_item():
            box_ops.counted(truth["boxes"], _CHECKS)
            index, fit = box_ops.matched_by_middle(truth["boxes"], places)
            labels = truth["labels"].gather(1, index.clamp(min=0))
            true = box_ops.picked(truth["boxes"], index.clamp(min=0))
            labels = labels.masked_fill(fit < 0.5, -1)
        scores, count = made["cls_logits"], truth["boxes"].shape[1]
        box_ops.counted(labels >= 0)
        targets = box_ops.marked(torch.zeros_like(scores), labels, count)
        boxes = box_ops.moved(made["bbox_regression"], places)
        near = box_ops.fitting(fit, count)
        loss = _focal_of(scores, targets) + _overlap_loss(
            box_ops.picked(boxes, near), box_ops.picked(true, near)
        )
        sides = box_ops.distances_to(true, places)
        pairs = [sides[..., ::2], sides[..., 1::2]]
        middle = torch.sqrt(pairs[0].amin(-1) / pairs[0].amax(-1) * pairs[1].amin(-1))
        told = made["bbox_ctrness"][..., 0].gather(1, box_ops.fitting(fit, count))
        taught = middle.gather(1, box_ops.fitting(fit, count))
        return loss + F.binary_cross_entropy_with_logits(told, taught, reduction="sum")

    def _mined_loss(self, made, places, truth):
        """Cross-entropy of fitting places and of the worst others. Source: Liu et al. 2016, 2.2."""
        with each_item():
            index, fit = box_ops.matched(truth["boxes"], places)
            box_ops.counted(truth["boxes"], _CHECKS)
            boxes = self._box_loss(made["bbox_regression"], places, truth, index, fit)
            labels = torch.zeros_like(index)
            labels = labels.masked_fill(fit > 0.5, 1)
        scores = made["cls_logits"]
        losses = F.cross_entropy(scores.flatten(0, 1), labels.reshape(-1), reduction="none")
        losses = losses.reshape(fit.shape)
        rank = losses.detach().masked_fill(labels > 0, 0.0).argsort(dim=1, descending=True)
        is_hard = rank.argsort(1) < self.choices.places * (labels > 0).sum(1, keepdim=True)
        box_ops.counted(is_hard, 2)
        return boxes + torch.where(is_hard | (labels > 0), losses, torch.zeros_like(losses)).sum()

    def _found(self, made, places, counts):
        scores, distances = made["cls_logits"], made["bbox_regression"]
        if self._focus == "mined":
            boxes = box_ops.moved(distances, places).clamp(min=0.0)
            boxes, scores = _per_class(scores.softmax(-1), boxes, self.choices.before)
        else:
            scores = scores.sigmoid()
            if self._focus == "centred":
                scores = (scores * made["bbox_ctrness"].sigmoid()).sqrt()
            boxes, scores = self._per_level(scores, distances, places, counts)
        found = box_ops.suppressed(boxes, scores, self.choices.found)
        return box_ops.picked(boxes, found), scores.gather(1, found)

    def _per_level(self, scores, distances, places, counts):
        parts = [one.split(counts, 1) for one in (scores, distances, places)]
        boxes, kept = [], []
        for of_level, ways, where in zip(*parts):
            flat = of_level.flatten(1)
            is_likely = box_ops.counted(flat > 0.05)
            best = box_ops.best(flat.masked_fill(~is_likely, 0.0), self.choices.before)
            index = best.div(of_level.shape[-1], rounding_mode="floor")
            near = box_ops.picked(where.expand(len(index), -1, -1), index)
            boxes.append(box_ops.moved(box_ops.picked(ways, index), near).clamp(min=0.0))
            kept.append(flat.gather(1, best))
        return torch.cat(boxes, 1), torch.cat(kept, 1)


def _focal(scores, fit, truth):
    """Focal loss of all places but those that fit half. Source: Lin et al. 2017, equation 5."""
    box_ops.counted(fit > 0.5)
    targets = box_ops.marked(torch.zeros_like(scores), fit, truth["boxes"].shape[1])
    told = torch.empty((fit.shape[1],), dtype=torch.int64)
    kept = [one.index_select(1, box_ops.counted(told)) for one in (scores, targets)]
    return _focal_of(*kept) / truth["boxes"].shape[1]


def _focal_of(scores, targets):
    from torchvision.ops import sigmoid_focal_loss

    return sigmoid_focal_loss(scores, targets, reduction="sum")


def _overlap_loss(boxes, truth):
    from torchvision.ops import generalized_box_iou_loss

    return generalized_box_iou_loss(boxes, truth, reduction="sum")


def _per_class(scores, boxes, count):
    """The best places of every class but the first; ``count`` of them all are likely."""
    kept, where = [], []
    for number in range(1, scores.shape[-1]):
        of_class = box_ops.counted(scores[:, :, number], 2)
        best = box_ops.best(of_class.masked_fill(of_class <= 0.01, 0.0), count)
        kept.append(of_class.gather(1, best))
        where.append(box_ops.picked(boxes, best))
    likely = torch.empty((len(boxes), count), dtype=torch.int64)
    return box_ops.picked(torch.cat(where, 1), likely), torch.cat(kept, 1).gather(1, likely)


def _normal(images):
    """Less a mean, over a spread, copied into the padded batch."""
    shape = (1, images.shape[1], 1, 1)
    with each_item():
        return ((images - torch.empty(shape)) / torch.empty(shape)).clone()


class DetectionSubject(Subject):
    """Pictures, and in training the objects on them."""

    makes_tensors = True

    def __init__(self, model, height, width, boxes, taken):
        super().__init__(model, "image", (3, height, width))
        self._boxes, self.taken = boxes, taken

    def inputs(self, batch, _seq):
        """Pictures, with boxes, classes, masks and keypoints in training."""
        images = torch.empty((batch, *self.shape))
        if not self.model.training:
            return (images,)
        truth = {
            "boxes": torch.empty(batch, self._boxes, 4),
            "labels": torch.empty((batch, self._boxes), dtype=torch.int64),
        }
        heads = getattr(self.model, "heads", None)
        if getattr(heads, "mask", None) is not None:
            shape = (batch, self._boxes, *self.shape[1:])
            truth["masks"] = torch.empty(shape, dtype=torch.uint8)
        if getattr(heads, "keypoint", None) is not None:
            truth["keypoints"] = torch.empty(batch, self._boxes, 17, 3)
        return images, truth

    def loss(self, output, inputs):
        """The model's own."""
        return output
