"""State that is no tensor, as JSON and back: the few kinds that optimizers and schedulers keep.

No pickle is written or opened. A value of another kind is refused by name, so that it cannot be
lost silently.
"""

import base64
import collections
import hashlib
import json

from paceline.loop.errors import LoopError

_MAPS = {"dict": dict, "OrderedDict": collections.OrderedDict, "Counter": collections.Counter}


def encoded(value, path):
    """A value as JSON has it; what JSON does not know stands in a mapping with one key ``$...``.

    Args:
        value: None, a number, text, bytes, or lists, tuples, sets and mappings of them.
        path: What it is, for messages.

    Raises:
        LoopError: It is of another kind.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encoded(one, "%s.%d" % (path, at)) for at, one in enumerate(value)]
    if kind is tuple or kind is set:
        return {"$" + kind.__name__: encoded(list(value), path)}
    if kind in (bytes, bytearray):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if kind is dict and all(type(key) is str and not key.startswith("$") for key in value):
        return {key: encoded(one, "%s.%s" % (path, key)) for key, one in value.items()}
    if isinstance(value, dict):
        name = kind.__name__ if kind.__name__ in _MAPS else "dict"
        pairs = [[encoded(k, path), encoded(v, "%s.%s" % (path, k))] for k, v in value.items()]
        return {"$" + name: pairs}
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise LoopError(
        "`%s` is of type %s, which no save can hold" % (path, kind.__name__),
        hint="a `state_dict` may hold tensors, numbers, text, and lists and mappings of them",
    )


def decoded(value):
    """A value again, from `encoded`."""
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, held),) = value.items()
        if name == "$tuple":
            return tuple(decoded(held))
        if name == "$set":
            return set(decoded(held))
        if name == "$bytes":
            return base64.b64decode(held)
        if name[:1] == "$" and name[1:] in _MAPS:
            return _MAPS[name[1:]]({decoded(k): decoded(v) for k, v in held})
    return {key: decoded(one) for key, one in value.items()}


def sealed(body):
    """A mapping as one line of JSON with its own digest."""
    text = _canonical(body)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return '{"body":%s,"sha256":"%s"}\n' % (text, digest)


def unsealed(text):
    """The mapping of a line that `sealed` wrote; None where a byte of it has changed."""
    try:
        body = json.loads(text)["body"]
        return body if sealed(body) == text else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _canonical(body):
    return json.dumps(body, sort_keys=True, separators=(",", ":"))
