"""What is found wrong with a machine."""

from __future__ import annotations

from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause that was found, with what proves it.

    Attributes:
        name: Key of the cause.
        cause: What is wrong, in one sentence.
        proof: The tool's own line, then what this machine says.
        remedy: One command.
    """

    name: str
    cause: str
    proof: tuple[str, ...]
    remedy: str
