"""Runs on other machines: words, states and folders, with recorded answers of the programs."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.errors import InvalidInputError, PacelineError
from paceline.shipped import shipped_toml
from paceline.watch.capturing import WORKERS_VARIABLE
from paceline.watch.elsewhere.engines import find_engine
from paceline.watch.elsewhere.start_script import write_start
from paceline.watch.elsewhere.submit import last_lines, look_at, stop, submit
from paceline.watch.folder import Run, find_run, new_run, read_run_file

#: What the programs print: recorded from Slurm 22.05, OpenSSH 9.2 and Ray 2.60.
SLURM_JOB = (
    "JobId=7 JobName=paceline-10fc UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 "
    "JobState={} Reason=None Dependency=(null) Requeue=1 Restarts=0 ExitCode=0:0"
)


class Recorded:
    """Answers by the program's word, and what was asked."""

    def __init__(self, **answers: bytes | None) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def __call__(self, words: Sequence[str], _given: bytes, _timeout_s: float) -> bytes:
        self.asked.append(list(words))
        answer = self.answers.get(words[0])
        if answer is None:
            raise InvalidInputError(f"`{words[0]}` says no", hint="-")
        return answer


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return new_run(("python", "train.py"), folder=tmp_path / "runs")


def on(run: Run, place: str) -> Run:
    from dataclasses import replace

    return replace(run, on=place)


def test_a_number_is_read_and_kept(run: Run) -> None:
    submitted = submit(on(run, "slurm"), program=Recorded(sbatch=b"42;cluster\n"))
    assert submitted.job == "42"
    assert read_run_file(run.folder) == submitted


@pytest.mark.parametrize(
    ("word", "state"),
    [("PENDING", "running"), ("RUNNING", "running"), ("COMPLETING", "running"),
     ("COMPLETED", "done"), ("FAILED", "failed"), ("CANCELLED", "failed"), ("TIMEOUT", "failed")],
)  # fmt: skip
def test_a_job_that_left_no_word_is_judged_by_its_scheduler(
    run: Run, word: str, state: str
) -> None:
    submitted = submit(on(run, "slurm"), program=Recorded(sbatch=b"7\n"))
    found = look_at(submitted, program=Recorded(scontrol=SLURM_JOB.format(word).encode()))
    assert found.state == state
    assert find_run(run.id, run.folder.parent).state == state


def test_accounting_is_asked_once_the_controller_forgot(run: Run) -> None:
    submitted = submit(on(run, "slurm"), program=Recorded(sbatch=b"7\n"))
    program = Recorded(sacct=b"CANCELLED by 0\n")
    assert look_at(submitted, program=program).state == "failed"
    assert [words[0] for words in program.asked] == ["scontrol", "sacct"]


def test_what_the_job_itself_wrote_goes_before_what_its_scheduler_says(run: Run) -> None:
    submitted = submit(on(run, "slurm"), program=Recorded(sbatch=b"7\n"))
    (run.folder / "end.json").write_text('{"status": 3, "ended_at": "2026-11-23T17:00:00.000"}')
    assert look_at(submitted, program=Recorded()).status == 3


def test_who_died_between_submitting_and_writing_finds_the_number(run: Run) -> None:
    from paceline.watch.folder import write_run

    write_run(on(run, "slurm"))
    (run.folder / "job.txt").write_text("99\n")
    program = Recorded(scontrol=SLURM_JOB.format("RUNNING").encode())
    assert look_at(find_run(run.id, run.folder.parent), program=program).job == "99"


def test_a_refused_job_runs_no_more(run: Run) -> None:
    with pytest.raises(InvalidInputError):
        submit(on(run, "slurm"), program=Recorded())
    assert find_run(run.id, run.folder.parent).state == "failed"


def test_stopping_goes_on_where_one_of_its_words_is_refused(run: Run) -> None:
    submitted = submit(on(run, "slurm"), program=Recorded(sbatch=b"7\n"))
    program = Recorded(scancel=b"")
    stop(submitted, program=program)
    assert program.asked[-1] == ["scancel", "7"]


def archive(**files: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as one:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            one.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def test_an_archive_from_afar_writes_nothing_outside_the_run(run: Run) -> None:
    submitted = submit(on(run, "ssh:far"), program=Recorded(ssh=b"5\n"))
    raw = archive(**{"..__..__evil": "x", "__tmp__evil": "x", "rank-0-1.jsonl": "{}\n"})
    with pytest.raises(InvalidInputError, match="outside its folder"):
        look_at(submitted, program=Recorded(ssh=raw))
    assert not (run.folder.parent.parent / "evil").exists()


def test_what_only_this_side_knows_is_not_fetched_over(run: Run) -> None:
    submitted = submit(on(run, "ssh:far"), program=Recorded(ssh=b"5\n"))
    kept = (run.folder / "run.json").read_bytes()
    raw = archive(**{"run.json": "{}", "end.json": '{"status": 0, "ended_at": "x"}'})
    assert look_at(submitted, program=Recorded(ssh=raw)).status == 0
    assert (run.folder / "run.json").read_bytes() == kept


@pytest.mark.parametrize("raw", [b"", b"not an archive", b"\0" * 1024 + b"x"])
def test_no_archive_is_one_message(run: Run, raw: bytes) -> None:
    submitted = submit(on(run, "ssh:far"), program=Recorded(ssh=b"5\n"))
    with pytest.raises(InvalidInputError):
        look_at(submitted, program=Recorded(ssh=raw + b"x"))


NASTY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(words=st.lists(NASTY, min_size=1, max_size=4))
def test_words_reach_the_command_as_they_were_typed(words: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "a 'run' $(x)"
        folder.mkdir()
        (folder / "worker").mkdir()
        code = "import sys, json; json.dump(sys.argv[1:], open('said.json', 'w'))"
        write_start(
            folder, ["python3", "-S", "-c", code, *words], directory=str(folder),
            shares_folder=True, workers=folder / "worker", paths={WORKERS_VARIABLE: "workers"},
        )  # fmt: skip
        text = (folder / "start.sh").read_bytes().decode()
        line = next(part for part in text.split("\nchild=")[0].split("exit 1\n")[1:])
        assert shlex.split(line.removesuffix(" &"))[4:] == words


def test_a_script_keeps_how_the_command_ended_and_passes_signals_on(tmp_path: Path) -> None:
    (tmp_path / "worker").mkdir()
    for status in (0, 7):
        path = write_start(
            tmp_path, ["sh", "-c", f"exit {status}"], directory="", shares_folder=False,
            workers=tmp_path / "worker", paths={},
        )  # fmt: skip
        assert subprocess.run(["sh", str(path)], check=False).returncode == status
        (tmp_path / "run.json").write_text('{"command": ["x"]}')
        found = read_run_file(tmp_path)
        assert found is not None
        assert found.status == status
    path = write_start(
        tmp_path, ["sh", "-c", "trap 'exit 5' TERM; touch up; while :; do sleep 0.05; done"],
        directory=str(tmp_path), shares_folder=True, workers=tmp_path / "worker", paths={},
    )  # fmt: skip
    process = subprocess.Popen(["sh", str(path)])
    while not (tmp_path / "up").exists():
        assert process.poll() is None
    process.terminate()
    assert process.wait(30) == 5


def test_last_lines_are_printable(run: Run) -> None:
    from dataclasses import replace

    (run.folder / "output.txt").write_bytes(b"one\n\x1b[31mtwo\xff\n" + b"x" * 1000 + b"\n")
    lines = last_lines(replace(run, status=1))
    assert all(line.isprintable() and len(line) <= 200 for line in lines)
    assert last_lines(replace(run, status=0)) == ()


@pytest.mark.parametrize(
    "place", ["slrm", "slurm:x", "ssh", "ssh:", "ssh:-oProxyCommand=x", "ssh:a b", "ssh:$(x)", ""]
)
def test_no_place_is_one_message(place: str) -> None:
    with pytest.raises(PacelineError):
        find_engine(place)


def test_every_engine_says_all_that_is_asked_of_it() -> None:
    for name in shipped_toml("watch", "engines.toml"):
        engine = find_engine(f"{name}:far" if name == "ssh" else name)
        words = engine.words(engine.submit, folder="/f", script="/f/start.sh", name="n")
        assert not [word for word in words if "{folder}" in word or "{script}" in word]
        assert engine.cancel
        assert engine.states


def test_options_of_elsewhere_say_nothing_here() -> None:
    for option in ({"detach": True}, {"settings": {"partition": "x"}}, {"directory": "/x"}):
        with pytest.raises(InvalidInputError, match="on this machine"):
            paceline.run(["true"], **option)  # type: ignore[arg-type]


def test_a_program_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInputError, match="`sbatch` is not installed"):
        paceline.run(["true"], on="slurm", runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    assert os.environ["PATH"] == str(tmp_path)


def test_a_run_is_followed_past_looks_that_fail(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.app.api import running

    monkeypatch.setattr(running, "_LOOK_S", 0.0)
    submitted = submit(on(run, "slurm"), program=Recorded(sbatch=b"7\n"))
    running_there = Recorded(scontrol=SLURM_JOB.format("RUNNING").encode())
    answers = [running_there, *[Recorded()] * 9, running_there, *[Recorded()] * 3]

    def look(found: Run) -> Run:
        if not answers:
            return look_at(found, program=Recorded(scontrol=SLURM_JOB.format("COMPLETED").encode()))
        return look_at(found, program=answers.pop(0))

    monkeypatch.setattr(running, "look_at", look)
    *_, last = paceline.runs_follow(runs=submitted.folder.parent)
    assert last.state == "done"


def test_who_cannot_be_asked_for_long_is_told_with_the_reason(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline.app.api import running

    monkeypatch.setattr(running, "_LOOK_S", 0.0)
    submitted = submit(on(run, "slurm"), program=Recorded(sbatch=b"7\n"))
    answers = [Recorded(scontrol=SLURM_JOB.format("RUNNING").encode()), *[Recorded()] * 10]
    monkeypatch.setattr(running, "look_at", lambda found: look_at(found, program=answers.pop(0)))
    with pytest.raises(InvalidInputError, match=r"knows nothing of job 7: .*says no"):
        list(paceline.runs_follow(runs=submitted.folder.parent))


def test_a_run_nobody_handed_over_is_unknown_once_its_submitter_is_dead(run: Run) -> None:
    from dataclasses import replace

    from paceline.watch.folder import process_started, write_run

    here = replace(on(run, "ray"), pid=os.getpid(), process_started=process_started(os.getpid()))
    write_run(here)
    assert find_run(run.id, run.folder.parent).state == "running"
    write_run(replace(here, process_started=1))
    assert find_run(run.id, run.folder.parent).state == "unknown"
    (run.folder / "job.txt").write_text("4711\n")
    asked = Recorded(ray=b"RUNNING")
    found = look_at(find_run(run.id, run.folder.parent), program=asked)
    assert (found.job, found.state) == (f"paceline-{run.id}", "running")
    assert asked.asked[-1][-1] == f"paceline-{run.id}"
