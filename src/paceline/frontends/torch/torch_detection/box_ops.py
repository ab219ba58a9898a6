"""What a detector does with boxes: place, choose, suppress, match, sample and pool them.

Standard library and torch only. A real detector's boxes depend on its pictures; here every count is
fixed, so that shapes depend on the number of pictures alone. All pictures of a batch are worked on
at once; where libraries go through them one by one, `torch_tracing.loops` says so.

Shapes: B pictures, G true boxes, A places or candidates, N boxes of all pictures together.
"""

import torch
from torch_tracing.loops import each_item

_OPERATORS = torch.library.Library("paceline", "DEF")
_OPERATORS.define("pool_regions(Tensor features, Tensor boxes, int side) -> Tensor")
_OPERATORS.define("pool_regions_backward(Tensor grad, Tensor boxes, int[] shape) -> Tensor")
_OPERATORS.define("overlap_mask(Tensor boxes) -> Tensor")
_OPERATORS.define("read_back(Tensor values) -> Tensor")
_OPERATORS.define("unsuppressed(Tensor mask) -> Tensor")

#: Boxes whose overlaps with one box are a word of the mask.
#: Source: pytorch/vision, torchvision/csrc/ops/cuda/nms_kernel.cu, `threadsPerBlock`.
_WORD_BITS = 64
#: What the host reads of a box before its mask is drawn.
_NUMBERS_OF_A_MASK = 12


def _regions(features, boxes, side):
    return features.new_empty((boxes.shape[0], features.shape[1], side, side))


def _regions_gradient(grad, _boxes, shape):
    return grad.new_empty(shape)


def _mask(boxes):
    batch, count = boxes.shape[:2]
    return boxes.new_empty((batch, count, -(-count // _WORD_BITS)), dtype=torch.int64)


def _count(values):
    return values.new_empty((1,), dtype=torch.int64)


def _unsuppressed(mask):
    return mask.new_empty(mask.shape[:2], dtype=torch.bool)


_OPERATORS.impl("pool_regions", _regions, "Meta")
_OPERATORS.impl("pool_regions_backward", _regions_gradient, "Meta")
_OPERATORS.impl("overlap_mask", _mask, "Meta")
_OPERATORS.impl("read_back", _count, "Meta")
_OPERATORS.impl("unsuppressed", _unsuppressed, "Meta")


def counted(values, times=1):
    """``values``, whose hits the host counts before it goes on.

    Sources: pytorch/vision, torchvision/models/detection and ops; facebookresearch/detectron2,
    modeling: each ``torch.where`` of one argument, ``nonzero``, index by a mask, ``.item()``.
    """
    for _ in range(times):
        torch.ops.paceline.read_back(values.detach())
    return values


class _PoolRegions(torch.autograd.Function):
    """RoI Align (He et al. 2017): one kernel each way, which keeps the boxes only."""

    @staticmethod
    def forward(ctx, features, boxes, side):
        ctx.save_for_backward(boxes)
        ctx.shape = list(features.shape)
        return torch.ops.paceline.pool_regions(features, boxes, side)

    @staticmethod
    def backward(ctx, grad):
        """Gradients go to the features alone: boxes have none."""
        (boxes,) = ctx.saved_tensors
        return torch.ops.paceline.pool_regions_backward(grad, boxes, ctx.shape), None, None


def pool_regions(features, boxes, side):
    """Regions of ``side`` × ``side``, (N, C, side, side), of boxes (N, 4) in (B, C, H, W)."""
    return _PoolRegions.apply(features, boxes, side)


def pool_levels(pyramid, boxes, side):
    """Regions from the level that suits each box; every level is taken to suit equally many.

    Source: Lin et al. 2017 (feature pyramids), equation 1.
    """
    with each_item():
        torch.full_like(boxes[:, :1], 0.0)  # the number of the picture
    if len(pyramid) == 1:
        return pool_regions(pyramid[0], boxes, side)
    _levels_of(boxes)
    share = boxes.shape[0] // len(pyramid)
    index = torch.empty((share,), dtype=torch.int64)
    regions = torch.zeros((boxes.shape[0], pyramid[0].shape[1], side, side))
    for features in pyramid:
        regions[index] = pool_regions(features, counted(boxes)[index], side)
    return regions


def _levels_of(boxes):
    with each_item():
        areas = _areas(boxes)
    sides = areas.sqrt()
    return (4 + (sides / 224).log2()).floor().clamp(2, 5)


def places(pyramid, nums_per_cell):
    """Anchors of every cell of every level, (A, 4)."""
    made = []
    for features, num in zip(pyramid, nums_per_cell):
        height, width = features.shape[-2:]
        across, down = torch.arange(width) * 1.0, torch.arange(height) * 1.0
        y, x = torch.meshgrid(down, across, indexing="ij")
        corners = torch.stack((x, y, x, y), -1).reshape(-1, 1, 4)
        made.append((corners + torch.empty(1, num, 4)).reshape(-1, 4))
    return torch.cat(made)


def per_place(values, width):
    """(B, cell × width, H, W) of a head's convolution as (B, A, width)."""
    batch, channels, height, wide = values.shape
    cells = values.view(batch, channels // width, width, height, wide)
    return cells.permute(0, 3, 4, 1, 2).reshape(batch, -1, width)


def moved(distances, boxes):
    """Boxes at predicted distances from boxes. Source: Girshick et al. 2014, appendix C."""
    x, y, width, height = _centred(boxes)
    across, down, wider, higher = distances.unbind(-1)
    width, height = wider.clamp(max=4.0).exp() * width, higher.clamp(max=4.0).exp() * height
    x, y = across * width + x, down * height + y
    half, tall = 0.5 * width, 0.5 * height
    return torch.stack((x - half, y - tall, x + half, y + tall), -1)


def distances_to(truth, boxes):
    """What `moved` undoes."""
    x, y, width, height = _centred(boxes)
    true_x, true_y, true_width, true_height = _centred(truth)
    parts = (
        (true_x - x) / width, (true_y - y) / height, (true_width / width).log(),
        (true_height / height).log(),
    )  # fmt: skip
    return torch.stack(parts, -1)


def _centred(boxes):
    left, top, right, bottom = boxes.unbind(-1)
    width, height = right - left, bottom - top
    return left + 0.5 * width, top + 0.5 * height, width, height


def picked(values, index):
    """Rows (B, A, width) at (B, K)."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


def best(scores, count):
    """Indices of the highest scores (B, A), as many as there are up to ``count``."""
    return scores.topk(min(count, scores.shape[1]), dim=1)[1]


def suppressed(boxes, scores, num_kept, num_counted=2):
    """Indices of boxes that no better one of their class or level covers, (B, num_kept).

    A sort, the overlaps of all pairs as bits, and a walk over them; classes or levels are kept
    apart by moving them. What is left is counted after. ``num_counted``: how often boxes that are
    too small or unlikely are counted before. Source: torchvision, `batched_nms`, nms_kernel.cu.
    """
    counted(scores, num_counted)
    shifts = torch.empty_like(scores) * (boxes.max() + 1)
    apart = boxes + shifts[..., None]
    order = scores.argsort(dim=1, descending=True)
    mask = torch.ops.paceline.overlap_mask(picked(apart, order))
    is_best = torch.ops.paceline.unsuppressed(mask)
    return order.gather(1, where(is_best, (len(boxes), num_kept)))


def matched(truth, boxes):
    """The true box of each box and how well it fits, each (B, A); boxes are (B or 1, A, 4).

    The best box of each true one counts as fitting, however badly.
    """
    quality = _overlaps(truth, boxes)
    fit, index = quality.max(1)
    is_best = (quality == quality.amax(2, keepdim=True)).any(1)
    return index, torch.where(is_best, torch.ones_like(fit), fit)


def labelled(truth, boxes, keeps_best):
    """The true box of each box, and what it is: more than 0 an object, 0 none, -1 neither.

    ``keeps_best``: the best box of each true one counts as an object, however badly it fits.
    Source: torchvision, models/detection/_utils.py, `Matcher`, with the labels made of it in
    rpn.py and roi_heads.py.
    """
    quality = _overlaps(truth, boxes)
    fit, index = quality.max(1)
    best = index.clone() if keeps_best else None
    is_none, is_between = fit < 0.3, (fit >= 0.3) & (fit < 0.7)
    index.masked_fill_(is_none, -1).masked_fill_(is_between, -2)
    if keeps_best:
        is_best = quality == quality.amax(2, keepdim=True)
        near = where(is_best, (len(fit), truth.shape[1]))
        index.scatter_(1, near, best.gather(1, near))
    label = (index >= 0).to(torch.float32)
    label.masked_fill_(index == -1, 0.0).masked_fill_(index == -2, -1.0)
    return index.clamp(min=0), label


def where(is_hit, shape):
    """Indices of hits, which the host counts; there are taken to be as many as ``shape`` says."""
    counted(is_hit)
    return torch.empty(shape, dtype=torch.int64)


def clipped(boxes):
    """Boxes inside their picture."""
    return torch.stack((boxes[..., ::2].clamp(min=0.0), boxes[..., 1::2].clamp(min=0.0)), -1).view(
        boxes.shape
    )


def wide_enough(boxes, *others):
    """What is left of boxes, and of what goes with each, once narrow ones are out: all."""
    is_wide = boxes[..., 2] - boxes[..., 0] >= 0.001
    is_wide &= boxes[..., 3] - boxes[..., 1] >= 0.001
    return kept(where(is_wide, boxes.shape[:2]), boxes, *others)


def kept(index, boxes, *others):
    """Boxes, and what goes with each, at (B, K)."""
    return picked(boxes, index), *(one.gather(1, index) for one in others)


def matched_by_middle(truth, boxes):
    """The smallest true box around the middle of each box, and whether there is one, each (B, A).

    Source: torchvision, models/detection/fcos.py, `compute_loss` (Tian et al. 2019).
    """
    true_middle = (truth[..., :2] + truth[..., 2:]) / 2
    middle = (boxes[..., :2] + boxes[..., 2:]) / 2
    sides = boxes[..., 2] - boxes[..., 0]
    apart = (middle[:, :, None] - true_middle[:, None]).abs().amax(-1)
    is_match = apart < 1.5 * sides[..., None]
    x, y = middle[..., None].unbind(2)
    left, top, right, bottom = truth[:, None].unbind(-1)
    reach = torch.stack((x - left, y - top, right - x, bottom - y), -1)
    is_match &= reach.amin(-1) > 0
    least, most = sides * 4, sides * 8
    least[:, :1], most[:, -1:] = 0.0, 1e8
    longest = reach.amax(-1)
    is_match &= (longest > least[..., None]) & (longest < most[..., None])
    best, index = (is_match.to(torch.float32) * (1e8 - _areas(truth)[:, None])).max(-1)
    return index.masked_fill(best < 1e-5, -1), best


def fitting(fit, count):
    """Places (B, count) that fit, which the host counts."""
    counted(fit > 0.5)
    return torch.empty((len(fit), count), dtype=torch.int64)


def marked(targets, fit, count):
    """``targets`` (B, A, classes) with a one for each place that fits, which the host counts."""
    classes = torch.empty((len(fit), count, targets.shape[-1]), dtype=torch.int64)
    counted(fit >= 0)
    return targets.scatter(1, classes, 1.0)


def _overlaps(truth, boxes):
    """Intersection over union of all pairs, (B, G, A)."""
    corner = torch.maximum(truth[:, :, None, :2], boxes[:, None, :, :2])
    extent = (torch.minimum(truth[:, :, None, 2:], boxes[:, None, :, 2:]) - corner).clamp(min=0)
    shared = extent[..., 0] * extent[..., 1]
    return shared / (_areas(truth)[:, :, None] + _areas(boxes)[:, None] - shared)


def resized(boxes):
    """Boxes (B, N, 4) in the picture as it came."""
    left, top, right, bottom = boxes.unbind(-1)
    return torch.stack((left * 2.0, top * 2.0, right * 2.0, bottom * 2.0), -1)


def drawn(masks, boxes, picture):
    """Masks (B × N, side, side) of boxes (B, M, 4) in pictures, (B, M, height, width), M <= N.

    Each box is taken for half as high and half as wide as the picture. The host asks for twelve
    numbers of each: sides, corners, and where slices begin and end.

    Source: torchvision, models/detection/roi_heads.py, `paste_mask_in_image`.
    """
    of_picture = masks.reshape(boxes.shape[0], -1, *masks.shape[1:])
    with each_item():
        alone = [
            _drawn(of_picture[:, n : n + 1], boxes[:, n], picture) for n in range(boxes.shape[1])
        ]
        return torch.stack(alone, 1)


def _drawn(mask, box, picture):
    height, width = picture
    number = box[:, 0].to(torch.int64)
    for _ in range(_NUMBERS_OF_A_MASK):
        number = counted(number + 1)
    mask = torch.nn.functional.interpolate(mask, size=(height // 2, width // 2), mode="bilinear")
    whole = torch.zeros((len(mask), height, width))
    whole[:, : height // 2, : width // 2] = mask[:, 0]
    return whole


def _areas(boxes):
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def sampled(labels, num_fitting, count):
    """Marks (B, A) of a random sample of fitting boxes, and one of others: ``count`` in all.

    Source: torchvision, models/detection/_utils.py, `BalancedPositiveNegativeSampler`.
    """
    batch, num_boxes = labels.shape
    fitting = where(labels >= 1, (batch, min(num_fitting, num_boxes)))
    others = where(labels == 0, (batch, num_boxes))
    return [_marks(one, labels, most) for one, most in ((fitting, num_fitting), (others, count))]


def _marks(index, labels, count):
    order = torch.rand(index.shape).argsort(dim=1)
    chosen = index.gather(1, order[:, :count])
    return torch.zeros_like(labels, dtype=torch.uint8).scatter_(1, chosen, 1)


def brought_to_size(images, truth):
    """Pictures and, where there is a truth, boxes and masks, each stretched to its new size.

    Pictures are taken to come about as large as they are to be.
    Source: torchvision, models/detection/transform.py, `GeneralizedRCNNTransform`.
    """
    images = _stretched(images, "bilinear")
    ratios = [_number(images) / _number(images) for _ in "yx"]
    sides = [ratios[n % 2] * side for n, side in enumerate(truth["boxes"].unbind(-1))]
    truth = {**truth, "boxes": torch.stack(sides, -1)}
    if "masks" in truth:
        masks = _stretched(truth["masks"].to(torch.float32), "nearest")
        truth["masks"] = masks.to(torch.uint8)
    is_flat = truth["boxes"][..., 2:] <= truth["boxes"][..., :2]
    counted(is_flat.any())
    return images, truth


def _stretched(pictures, mode):
    size = pictures.shape[-2:]
    return torch.nn.functional.interpolate(pictures, size=size, mode=mode)


def _number(like):
    """A number of the host that the device divides by."""
    return torch.tensor(1.0, device=like.device)
