"""``start.sh``: what another machine runs, with all that it needs beside it in the run folder."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from paceline.watch.command import FOLDER_VARIABLE, HOOK
from paceline.watch.folder import END_FILE
from paceline.writing import write_whole

START = "start.sh"
#: What the command prints there.
OUTPUT_FILE = "output.txt"
#: In which the job says its own number, should the one who submitted it have died.
JOB_FILE = "job.txt"
_OBSERVER, _WORKERS = "observer", "workers"
_TEMPLATE = """\
#!/bin/sh
@DIRECTIVES@# Runs the command, and keeps how it ended.
here=@HERE@
exec >>"$here/@OUTPUT@" 2>&1 </dev/null
rm -f "$here/@END@"
echo "${SLURM_JOB_ID:-$$}" > "$here/@JOB@"
# A signal may come before the number of the command is known: it is passed on then.
stopped= child=
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT HUP
@OBSERVED@@SETTINGS@cd @DIRECTORY@ || exit 1
@COMMAND@ &
child=$!
[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null
status=0
wait "$child" || status=$?
while kill -0 "$child" 2>/dev/null; do
  status=0
  wait "$child" || status=$?
done
# A signal ends the waiting, maybe when the command has just ended: its own status is asked for.
if [ -n "$stopped" ]; then
  last=0
  wait "$child" 2>/dev/null || last=$?
  [ "$last" = 127 ] || status=$last
fi
printf '{"status": %d, "ended_at": "%s"}\\n' "$status" "$(date -u +%Y-%m-%dT%H:%M:%S.000+00:00)" \\
  > "$here/.@END@"
mv "$here/.@END@" "$here/@END@"
exit "$status"
"""
#: Puts the observer on the path of all that the command starts.
_OBSERVED = """\
export @FOLDER@="$here"
export PYTHONPATH="$here/observer/hook${PYTHONPATH:+:$PYTHONPATH}"
""".replace("@FOLDER@", FOLDER_VARIABLE)


def write_start(
    folder: Path,
    command: Sequence[str],
    *,
    directory: str,
    shares_folder: bool,
    workers: Path | None,
    paths: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    launcher: str | None = None,
    directives: Sequence[str] = (),
) -> Path:
    """Write ``start.sh``, with the observer and the code that traces beside it; return its path.

    Args:
        folder: Of the run.
        command: Words to run.
        directory: Where, on the other side; empty for the home folder there.
        shares_folder: Whether ``folder`` is seen there under this path.
        workers: Folder of the code that traces; None leaves the command unobserved.
        paths: Variables for the command whose values are paths inside ``folder``.
        variables: Other variables for the command.
        launcher: Launch file, in the folder of the run, that is run in the place of the command.
        directives: First lines, for a scheduler that reads them.
    """
    if workers is not None:
        _copy(HOOK.parent, folder / _OBSERVER)
        _copy(workers, folder / _WORKERS)
    here = shlex.quote(str(folder)) if shares_folder else '$(cd "$(dirname "$0")" && pwd)'
    parts = {
        "DIRECTIVES": "".join(f"{line}\n" for line in directives),
        "HERE": here,
        "END": END_FILE,
        "JOB": JOB_FILE,
        "OUTPUT": OUTPUT_FILE,
        "OBSERVED": _OBSERVED if workers is not None else "",
        "SETTINGS": "".join(_exports(paths, variables or {})),
        "DIRECTORY": shlex.quote(directory) if directory else '"$HOME"',
        "COMMAND": shlex.join(command) if launcher is None else _launched(launcher),
    }
    write_whole(folder / START, re.sub(r"@([A-Z]+)@", lambda found: parts[found[1]], _TEMPLATE))
    return folder / START


def _exports(paths: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[str]:
    for name, path in paths.items():
        yield f'export {name}="$here"/{shlex.quote(path)}\n'
    for name, value in variables.items():
        yield f"export {name}={shlex.quote(value)}\n"


def _launched(launcher: str) -> str:
    return f'bash "$here"/{shlex.quote(launcher)}'


def _copy(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
