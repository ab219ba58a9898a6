"""Jobs of Kubernetes and SkyPilot: their documents, and a run by programs that imitate both."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.errors import InvalidInputError, MissingFactError, PacelineError
from paceline.shipped import shipped_toml
from paceline.watch.elsewhere.documents import Asked, Document, task_of
from paceline.watch.elsewhere.engines import find_engine

FACTS = {"kubernetes": {"image": "registry/x:1"}, "skypilot": {}}
NASTY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def asked(command: tuple[str, ...] = ("python", "train.py"), **more: object) -> Asked:
    given: dict[str, object] = {
        "name": "paceline-10fc", "folder": "/runs/10fc", "there": "/paceline/run",
        "command": command, "launch": (), "facts": {"image": "registry/x:1"},
    }  # fmt: skip
    return Asked(**{**given, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("on", FACTS)
def test_a_job_is_submitted_followed_and_fetched(on: str, cluster: Path, tmp_path: Path) -> None:
    said: list[str] = []
    words = ["sh", "-c", "echo 'it'\"'\"'s $(no) use'; exit 7"]
    summary = paceline.run(
        words, on=on, settings=FACTS[on], runs=tmp_path / "runs", on_notice=said.append
    )
    assert summary.status == 7
    assert "  it's $(no) use" in said
    assert paceline.runs_list(runs=tmp_path / "runs")[0].state == "failed"


@pytest.mark.parametrize("on", FACTS)
def test_a_job_is_stopped_by_another_than_submitted_it(
    on: str, cluster: Path, tmp_path: Path
) -> None:
    runs, up = tmp_path / "runs", tmp_path / "up"
    script = f"trap 'exit 5' TERM; touch {up}; while :; do sleep 0.05; done"
    paceline.run(["sh", "-c", script], on=on, settings=FACTS[on], runs=runs, detach=True)
    while not up.exists():
        paceline.runs_show(runs=runs)
    assert paceline.runs_stop(runs=runs).state == "failed"


def test_a_pod_that_waits_is_no_mistake(cluster: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    paceline.run(["true"], on="kubernetes", settings=FACTS["kubernetes"], runs=runs, detach=True)
    kept = (cluster / "pid").read_text()
    (cluster / "pid").write_text("")
    assert paceline.runs_show(runs=runs).state == "running"
    (cluster / "pid").write_text(kept)
    *_, last = paceline.runs_follow(runs=runs)
    assert last.state == "done"


def launch_files(target: str, **more: str) -> tuple[Document, ...]:
    import yaml

    plan = paceline.plan("mnist-cnn", device="a100", max_devices=1, as_of="2026-11-20")
    made = paceline.deploy(plan, target, command="python train.py --name 'a $(b)'", **more)
    return tuple(yaml.safe_load_all(made.files[0].text))


def test_a_plan_keeps_its_devices_and_its_launcher() -> None:
    job = task_of("kubernetes", asked(launch=launch_files("kubernetes", image="registry/x:1")))
    container = job.document["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["command"][:2] == ["sh", "-c"]
    assert "train.py --name 'a $(b)'" in " ".join(job.command)
    launch = launch_files("skypilot", data="s3://d", checkpoints="s3://c")
    task = task_of("skypilot", asked(there=".paceline/runs/10fc", launch=launch))
    assert task.document["resources"]["accelerators"] == launch[0]["resources"]["accelerators"]
    assert task.document["file_mounts"]["~/.paceline/runs/10fc"] == "/runs/10fc"
    assert "train.py --name 'a $(b)'" in task.command[-1]


def test_what_cannot_be_run_so_is_refused() -> None:
    job = launch_files("kubernetes", image="registry/x:1")
    job[-1]["spec"]["completions"] = 2
    with pytest.raises(InvalidInputError, match="several pods"):
        task_of("kubernetes", asked(launch=job))
    with pytest.raises(MissingFactError, match="CHECKPOINT_BUCKET"):
        task_of("skypilot", asked(launch=launch_files("skypilot")))


@pytest.mark.parametrize(
    ("on", "settings", "says"),
    [("kubernetes", {}, "image"), ("kubernetes", {"image": "x", "partition": "y"}, "partition"),
     ("skypilot", {"image": "x"}, "image"), ("slurm", {"image": "x"}, "without a plan")],
)  # fmt: skip
def test_facts_are_asked_for_by_name(
    on: str, settings: dict[str, str], says: str, cluster: Path, tmp_path: Path
) -> None:
    (cluster.parent / "bin" / "sbatch").write_text("#!/bin/sh\n")
    (cluster.parent / "bin" / "sbatch").chmod(0o755)
    with pytest.raises(PacelineError, match=says):
        paceline.run(["true"], on=on, settings=settings, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@given(words=st.lists(NASTY, min_size=1, max_size=3), image=NASTY)
def test_whatever_is_typed_stays_a_value_of_the_document(words: list[str], image: str) -> None:
    for engine, facts in (("kubernetes", {"image": image}), ("skypilot", {"infra": image})):
        task = task_of(engine, asked(tuple(words), facts=facts))
        plain = task_of(engine, asked(("x",), facts=dict.fromkeys(facts, "y")))
        assert task.command == tuple(words)
        assert shape(json.loads(json.dumps(task.document))) == shape(plain.document)


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else type(value)


@given(value=NASTY)
def test_values_are_single_words_of_every_engine_and_of_a_shell_behind_it(value: str) -> None:
    filled = dict.fromkeys(("folder", "script", "name", "job", "document"), value)
    for name in shipped_toml("watch", "engines.toml"):
        engine = find_engine(f"{name}:far" if name == "ssh" else name)
        asks = [question.ask for question in engine.states]
        for template in (engine.submit, engine.send, engine.fetch, engine.release,
                         *engine.cancel, *asks):  # fmt: skip
            words = engine.words(template, **filled)
            if "|" not in template:
                assert len(words) == len(template)
                continue
            behind = list(template)[list(template).index("|") + 1 :]
            read = shlex.split(words[-1])
            assert len(read) == len(behind)
            assert [word for word, t in zip(read, behind, strict=True) if "{" in t and value not in
                    word] == []  # fmt: skip


def test_a_shell_reads_no_value_as_code(tmp_path: Path) -> None:
    value = f"a'b\"c $(touch {tmp_path}/pwned) `touch {tmp_path}/pwned`\n; touch {tmp_path}/pwned"
    for name in ("ssh:far", "skypilot"):
        engine = find_engine(name)
        for template in (engine.fetch, engine.send):
            if not template:
                continue
            words = engine.words(template, folder=value, name="n", job="1")
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run(["sh", "-c", words[-1]], cwd=folder, capture_output=True, input=b"")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.validators
@pytest.mark.parametrize("engine", FACTS)
def test_documents_keep_the_strict_schemas_of_their_engines(engine: str, tmp_path: Path) -> None:
    from validators import harness

    if harness.python_of(engine) is None:
        pytest.skip("make the environments with `PYTHONPATH=tools python -m validators`")
    facts = {"kubernetes": {"image": "x:1", "gpus": "2"}, "skypilot": {"accelerators": "A100:2"}}
    given = {
        "kubernetes": {"image": "x:1"},
        "skypilot": {"data": "s3://d", "checkpoints": "s3://c"},
    }
    there = find_engine(engine).home.replace("{run}", "10fc")
    launch = launch_files(engine, **given[engine])
    folder = str(tmp_path)
    made = [
        task_of(engine, asked(there=there, folder=folder, **more)).document
        for more in ({"facts": facts[engine]}, {"launch": launch})
    ]
    broken = [{**one, "spec" if engine == "kubernetes" else "resources": "x"} for one in made]
    *whole, first, second = harness.complaints(engine, [[one] for one in (*made, *broken)])
    assert whole == [[], []]
    assert first
    assert second
