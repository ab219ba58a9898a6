"""Images, by Docker, Apptainer and what runs in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import paceline
from paceline.deployment.deploying import deploy
from paceline.deployment.settings import DeploySettings
from paceline.errors import MissingFactError, StackConflictError

from . import plans
from .settings_of_targets import settings_for


def test_a_platform_without_an_image_still_gets_a_script() -> None:
    gaudi = plans.stack(platform="gaudi", platform_version="1.18.0", min_driver=None)
    plan = plans.plan(plans.choice(stack=gaudi))
    assert deploy(plan, "torchrun", plans.training(image=None)).files
    with pytest.raises(MissingFactError, match="no image of torch for gaudi") as caught:
        deploy(plan, "docker", plans.training(image=None))
    assert "--image" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "image", "package"),
    [
        ({}, "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime", None),
        ({"platform": "rocm", "platform_version": "7.2", "min_driver": None},
         "rocm/pytorch:rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.13.0", None),
        ({"framework": "tensorflow", "framework_version": "2.20.0", "platform_version": "12.5"},
         "tensorflow/tensorflow:2.20.0-gpu", None),
        ({"framework": "jax", "framework_version": "0.11.0"}, "nvidia/cuda:13.0",
         "jax[cuda13]==0.11.0"),
        ({"platform": "cpu", "platform_version": None, "min_driver": None}, "python:3.12-slim",
         "torch==2.13.0"),
        ({"platform": "tpu", "platform_version": None, "framework_version": "2.9.0"},
         "python:3.12-slim", "torch_xla[tpu]==2.9.0"),
    ],
)  # fmt: skip
def test_the_image_holds_the_resolved_stack(changes, image: str, package: str | None) -> None:
    plan = plans.plan(plans.choice(stack=plans.stack(**changes)))
    text = deploy(plan, "docker", plans.training(image=None)).files[0].text
    assert f"ARG BASE_IMAGE={image}" in text
    installs = "RUN pip install" in text
    assert "apt-get install -y --no-install-recommends gcc" in text
    assert installs == (package is not None)
    assert package is None or package in text


def test_a_container_is_no_root_and_layers_change_from_slow_to_fast() -> None:
    text = deploy(plans.plan(), "docker", plans.training(image=None)).files[0].text
    steps = [text.index(word) for word in ("FROM ", "requirements*.txt", "useradd", "COPY --chown",
                                           "USER 10001:10001", "ENTRYPOINT", "CMD ")]  # fmt: skip
    assert steps == sorted(steps)


def test_the_device_check_becomes_the_command_where_there_is_nothing_to_complain_of(
    tmp_path: Path,
) -> None:
    files = {f.path: f.text for f in deploy(plans.plan(), "docker", plans.training()).files}
    (tmp_path / "check_device.py").write_text(files["check_device.py"])
    words = [sys.executable, str(tmp_path / "check_device.py"), "echo", "two words"]
    environment = os.environ | {"PACELINE_SKIP_DEVICE_CHECK": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "two words\n"


@pytest.mark.parametrize("target", ["docker", "apptainer", "skypilot", "kubernetes"])
def test_what_measures_is_the_release_that_wrote_the_files(target: str) -> None:
    made = deploy(plans.plan(), target, DeploySettings(purpose="measure"))
    whole = "".join(file.text for file in made.files)
    assert f"paceline=={paceline.__version__}" in whole
    assert not re.search(r"pip install (--no-cache-dir )?paceline\b(?!==)", whole)


def test_where_the_plan_compiles_there_is_a_compiler() -> None:
    eager = plans.plan(plans.choice(compiler="eager"))
    settings = settings_for("azureml", image=None)
    texts = [deploy(plan, "azureml", settings).files[0].text for plan in (plans.plan(), eager)]
    assert ["devel" in text for text in texts] == [True, False]
    tasks = [deploy(plan, "skypilot", plans.training(image=None)).files[0].text
             for plan in (plans.plan(), eager)]  # fmt: skip
    assert ["gcc" in task for task in tasks] == [True, False]


def test_one_host_runs_several_cuda_versions_side_by_side() -> None:
    settings = plans.training(image=None, options={"cuda": "11.8,12.6,13", "driver": "580"})
    made = deploy(plans.plan(), "docker", settings)
    bases = [re.search(r"ARG BASE_IMAGE=(\S+)", file.text) for file in made.files]
    cudas = [re.search(r"cuda([\d.]+)-", base.group(1)).group(1) for base in bases if base]
    assert [cuda.split(".")[0] for cuda in cudas] == ["11", "12", "13"]
    services = yaml.safe_load(made.files[0].text)["services"]
    assert list(services) == ["cuda-11-8", "cuda-12-6", "cuda-13"]
    assert made.command.count("docker compose run") == 3


def test_a_k80_is_told_why_it_can_have_none_of_the_newer() -> None:
    k80 = plans.plan(plans.choice(place=plans.place(device="Tesla K80 (one of two GPUs)")))
    settings = plans.training(image=None, options={"cuda": "12.6", "driver": "580"})
    with pytest.raises(StackConflictError, match="470 is the last that drives Kepler"):
        deploy(k80, "docker", settings)
    with pytest.raises(StackConflictError, match="CUDA 12 dropped Kepler"):
        deploy(k80, "docker", plans.training(image=None, options={"cuda": "12.6"}))


INSTRUCTIONS = {"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "STOPSIGNAL",
                "CMD"}  # fmt: skip


@pytest.mark.parametrize("platform", ["cuda", "rocm", "cpu", "tpu"])
def test_a_dockerfile_holds_known_instructions_in_exec_form(platform: str) -> None:
    toolkit = {"cuda": "13.0", "rocm": "7.2"}.get(platform)
    release = "2.9.0" if platform == "tpu" else "2.13.0"
    stack = plans.stack(platform=platform, platform_version=toolkit, framework_version=release)
    made = deploy(plans.plan(plans.choice(stack=stack)), "docker", plans.training(image=None))
    text = re.sub(r"\\\n", " ", made.files[0].text)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert {line.split()[0] for line in lines} <= INSTRUCTIONS
    assert [line.split()[0] for line in lines].count("FROM") == 1
    for line in lines:
        if line.startswith(("CMD ", "ENTRYPOINT ")):
            assert all(isinstance(word, str) for word in json.loads(line.split(" ", 1)[1]))
