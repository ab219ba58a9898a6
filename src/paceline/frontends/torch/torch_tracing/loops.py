"""What code runs for each item of a batch alone, though a trace runs it once for all.

Standard library and torch only. Libraries of detectors go through the pictures of a batch one by
one where each has another number of boxes. A trace has fixed numbers, and its operators work on all
pictures together; recorded inside `each_item`, an operator says that it is launched once per item,
and so does what its backward pass launches.
"""

import contextlib

import torch

#: After the name and tag of an operator that is launched once per item.
PER_ITEM = "@each"

_open = [False]


#: Numbers that autograd gave to what ran inside, from and to, one after the other.
_NUMBERS = []


@contextlib.contextmanager
def each_item():
    """Inside, operators are launched once for each item of the batch."""
    before, _open[0] = _open[0], True
    start = torch._C._autograd._get_sequence_nr()
    try:
        yield
    finally:
        _open[0] = before
        _NUMBERS.append((start, torch._C._autograd._get_sequence_nr()))


def named(name, node=None):
    """The name under which an operator is recorded; ``node`` is what autograd runs it for."""
    return name + PER_ITEM if (_open[0] if node is None else _is_inside(node)) else name


def _is_inside(node):
    number = node._sequence_nr()
    return any(start <= number < end for start, end in _NUMBERS)
