"""Regular expressions that are compiled when they are first used.

A module that holds a dozen of them takes longer to compile these than to import all else, and a
command uses a few.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pattern = re.compile
else:

    class pattern:  # noqa: N801 - is called as `re.compile` is
        """As ``re.compile`` gives it.

        >>> pattern(r"a+", re.IGNORECASE).findall("xAax")
        ['Aa']
        """

        def __init__(self, text: str, flags: int = 0) -> None:
            """Keep what is asked; a text that is no expression is refused at its first use."""
            self._asked = (text, flags)

        def __getattr__(self, name: str) -> Any:
            """A method of the compiled expression, which later calls find without this one."""
            value = getattr(re.compile(*self._asked), name)
            setattr(self, name, value)
            return value


def opening(text: str) -> str:
    """The plain characters with which all that an expression matches begins.

    A table of expressions is looked through faster where those that begin otherwise stay text.

    >>> opening("sd35?_.*"), opening("hf:(nllb|m2m100).*"), opening("tpu-v5|v5"), opening("(?!a).+")
    ('sd3', 'hf:', '', '')
    """
    depths = accumulate((one == "(") - (one == ")") for one in text)
    if "\\" in text or ("|", 0) in zip(text, depths, strict=True):
        return ""
    end = next(
        (at for at, one in enumerate(text) if not (one.isalnum() or one in "_:-")), len(text)
    )
    return text[: end - (text[end : end + 1] in ("?", "*", "{"))]
