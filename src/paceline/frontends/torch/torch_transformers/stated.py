"""What is stated of a model of transformers, and what is said where the library fails at it.

Standard library only.
"""

import difflib
import importlib
import inspect
import json
import os
import re

from torch_entries.request_errors import RequestError, of_size

_HERE = os.path.dirname(os.path.abspath(__file__))
#: Numbers of words that any number may stand for, since a trace reads no words: what pads a text,
#: what begins one, and what leaves room for a picture, a clip or a sound.
_PLACES = re.compile(
    r"^(pad|decoder_start|\w*(image|video|audio|speech|vision)\w*)_token_(id|index)$"
)
#: Where code of the library reads a setting.
_READ = re.compile(r"\bconfig\.(\w+)")
#: What an error says where code asks for a value that a trace has not.
_READS_VALUES = re.compile("meta tensor|NaN to integer|cannot be converted to type int", re.I)
_OWN_CODE = (
    "it decides by values there, which a trace has not: name a function that builds the model and "
    "a step without that, `paceline trace MODULE:FUNCTION`"
)
#: Settings that count, and of them those that count layers, each of which is built.
_COUNT = re.compile(r"^(num_\w+|n_\w+|\w*(layers|hidden_size|intermediate_size|vocab_size))$")
_LAYERS = re.compile(r"^(n_layers?|\w*_layers)$")
#: More layers than any model of the library has; a million would be built for hours.
_MOST_LAYERS = 4_096
#: Most settings that a hint names.
_MOST_NAMED = 6


def known():
    """Published configurations by name."""
    with open(os.path.join(_HERE, "hf_models.json")) as file:
        return json.load(file)["models"]


def settings_of(transformers, name):
    """What a config.json would say of a path, a known name, a class name or a model type."""
    if os.path.exists(name) or name.endswith(".json"):
        return _settings_in(name)
    published = known()
    if name in published:
        return published[name]
    config_class = getattr(getattr(transformers, name, None), "config_class", None)
    if config_class is not None:
        return {"model_type": config_class.model_type, "architectures": [name]}
    mapping = importlib.import_module("transformers.models.auto.configuration_auto")
    if name in mapping.CONFIG_MAPPING_NAMES:
        return {"model_type": name}
    names = sorted(published) + sorted(mapping.CONFIG_MAPPING_NAMES)
    raise RequestError("unknown-model", json.dumps({"name": name, "known": names}))


def _settings_in(name):
    """What a config.json, or the one in a folder, says."""
    path = os.path.join(name, "config.json") if os.path.isdir(name) else name
    try:
        with open(path) as file:
            settings = json.load(file)
    except OSError as error:
        raise RequestError("bad-config", "`%s`: %s" % (path, error.strerror)) from error
    except ValueError as error:
        raise RequestError("bad-config", "`%s` is no JSON: %s" % (path, error)) from error
    if not isinstance(settings, dict):
        raise RequestError("bad-config", "`%s` holds no settings" % path)
    return settings


def check_keys(given, configs):
    """Whether a config has each key that an entry states, with a number or a word behind it."""
    pairs = [pair for config in configs if config for pair in vars(config).items()]
    names = sorted({key for key, value in pairs if type(value) is int and key[0] != "_"})
    for key, value in given.items():
        if value == "" or not any(hasattr(config, key) for config in configs):
            said = "`%s=%s` is no size of this model; its config has %s" % (
                key, value, ", ".join(difflib.get_close_matches(key, names, cutoff=0.5) or names),
            )  # fmt: skip
            raise RequestError("bad-request", said)


def resized(settings, sizes):
    """Settings with stated sizes; those of the text model where they are its."""
    text_model = settings.get("text_config") or {}
    inner = {key: value for key, value in sizes.items() if key in text_model}
    outer = {key: value for key, value in sizes.items() if key not in text_model}
    nested = {"text_config": {**text_model, **inner}} if inner else {}
    return {**settings, **outer, **nested}


def check_counts(settings, path=""):
    """Whether settings count nothing below zero, and no more layers than any model has."""
    for name, value in settings.items():
        if isinstance(value, dict):
            check_counts(value, "%s%s." % (path, name))
        elif type(value) is int and _COUNT.match(name):
            most = _MOST_LAYERS if _LAYERS.match(name) else value
            if not 0 <= value <= most:
                said = "`%s%s` is %d, not 0 to %s" % (path, name, value, max(most, 0) or "more")
                raise RequestError("bad-config", said)


def give_tokens(config):
    """Give the words that nobody reads a number, where the config has none in its vocabulary."""
    end = getattr(config, "vocab_size", None)
    for name in ("pad_token_id", "decoder_start_token_id", *vars(config)):
        number = getattr(config, name, None)
        is_none = number is None or (type(number) is type(end) is int and number >= end)
        if _PLACES.match(name) and is_none:
            setattr(config, name, 0)


def refusal(settings, config, error):
    """What is said where the library fails at settings, with those that it read and are missing.

    ``config`` is what the library made of them; None where it made nothing.
    """
    said = "transformers fails at these settings: %s" % _words(error)
    if _READS_VALUES.search(said):
        return of_size(said, _OWN_CODE)
    untyped = [name for name, part in settings.items() if _is_untyped(name, part)]
    if config is None and isinstance(error, KeyError) and untyped:
        return of_size(said, "state `model_type` in its %s" % _listed(untyped))
    missing = [] if config is None else _missing(error, list(_parts("", config, settings)))
    if not missing:
        return of_size(said, "make them fit each other, as in the config.json of its release")
    taken = _listed("%s (transformers takes %s)" % pair for pair in missing)
    return of_size(
        said, "these settings are not stated: %s; state them as its release does" % taken
    )


def _words(error):
    """The last line of an error, with its type where that says more than the line."""
    line = (str(error).strip() or "nothing more is known").splitlines()[-1].strip()
    says_enough = type(error) in (ValueError, RuntimeError) or re.match(r"\w+Error: ", line)
    return line if says_enough else "%s: %s" % (type(error).__name__, line)


def _is_untyped(name, part):
    return isinstance(part, dict) and name.endswith("_config") and not part.get("model_type")


def _listed(names):
    return ", ".join(names)


def _parts(path, config, given):
    """(path, config, what is stated of it) of a config and of those within it."""
    yield path, config, given
    for name, value in vars(config).items():
        if hasattr(value, "model_type") and name[0] != "_":
            inner = given.get(name)
            yield from _parts(f"{path}{name}.", value, inner if isinstance(inner, dict) else {})


def _missing(error, parts):
    """Settings that the failing code reads and nobody stated, with what the library took."""
    traceback, frames = error.__traceback__, []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    for frame in reversed(frames):
        own = frame.f_locals.get("config", getattr(frame.f_locals.get("self"), "config", None))
        part = next((part for part in parts if part[1] is own), None)
        found = part and _unstated(*part, dict.fromkeys(_READ.findall(_source(frame))))
        if found:
            return found[:_MOST_NAMED]
    return []


def _unstated(path, config, given, names):
    """Pairs of (path, value) of the sizes among names that are not stated."""
    known = vars(config)
    pairs = ((name, known.get(name)) for name in names if given.get(name) is None)
    return [
        ("`%s%s`" % (path, name), "none" if value is None else value)
        for name, value in pairs
        if name in known and not name.endswith("_token_id")
        if value is None or type(value) in (int, list, tuple)
    ]


def _source(frame):
    """The text of the class whose method a frame runs; of its function where it is in none."""
    own = frame.f_locals.get("self")
    try:
        return inspect.getsource(frame.f_code if own is None else type(own))
    except (OSError, TypeError):
        return ""
