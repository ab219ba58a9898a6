"""Models of the transformers library, from a known name, a class, a model type or a config.json.

Standard library, torch and transformers only. Nothing is downloaded: architectures come from the
library's code, sizes from ``hf_models.json`` (published configurations) or from the file given.
"""

import contextlib
import functools
import importlib
import inspect
import itertools
import json
import os
import re

import torch
from torch_entries.building import build
from torch_entries.subjects import RequestError, Subject, of_size, sizes_in
from torch_networks import zoo
from torch_tracing.structures import tensors_in
from torch_tracing.waits import full_masks
from torch_transformers import stated
from torch_transformers.kernels import fuse
from torch_transformers.pictures import freeze_encoder, may_look, sight, text_alone

#: Auto classes tried in turn, with the kind of the subject.
_HEADS = (
    ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "language"),
    ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "language"),
    ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "language"),
    ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "language"),
    ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "language"),
    ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "image"),
    ("MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES", "features"),
    ("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES", "features"),
    ("MODEL_FOR_CTC_MAPPING_NAMES", "features"),
    ("MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES", "image"),
    ("MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES", "image"),
    ("MODEL_MAPPING_NAMES", "text"),
    ("MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES", "image"),
    ("MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES", "image"),
)

#: Kinds whose items are labelled as a whole.
_WHOLE = ("image", "features")
#: What is said of the loss of recognisers, whose paths through the labels depend on values.
_FRAME_BY_FRAME = "a loss of every frame, not of paths"
#: What is said of models that compare texts with sounds (CLAP, arXiv:2211.06687, section 3.2).
_WITH_SOUND = "%g s of sound beside each text"
#: What is said of readers of pages, which look at them too (LayoutLMv3, arXiv:2204.08387, 3.1).
_WITH_PAGE = "a page of %d×%d beside each text"

#: What a model type learns where it reads a value back: no sequence is padded, no token is below
#: zero, no token attends to all others.
_READ_BACK = {"xlm": 0, "flaubert": 0, "prophetnet": True, "longformer": False}
#: What a training step decides by chance: spans of sound to mask, layers to skip. None are.
_BY_CHANCE = {
    "apply_spec_augment": False, "layerdrop": 0.0, "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}  # fmt: skip
#: Model types that look for the tokens of each language: all tokens are of the one language.
_ONE_LANGUAGE = ("xmod",)
#: Height and width of the pictures that detectors are judged on, where their configs state none:
#: RT-DETR and D-FINE at 640 × 640, DETR and kin at 800 on the short side of a 4:3 picture, which
#: what draws masks pads to a multiple of 32. DINOv2 learns places of 518 × 518 and is fed what its
#: processor crops (preprocessor_config.json: 224).
_PICTURES = {
    "dinov2": (224, 224),
    **dict.fromkeys(("maskformer", "mask2former"), (800, 1088)),
    **dict.fromkeys(("rt_detr", "rt_detr_v2", "d_fine", "deimv2"), (640, 640)),
    **dict.fromkeys(
        (
            "detr",
            "conditional_detr",
            "deformable_detr",
            "dab-detr",
            "table-transformer",
            "grounding-dino",
            "mm-grounding-dino",
        ),
        (800, 1066),
    ),
}
#: Frames of sound in ten seconds at a hop of ten milliseconds, where a config bounds them not.
_FRAMES = 1000
_FRAMES_PER_S, _SAMPLES_PER_S = 100, 16_000
#: Learned tables of places in a text, by the name of their module.
_POSITIONS = re.compile(
    r"^(?!.*(?:vision|visual|rel|encoder\.embed_positions|[xyhw]_pos)).*"
    r"(?:\bwpe|\bembed_positions|\bposition_embeddings?)$"
)
#: What a forward calls the state that it goes on from: of attention, of a recurrence.
_CACHES = ("past_key_values", "cache_params", "state")
#: Model types whose class refuses to be trained: the parts of Bark.
_WITHOUT_LOSS = ("semantic", "coarse_acoustics")
#: Classes that encode a picture once and write what stands in it.
_READERS = ("VisionEncoderDecoderModel",)


def hf_subject(name, request):
    """The subject that ``hf:NAME`` names."""
    return _subject_of(lambda: _find(name), request)


def settings_subject(settings, request):
    """The subject that settings describe, such as a config.json states."""
    return _subject_of(
        lambda: _from_settings(importlib.import_module("transformers"), settings), request
    )


def _subject_of(find, request):
    """The subject of what ``find`` returns: a model's class and its config."""
    from torch_transformers import detectors, speech

    os.environ["HF_HUB_OFFLINE"] = "1"
    zoo.import_torchvision()
    _say_that_sequences_are_whole()
    model_class, config, settings = find()
    refusal = functools.partial(stated.refusal, settings, config)
    try:
        fuse(config)
        kind, size = _kind(model_class), request.get("image_size")
        model = _built(model_class, config)
        found = (make(model, kind, size) for make in (detectors.detector, speech.transducer))
        subject = next(filter(None, found), None) or HfSubject(model, kind, size, request)
        _check_length(subject, request)
    except Exception as error:
        if settings is None or getattr(error, "kind", None):
            raise
        raise refusal(error) from error
    subject.refusal = None if settings is None else refusal
    return subject


def _check_length(subject, request):
    """Whether anything has the length, and a table of positions reaches as far as was asked.

    Raises:
        RequestError: It does not.
    """
    subject.model.train(request.get("task") != "infer")
    asked = request.get("seq") or 0
    if 0 < asked < subject.shortest:
        said = "the picture of each sample takes %d tokens" % (subject.shortest - 1)
        raise of_size(said, "give --seq %d or more: it counts them too" % subject.shortest)
    if subject.has_seq:
        short, long = (tensors_in(subject.inputs(2, length)) for length in (3, 5))
        subject.has_seq = [one.shape for one in short] != [one.shape for one in long]
    tables = [
        module.num_embeddings
        for name, module in subject.model.named_modules()
        if isinstance(module, torch.nn.Embedding) and _POSITIONS.search(name)
    ]
    if subject.has_seq and asked > min(tables, default=asked):
        most = min([*tables, subject.longest] if subject.longest else tables)
        said = "its table of positions ends before a length of %d" % asked
        raise of_size(said, "give --seq %d or less" % most)


def _say_that_sequences_are_whole():
    """Answer the library where it would read values, which meta tensors have not.

    No sequence is padded, and no two are packed into one.
    """
    masks = importlib.import_module("transformers.masking_utils")
    models = importlib.import_module("transformers.modeling_utils")
    for name in ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"):
        asked = getattr(masks, name, None)
        if asked is not None and not hasattr(asked, "func"):
            setattr(masks, name, functools.partial(_without_padding, asked))
    masks.find_packed_sequence_indices = lambda _positions: None
    models.PreTrainedModel.warn_if_padding_and_no_attention_mask = lambda *_arguments: None


@contextlib.contextmanager
def whole_sequences():
    """Inside, a model of the library that a user brought learns the same; undone afterwards."""
    masks = importlib.import_module("transformers.masking_utils")
    models = importlib.import_module("transformers.modeling_utils")
    before, warn = dict(vars(masks)), models.PreTrainedModel.warn_if_padding_and_no_attention_mask
    _say_that_sequences_are_whole()
    try:
        yield
    finally:
        vars(masks).update(before)
        models.PreTrainedModel.warn_if_padding_and_no_attention_mask = warn


def _without_padding(asked, _padding_mask, *rest, **named):
    return asked(None, *rest, **named)


def _built(model_class, config):
    """FP32, or BF16 where the model's own kernels want no other (grouped experts)."""
    parts = (config, getattr(config, "text_config", None), getattr(config, "ffn_config", None))
    keys = (key for part in parts if part is not None for key in vars(part))
    has_experts = any("experts" in key and not key.startswith("_") for key in keys)
    dtype = torch.bfloat16 if has_experts else torch.float32
    config.use_cache = True
    for part, name in itertools.product(
        (config, getattr(config, "encoder_config", None)), _BY_CHANCE
    ):
        if getattr(part, name, None):
            setattr(part, name, _BY_CHANCE[name])
    stated.give_tokens(config)
    if getattr(config, "languages", None) and getattr(config, "default_language", "") is None:
        config.default_language = next(iter(config.languages))
    model = build(lambda: model_class._from_config(config, dtype=dtype))
    if getattr(config, "has_own_head", False):
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


def _find(text):
    """(model class, config, what the user states) of a path, a name, a class or a model type.

    Keys of its config may follow: ``mixtral-8x7b,num_hidden_layers=8``. Of a published size as it
    is the user states nothing: None.
    """
    transformers = importlib.import_module("transformers")
    name, _, sizes = (text, "", "") if os.path.exists(text) else text.partition(",")
    settings = stated.settings_of(transformers, name)
    found = _from_settings(transformers, settings)
    given = sizes_in(sizes)
    if not given:
        return (*found[:2], None) if name in stated.known() else found
    stated.check_keys(given, (found[1], getattr(found[1], "text_config", None)))
    return _from_settings(transformers, stated.resized(settings, given))


def _from_settings(transformers, stated_settings):
    """(model class, config, the settings) of what a config.json states."""
    stated.check_counts(stated_settings)
    settings = dict(stated_settings)
    model_type = settings.pop("model_type", None)
    if not isinstance(model_type, str):
        raise RequestError("bad-config", "the config has no `model_type`")
    named = (settings.get("architectures") or [""])[0]
    config_class = getattr(getattr(transformers, named, None), "config_class", None)
    mapping = importlib.import_module("transformers.models.auto.configuration_auto")
    if model_type in mapping.CONFIG_MAPPING_NAMES:
        config_class = functools.partial(transformers.AutoConfig.for_model, model_type)
    elif getattr(config_class, "model_type", "") != model_type:
        known = sorted(mapping.CONFIG_MAPPING_NAMES)
        raise RequestError("unknown-model", json.dumps({"name": model_type, "known": known}))
    try:
        config = config_class(**settings)
    except Exception as error:  # Each configuration class has errors of its own.
        raise stated.refusal(stated_settings, None, error) from error
    # T5's class ties its head whatever a config says, and loads the head that a release has.
    config.has_own_head = (
        settings.get("tie_word_embeddings") is False and config.tie_word_embeddings
    )
    class_name = named or _class_name(model_type, config)
    if class_name is None or not hasattr(transformers, class_name):
        version = transformers.__version__
        message = "transformers %s has no class `%s`" % (version, class_name or model_type)
        raise RequestError("no-class", message)
    return getattr(transformers, class_name), config, stated_settings


def _class_name(model_type, config):
    """The class of a model type, first as what it is made for; None where it has none.

    What fills masked words can also be had as a decoder, where its config says so.
    """
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    wanted = "CAUSAL" if getattr(config, "is_decoder", False) else "MASKED"
    wanted = "SEQ" if getattr(config, "is_encoder_decoder", False) else wanted
    if getattr(config, "text_config", None) and getattr(config, "vision_config", None):
        wanted = "IMAGE_TEXT"
    first = [row for row in _HEADS if wanted in row[0]]
    for table, _ in first + list(_HEADS):
        found = getattr(auto, table).get(model_type)
        if found:
            return found[0] if isinstance(found, (list, tuple)) else found
    return None


def _kind(model_class):
    if model_class.__name__ in _READERS:
        return "language"
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for table, kind in _HEADS:
        if model_class.__name__ in getattr(auto, table).values():
            needs_pictures = "IMAGE_TEXT" in table and not _reads_text_alone(model_class)
            return "text" if needs_pictures else _kind_alone(model_class) or kind
    return _kind_alone(model_class) or ("language" if _writes(model_class) else "text")


def _writes(model_class):
    """Whether a class of no table writes token after token, as parts of larger models do."""
    names = inspect.signature(model_class.forward).parameters
    return "input_ids" in names and "past_key_values" in names and hasattr(model_class, "generate")


def _kind_alone(model_class):
    """That of a model that takes pictures or series alone and no labels; None of all others."""
    names = inspect.signature(model_class.forward).parameters
    is_alone = "input_ids" not in names and "labels" not in names
    kinds = {"pixel_values": "image", "past_values": "features"}
    return kinds.get(model_class.main_input_name) if is_alone else None


def _reads_text_alone(model_class):
    """Whether a model of pictures and text takes text without pictures."""
    names = inspect.signature(model_class.forward).parameters
    pictures = names.get("pixel_values")
    is_free = pictures is None or pictures.default is not inspect.Parameter.empty
    return "input_ids" in names and is_free


def _is_for(model, task):
    """Whether the library has the model's class for ``CTC``, ``DEPTH_ESTIMATION`` and the like."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    table = getattr(auto, "MODEL_FOR_%s_MAPPING_NAMES" % task)
    return type(model).__name__ in table.values()


class HfSubject(Subject):
    """A model of transformers: its inputs follow from its main input and its forward.

    Attributes:
        main: Name of the main input, where it is another than the library's.
        main_input: Name of the main input.
        cache: What its forward calls the state that it goes on from; empty where it has none.
    """

    main = ""

    def __init__(self, model, kind, image_size=None, request=None):
        self.main_input = self.main or getattr(model, "main_input_name", "input_ids")
        self._forward_names = inspect.signature(model.forward).parameters
        is_on_text = kind == "language" and may_look(model.config)
        if is_on_text:
            self.main_input = "input_ids"
        shape = _item_shape(model, self.main_input, image_size)
        super().__init__(model, kind, shape, has_seq=kind not in _WHOLE)
        sees = is_on_text and request and request["task"] == "train"
        self._sight = sight(model, image_size) if sees else None
        self.taken = _FRAME_BY_FRAME if _is_for(model, "CTC") else ""
        self._heard = _heard(model.config) if self.main_input == "input_ids" else None
        self._page = _page(model.config)
        if self._page:
            self.taken = _WITH_PAGE % (self._page, self._page)
        if self._heard:
            self.taken = _WITH_SOUND % (self._heard[1] / _FRAMES_PER_S)
        if self._sight:
            self.taken, self.usual_length = self._sight.taken(), self._sight.usual_length
            self.shortest, self.side = self._sight.num_tokens + 1, image_size
            freeze_encoder(model)
        elif is_on_text:
            self.pixels_per_token, self.taken = text_alone(model.config)
        self.longest = _longest(model.config)
        self.is_generator = kind == "language" and self.main_input == "input_ids"
        self.is_generator &= not getattr(model.config, "is_encoder_decoder", False)
        caches = [name for name in _CACHES if name in self._forward_names]
        self.cache = caches[0] if caches else ""
        self.is_generator &= bool(caches)
        is_double = getattr(model.config, "is_encoder_decoder", False)
        self._is_writer = kind == "language" and is_double and bool(caches)
        self._interpolates = _is_another_side(model.config, image_size)
        self._interpolates &= "interpolate_pos_encoding" in self._forward_names

    def passes(self, task):
        """Training step; prefill or encoding, and decode, of what writes; forward of all else."""
        if task == "train" and _is_codec(self.model.config):
            said = "it is trained against discriminators, which transformers has not"
            raise of_size(said, "--task infer runs it; a function of yours may hold both")
        if task == "infer" and self._is_writer:
            return importlib.import_module("torch_transformers.writers").passes(self)
        if task == "infer" and self.is_generator:
            return [("prefill", 1.0, "device", self._prefill),
                    ("decode", 1.0, "device", self._decode)]  # fmt: skip
        return Subject.passes(self, task)

    def input_description(self):
        """As printed: clips and sounds by their frames."""
        sound = _sound(self.main_input, self.shape, self.model.config)
        if sound:
            return sound
        if self.kind == "features" and len(self.shape) > 1:
            size = "×".join(str(n) for n in self.shape[2:] or self.shape[1:])
            return "%d frames of %s" % (self.shape[0], size)
        if self.shape is not None and len(self.shape) == 1:
            return "%d numbers" % self.shape[0]
        return Subject.input_description(self)

    def inputs(self, batch, seq):
        """The main input, and labels in training."""
        given = {}
        codebooks = getattr(self.model.config, "num_codebooks", None)
        if self.shape is None:
            rows = batch * codebooks if codebooks else batch
            given[self.main_input] = tokens(rows, seq)
        else:
            given[self.main_input] = torch.empty((batch, *tuple(self.shape)), device="meta")
        self._add_text(given, batch, seq)
        # The loss of a recogniser reads values; those of depths and of Bark are not written.
        has_loss = not any(_is_for(self.model, task) for task in ("CTC", "DEPTH_ESTIMATION"))
        has_loss &= self.model.config.model_type not in _WITHOUT_LOSS
        if self.model.training and "labels" in self._forward_names and has_loss:
            given["labels"] = tokens(*self._label(batch, seq), *((codebooks,) if codebooks else ()))
        return given

    def _label(self, batch, seq):
        """Shape of what is to be answered: a class of an item, of its pixels, of its tokens."""
        if _is_for(self.model, "SEMANTIC_SEGMENTATION"):
            return (batch, *self.shape[1:])
        is_whole = self.kind in _WHOLE or _is_for(self.model, "SEQUENCE_CLASSIFICATION")
        return (batch,) if is_whole else (batch, seq)

    def _add_text(self, given, batch, seq):
        """The second input of encoder-decoders and of models of two modalities."""
        is_double = getattr(self.model.config, "is_encoder_decoder", False)
        has_labels = self.model.training and "labels" in self._forward_names
        if is_double and "decoder_input_ids" in self._forward_names and not has_labels:
            given["decoder_input_ids"] = tokens(batch, seq)
        if self.main_input == "pixel_values" and "input_ids" in self._forward_names:
            given["input_ids"] = tokens(batch, seq)
        vision = getattr(self.model.config, "vision_config", None)
        takes_both = self.main_input == "input_ids" and "pixel_values" in self._forward_names
        is_on_text = self.kind == "language" and may_look(self.model.config)
        size = getattr(vision, "image_size", None) or self._page
        if takes_both and size and not is_on_text:
            given["pixel_values"] = torch.empty((batch, 3, size, size), device="meta")
        if self._heard:
            given["input_features"] = torch.empty((batch, *self._heard), device="meta")
        if "past_values_padding" in self._forward_names:
            given["past_values_padding"] = tokens(batch, *self.shape)
            given["freq"] = tokens(batch, 1)
        if self._sight:
            given.update(self._sight.inputs(batch, seq))
        if self._interpolates:
            given["interpolate_pos_encoding"] = True
        if "return_loss" in self._forward_names and self.model.training:
            given["return_loss"] = True

    def call(self, inputs):
        """The model on its inputs, with the values that it reads back."""
        kind = self.model.config.model_type
        # What asks whether pictures take the places that are left for them learns that they do.
        answer = True if self._sight else _READ_BACK.get(kind)
        with _answered(answer), full_masks(kind in _ONE_LANGUAGE):
            return Subject.call(self, inputs)

    def _prefill(self, recorder, inputs):
        self.call({"input_ids": inputs["input_ids"], "use_cache": True, **self._last_only()})

    def _decode(self, recorder, inputs):
        with recorder.paused():
            filled = self.call({"input_ids": inputs["input_ids"], "use_cache": True})
            cache = getattr(filled, self.cache)
            for tensor in cached(cache):
                recorder.own(tensor, "kv_cache")
            token = tokens(inputs["input_ids"].shape[0], 1)
        self.call({"input_ids": token, self.cache: cache, "use_cache": True})

    def _last_only(self):
        return {"logits_to_keep": 1} if "logits_to_keep" in self._forward_names else {}


@contextlib.contextmanager
def _answered(value):
    """Inside, a meta tensor that is asked for its value answers ``value``, unless that is None."""
    ask = torch.Tensor.item

    def item(tensor):
        """Stands for ``torch.Tensor.item``."""
        return value if tensor.is_meta and value is not None else ask(tensor)

    torch.Tensor.item = item
    try:
        yield
    finally:
        torch.Tensor.item = ask


def cached(cache):
    """Tensors of a cache, whatever its class."""
    found, seen, todo = [], set(), [cache]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            todo += list(value)
        elif isinstance(value, dict):
            todo += list(value.values())
        elif hasattr(value, "__dict__"):
            todo += list(vars(value).values())
    return found


def _longest(config):
    """Most tokens that the positions of a model reach; None where nothing bounds them."""
    for part in (config, getattr(config, "text_config", None)):
        for name in ("max_target_positions", "max_position_embeddings", "n_positions"):
            found = getattr(part, name, None)
            if isinstance(found, int) and found > 0:
                return found
    return None


def _is_codec(config):
    """Whether a model writes sound as numbers of a codebook, and reads it back."""
    return hasattr(config, "codebook_size") and hasattr(config, "sampling_rate")


def _sound(main, shape, config):
    """Seconds of sound, and the numbers that they come in; empty for all else.

    Recognisers hear 16,000 numbers or 100 frames a second, (channels, frames) or the reverse.
    """
    if main == "input_values" and _is_codec(config):
        return "%g s of sound (%d numbers)" % (shape[-1] / config.sampling_rate, shape[-1])
    if main == "input_values" and len(shape) == 1:
        return "%g s of sound (%d numbers)" % (shape[0] / _SAMPLES_PER_S, *shape)
    if main not in ("input_values", "input_features"):
        return ""
    frames, channels = max(shape), min(shape)
    return "%g s of sound (%d frames of %d)" % (frames / _FRAMES_PER_S, frames, channels)


def _heard(config):
    """Shape of the sound that is compared with a text, as a picture of its frames; mostly None."""
    sound = getattr(config, "audio_config", None)
    if not hasattr(sound, "spec_size"):
        return None
    return (sound.patch_embed_input_channels, _FRAMES, sound.num_mel_bins)


def _page(config):
    """Side of the picture of a page that a reader of its words looks at; mostly 0."""
    return config.input_size if getattr(config, "visual_embed", False) else 0


def _is_another_side(config, image_size):
    """Whether positions are known for other pictures than those that were asked for."""
    return bool(image_size) and tuple(_picture_shape(config, None)[-2:]) != (image_size,) * 2


def _item_shape(model, main, image_size=None):
    """Shape of one item of the main input; None for tokens."""
    config = model.config
    if main in ("pixel_values", "pixel_values_videos"):
        return _picture_shape(config, image_size)
    if main == "input_features":
        sound = getattr(config, "encoder_config", config)
        if hasattr(sound, "max_source_positions"):
            return (sound.num_mel_bins, 2 * sound.max_source_positions)
        return (_FRAMES, sound.num_mel_bins)
    if main == "input_values":
        if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
            return (config.max_length, config.num_mel_bins)
        if _is_codec(config):
            return (getattr(config, "audio_channels", 1), config.sampling_rate)
        return (16000,)
    if main == "past_values" and hasattr(config, "context_length"):
        return (config.context_length,)
    return None


def _picture_shape(config, image_size):
    """Channels, height and width of a picture; of a clip, its frames before them."""
    encoder = getattr(config, "encoder", None)
    vision = encoder if hasattr(encoder, "hidden_size") else config
    vision = getattr(config, "vision_config", vision)
    backbone = getattr(vision, "backbone_config", vision)
    stated = getattr(vision, "image_size", None) or getattr(backbone, "image_size", None)
    stated = stated or getattr(vision, "crop_size", None) or 224
    size = image_size or _PICTURES.get(config.model_type, stated)
    size = size if isinstance(size, (list, tuple)) else (size, size)
    frames = getattr(vision, "num_frames", None) or getattr(vision, "frames_per_clip", None)
    picture = (getattr(vision, "num_channels", None) or getattr(vision, "in_chans", 3), *size)
    return (frames, *picture) if frames else picture


def tokens(*shape):
    """Uninitialised numbers of words."""
    return torch.empty(shape, dtype=torch.int64, device="meta")
