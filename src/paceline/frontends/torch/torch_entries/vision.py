"""Models of torchvision: classifiers, segmentation, video, optical flow and detection.

Standard library, torch and torchvision only. ``torchvision:NAME`` takes settings after a comma:
``torchvision:r3d_18,frames=8``.
"""

import json
import os

import torch
import torch.nn.functional as F
from torch_entries.building import build
from torch_entries.subjects import RequestError, Subject
from torch_networks import zoo

#: Weight of the auxiliary head, and the pixels that count for nothing.
#: Source: pytorch/vision, references/segmentation/train.py, `criterion`.
_AUXILIARY_WEIGHT, _NO_CLASS = 0.5, 255
#: Weight of a prediction against the one after it. Source: Teed and Deng 2020, section 3.3.
_FADING = 0.8


def vision_subject(text, request):
    """The subject of ``NAME`` or ``NAME,setting=number``."""
    name, given = parsed(text)
    models = zoo.import_torchvision().models
    families = (
        (models, _classifier), (models.segmentation, _segmentation), (models.video, _video),
        (models.optical_flow, _flow), (models.detection, _detector),
    )  # fmt: skip
    for module, make in families:
        if name in models.list_models(module=module):
            return make(name, given, request.get("image_size"))
    if name.startswith("quantized_"):
        message = "its 8-bit kernels are a CPU's (FBGEMM, QNNPACK): trace `torchvision:%s`"
        raise RequestError("bad-request", message % name[len("quantized_") :])
    known = [one for module, _ in families for one in models.list_models(module=module)]
    raise RequestError("unknown-model", json.dumps({"name": name, "known": known}))


def parsed(text):
    """The name, and the numbers of its settings."""
    name, *settings = text.split(",")
    given = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if not value.strip().isdigit() or int(value) < 1:
            raise RequestError("bad-request", "`%s` is no setting with a number" % setting)
        given[key.strip()] = int(value)
    return name.strip(), given


def check_settings(given, known):
    """Refuse a setting that the model does not have."""
    for key in given:
        if key not in known:
            taken = ", ".join("`%s`" % one for one in known) or "none"
            raise RequestError("bad-request", "has no setting `%s`; known: %s" % (key, taken))


def stated_sizes():
    """What one input is where the name does not say."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vision_sizes.json")
    with open(path) as file:
        return json.load(file)


def _classifier(name, given, image_size):
    check_settings(given, ())
    model = build(lambda: _built(name, image_size=image_size))
    size = image_size or getattr(model, "image_size", None) or native_size(name)
    return Subject(model, "image", (3, size, size))


def _built(name, **wanted):
    """The model without weights; vision transformers are built for one size, others take any."""
    builder = zoo.import_torchvision().models.get_model_builder(name)
    wanted = {key: value for key, value in wanted.items() if value}
    if wanted:
        try:
            return builder(weights=None, **wanted)
        except TypeError:
            pass
    return builder(weights=None)


def native_size(name):
    """Side that the first weights of the library are made for."""
    weights = list(zoo.import_torchvision().models.get_model_weights(name))
    given = weights[0].transforms.keywords if weights else {}
    crop = given.get("crop_size", given.get("resize_size", 224))
    return crop[0] if isinstance(crop, (list, tuple)) else crop


class _SegmentationSubject(Subject):
    """A class per pixel."""

    def loss(self, output, inputs):
        """Cross-entropy of every pixel, and of the auxiliary head's."""
        batch, _, height, width = inputs.shape
        target = torch.empty((batch, height, width), dtype=torch.int64, device="meta")
        loss = F.cross_entropy(output["out"], target, ignore_index=_NO_CLASS)
        if "aux" not in output:
            return loss
        auxiliary = F.cross_entropy(output["aux"], target, ignore_index=_NO_CLASS)
        return loss + _AUXILIARY_WEIGHT * auxiliary


def _segmentation(name, given, image_size):
    """With the auxiliary head that the published weights have; MobileNet's LR-ASPP has none."""
    check_settings(given, ())
    builder = zoo.import_torchvision().models.get_model_builder(name)
    heads = {} if name.startswith("lraspp") else {"aux_loss": True}
    model = build(lambda: builder(weights=None, weights_backbone=None, **heads))
    size = image_size or native_size(name)
    return _SegmentationSubject(model, "image", (3, size, size))


def _video(name, given, image_size):
    """Clips of as many frames as the weights are judged on, a class for each."""
    check_settings(given, ("frames",))
    frames = given.get("frames") or stated_sizes()["frames"][name]
    size = image_size or native_size(name)
    extent = {"spatial_size": (size, size), "temporal_size": frames}
    model = build(lambda: _built(name, **(extent if name.startswith("mvit") else {})))
    return Subject(model, "features", (3, frames, size, size))


class _FlowSubject(Subject):
    """Where each pixel of a picture goes in the next."""

    makes_tensors = True

    def __init__(self, model, height, width, updates):
        super().__init__(model, "features", (6, height, width))
        self._updates = updates

    def inputs(self, batch, _seq):
        """Two pictures."""
        one = (batch, 3, *self.shape[1:])
        return torch.empty(one, device="meta"), torch.empty(one, device="meta")

    def call(self, inputs):
        """A flow after each update."""
        return self.model(*inputs, num_flow_updates=self._updates)

    def loss(self, output, inputs):
        """Distances of every prediction to the true flow, earlier ones weighing less.

        Source: pytorch/vision, references/optical_flow/utils.py, `sequence_loss`.
        """
        truth = torch.empty_like(output[-1])
        is_valid = torch.empty_like(truth[:, :1], dtype=torch.bool)
        distances = [((flow - truth).abs() * is_valid).mean() for flow in output]
        weights = [_FADING**age for age in reversed(range(len(output)))]
        return sum(weight * distance for weight, distance in zip(weights, distances))


def _flow(name, given, image_size):
    usual = stated_sizes()["flow"]
    check_settings(given, tuple(usual))
    square = {"height": image_size, "width": image_size} if image_size else {}
    sizes = {**usual, **square, **given}
    if sizes["height"] % 8 or sizes["width"] % 8:
        raise RequestError("bad-request", "takes pictures of a multiple of eight pixels")
    return _FlowSubject(build(lambda: _built(name)), **sizes)


def _detector(name, given, image_size):
    from torch_detection.torchvision_detectors import torchvision_detector

    check_settings(given, ("boxes", "height", "width"))
    return torchvision_detector(name, given, image_size, stated_sizes()["detection"], build)
