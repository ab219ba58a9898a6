"""What code runs for each item of a batch alone, though a trace runs it once for all.

Standard library only. Libraries of detectors go through the pictures of a batch one by one where
each has another number of boxes. A trace has fixed numbers, and its operators work on all pictures
together; recorded inside `each_item`, an operator says that it is launched once per item.
"""

import contextlib

#: After the name and tag of an operator that is launched once per item.
PER_ITEM = "@each"

_open = [False]


@contextlib.contextmanager
def each_item():
    """Inside, operators are launched once for each item of the batch."""
    before, _open[0] = _open[0], True
    try:
        yield
    finally:
        _open[0] = before


def named(name):
    """The name under which an operator is recorded."""
    return name + PER_ITEM if _open[0] else name
