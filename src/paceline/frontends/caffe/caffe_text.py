"""The text format of protocol buffers, as ``.prototxt`` files use it. Standard library only.

A message is a dictionary from a field's name to the list of its values: numbers, texts, words
(enumerations, ``true``) and messages.
"""

import re

from torch_entries.request_errors import RequestError

MOST_BYTES = 8_000_000
_MOST_DEEP = 50
_TOKEN = re.compile(
    r"""\s*(?:\#[^\n]*\n?\s*)*(?:(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<mark>[{}<>:;,\[\]])|(?P<word>[^\s{}<>:;,\[\]"'\#]+))"""
)


_WHOLE = re.compile(r"[-+]?\d{1,18}")
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d{1,3})?")


def bad(message):
    """A file that is not read, in one sentence."""
    return RequestError("bad-caffe", message)


def read_message(path):
    """The message of a file.

    Raises:
        RequestError: It cannot be read, is too large, or is no such text.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise bad("`%s` cannot be read: %s" % (path, error.strerror)) from None
    if len(content) > MOST_BYTES:
        raise bad("`%s` is larger than %d MB" % (path, MOST_BYTES // 10**6))
    return parsed(content.decode("utf-8", "replace"))


def parsed(text):
    """The message of a text.

    >>> parsed('name: "n" layer { top: "a" top: "b" }')
    {'name': ['n'], 'layer': [{'top': ['a', 'b']}]}
    """
    tokens = _tokens(text)
    message = _message(tokens, 0, None)
    return message


def _tokens(text):
    """(kind, token) from the last to the first, to be popped."""
    found, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            if not text[at:].lstrip().startswith("#"):
                raise bad("line %d of it is no text of Caffe's" % (text.count("\n", 0, at) + 1))
            break
        found.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found[::-1]


def _message(tokens, depth, end):
    if depth > _MOST_DEEP:
        raise bad("its messages are nested more than %d deep" % _MOST_DEEP)
    message = {}
    while tokens:
        kind, name = tokens.pop()
        if name == end and kind == "mark":
            return message
        if kind == "mark" and name in ";,":
            continue
        if kind != "word":
            raise bad("a field was looked for, where `%s` stands" % name)
        message.setdefault(name, []).extend(_values(tokens, depth, name))
    if end is not None:
        raise bad("it ends within a message")
    return message


def _values(tokens, depth, name):
    """What stands after a field's name."""
    kind, token = tokens.pop() if tokens else ("", "")
    if token == ":" and kind == "mark":
        kind, token = tokens.pop() if tokens else ("", "")
    if kind == "mark" and token in "{<":
        return [_message(tokens, depth + 1, "}" if token == "{" else ">")]
    if kind == "mark" and token == "[":
        return _listed(tokens, depth, name)
    if kind not in ("text", "word"):
        raise bad("field `%s` has no value" % name)
    return [_value(kind, token)]


def _listed(tokens, depth, name):
    found = []
    while tokens:
        kind, token = tokens.pop()
        if kind == "mark" and token == "]":
            return found
        if kind == "mark" and token == "{":
            found.append(_message(tokens, depth + 1, "}"))
        elif kind != "mark":
            found.append(_value(kind, token))
        elif token != ",":
            break
    raise bad("the list of field `%s` does not end" % name)


def _value(kind, token):
    if kind == "text":
        return token[1:-1]
    if _NUMBER.fullmatch(token):
        return float(token)
    if _WHOLE.fullmatch(token):
        return int(token)
    return {"true": True, "false": False}.get(token, token)
