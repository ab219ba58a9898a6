"""``paceline predict … -- python train.py``: the script's own job in the place of a model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from paceline.app.progress import progress
from paceline.errors import InvalidInputError
from paceline.watch.captured import CapturedJob
from paceline.watch.capturing import capture


def arguments_of_script(own: Sequence[str], command: Sequence[str]) -> list[str]:
    """What is typed for a model that is read out of a script: its file, and how it runs.

    What was read and the command that asks the same again are said on stderr. Options that were
    typed go before what the script does.

    Raises:
        InvalidInputError: A model is named as well, or nothing can be read out of the script.
        WorkerError: The script failed.
    """
    verb, *options = own
    if "--help" in options or "-h" in options:
        return list(own)
    if options and not options[0].startswith("-"):
        raise InvalidInputError(
            f"`{options[0]}` and the script after `--` are two models",
            hint=f"write `paceline {verb} [options] -- python train.py`, or name the model alone",
        )
    with progress("running the script up to its first step"):
        found = capture(command)
    said = [one for one in _options_of(verb, found.job) if not _is_typed(one, options)]
    arguments = [verb, str(found.model), *(word for one in said for word in one), *options]
    read = " · ".join(f"{name} {value}".strip() for name, value in found.job.words.items())
    print(f"read from `{shlex.join(command)}`: {read}", file=sys.stderr)
    print(f"again: paceline {shlex.join(arguments)}", file=sys.stderr)
    return arguments


def _options_of(verb: str, job: CapturedJob) -> list[tuple[str, str]]:
    """How the script runs its model, as options of a verb."""
    if not job.precision:
        raise InvalidInputError(
            f"the script runs in a precision that cannot be predicted: {job.precision_note}",
            hint="say what is to be predicted instead: `--precision fp32`",
        )
    found = [("--precision", job.precision), ("--compiler", job.compiler)]
    if job.rewrite:
        found.append(("--rewrite", job.rewrite))
    if verb == "plan":
        items = job.batch * job.microbatches * job.world_size
        return [*found, ("--global-batch", str(items))]
    found.append(("--batch", str(job.batch)))
    if verb == "predict" and job.world_size > 1:
        found.append(("--devices", str(job.world_size)))
    return found


def _is_typed(option: tuple[str, str], typed: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == option[0] for word in typed)
