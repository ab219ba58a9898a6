"""Files with planted damage, and what every reader must answer: one message, or a model."""

from __future__ import annotations

import copy
import random
import resource

from keras_here import module

#: What stands in the place of a setting.
VALUES = (
    None, -1, 0, 1, 2**31, 2**63, 10**30, 1.5, "", "x", True, [], [[]], {}, [0], [-1, 3], "same",
    {"class_name": "Lambda", "config": {}}, {"class_name": "__keras_tensor__", "config": {}},
)  # fmt: skip


def places(value, found=None, path=()):
    """Every place of nested settings."""
    found = [] if found is None else found
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in items:
        found.append((*path, key))
        if isinstance(one, (dict, list)):
            places(one, found, (*path, key))
    return found


def damaged(settings, chance: random.Random):
    """A copy with one to three settings changed, dropped, doubled or swapped for another's."""
    made = copy.deepcopy(settings)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(places(made))
        holder = made
        for key in path[:-1]:
            holder = holder[key]
        act = chance.randrange(4)
        if act == 0 and isinstance(holder, dict):
            del holder[path[-1]]
        elif act == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[path[-1]]))
        elif act == 2:
            other = chance.choice(places(made))
            value = made
            for key in other:
                value = value[key]
            holder[path[-1]] = copy.deepcopy(value)
        else:
            holder[path[-1]] = copy.deepcopy(chance.choice(VALUES))
    return made


def damaged_bytes(text: bytes, chance: random.Random) -> bytes:
    """Bytes with some flipped, cut or doubled."""
    made = bytearray(text)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(made))
        act = chance.randrange(4)
        if act == 0:
            made[at] = chance.randrange(256)
        elif act == 1:
            del made[at : at + chance.randint(1, 40)]
        elif act == 2:
            made[at:at] = made[at : at + chance.randint(1, 40)]
        else:
            made[at] ^= 1 << chance.randrange(8)
        made = made or bytearray(b"x")
    return bytes(made)


def answers(read) -> bool:
    """Whether a reader gives a model; False where it refuses in words, all else is raised."""
    said = None
    try:
        read()
    except module("torch_entries.request_errors").RequestError as error:
        said = str(error).strip()
    assert said is None or 0 < len(said) < 2000
    return said is None


def peak_bytes() -> int:
    """Most memory of this process so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
