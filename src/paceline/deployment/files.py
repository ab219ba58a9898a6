"""What deploying returns: texts with their paths, and the one command that uses them."""

from __future__ import annotations

from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployFile:
    """A file to write.

    Attributes:
        path: Relative to the folder that the user chose.
        text: Its whole content.
    """

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Files for one target.

    Attributes:
        target: Name of the target.
        files: What to write, the one to read first in front.
        command: The one command that starts the job, run in the folder of the files.
        runs_beside_code: Whether it is rather run where the code is, with its last word looked for
            in the folder of the files.
        needs: What the user must have put in place: credentials, data, storage. Also written at
            the top of the first file.
        assumptions: What was assumed about checkpoints, memory and time, one sentence each.
    """

    target: str
    files: tuple[DeployFile, ...]
    command: str
    needs: tuple[str, ...]
    assumptions: tuple[str, ...]
    runs_beside_code: bool = False
