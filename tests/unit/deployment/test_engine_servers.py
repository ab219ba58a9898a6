"""Servers of engines: every option is the engine's own, and carries what the plan says.

`engine_options.csv` lists the options that vllm 0.33.0 and sglang 0.5.23 (PyPI, read 2026-11-23)
define in their argument parsers, and some of those that llama.cpp's README lists (2026-11-27).
"""

from __future__ import annotations

import csv
import json
import math
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from paceline.deployment.deploying import deploy
from paceline.deployment.facts import engine_servers
from paceline.deployment.files import Deployment
from paceline.deployment.settings import DeploySettings
from paceline.errors import InvalidInputError, MissingFactError
from paceline.planfile import PlanFile

from . import plans

TARGETS = ("docker", "kubernetes", "kserve", "skypilot")
PROGRAMS = {"vllm": "vllm serve", "sglang": "sglang.launch_server"}
WEIGHTS = {"weights": "org/model"}


def known(program: str) -> set[str]:
    with Path(__file__).with_name("engine_options.csv").open(encoding="utf-8") as lines:
        return {row["option"] for row in csv.DictReader(lines) if row["program"] == program}


def deployed(target: str, engine: str = "vllm", **options: str) -> Deployment:
    settings = DeploySettings(purpose="serve", options={**WEIGHTS, **options})
    return deploy(plans.service(engine=engine), target, settings)


def command(target: str, made: Deployment) -> list[str]:
    """The words that start a replica."""
    first = yaml.safe_load(made.files[0].text.split("\n---\n")[0])
    if target == "docker":
        return list(first["services"]["engine-0"]["entrypoint"])
    if target == "skypilot":
        return shlex.split(first["run"])
    pod = (
        first["spec"]["template"]["spec"] if target == "kubernetes" else first["spec"]["predictor"]
    )
    return list(pod["containers"][0]["command"])


def options_of(words: list[str]) -> dict[str, str]:
    return {
        word: words[i + 1] if i + 1 < len(words) else ""
        for i, word in enumerate(words)
        if word.startswith("--")
    }


@pytest.mark.parametrize("engine", PROGRAMS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_option_is_the_engine_s_own(target: str, engine: str) -> None:
    given = options_of(command(target, deployed(target, engine)))
    assert not set(given) - known(PROGRAMS[engine])
    told = engine_servers()[engine]["options"]
    assert given[told["ranks"]] == "4"
    assert given[told["max_requests"]] == "512"
    assert given[told["chunk_tokens"]] == "4096"
    assert float(given[told["memory_frac"]]) == 0.9
    assert int(given[told["length"]]) >= 512 + 128


@pytest.mark.parametrize("target", TARGETS)
def test_a_server_whose_requests_share_a_context_gets_one_for_all(target: str) -> None:
    made = deployed(target, "llamacpp")
    given = options_of(command(target, made))
    assert not set(given) - known("llama-server")
    assert given["--parallel"] == "512"
    assert int(given["--ctx-size"]) >= 512 * (512 + 128)
    assert given["--hf-repo"] == WEIGHTS["weights"]


def test_where_no_container_is_known_the_command_is_said() -> None:
    plan = plans.service(engine="llamacpp")
    [first, *others] = plan.choices
    bare = replace(
        plan, choices=(replace(first, stack=replace(first.stack, platform="mps")), *others)
    )
    with pytest.raises(MissingFactError, match="mps") as refused:
        deploy(bare, "docker", DeploySettings(purpose="serve", options=WEIGHTS))
    assert f"`llama-server --hf-repo {WEIGHTS['weights']} " in refused.value.hint


def test_a_server_is_asked_for_nothing_that_is_not_on_record() -> None:
    plan = plans.service(engine="llamacpp", speculation="draft=ngram,tokens=4,acceptance=0.6")
    with pytest.raises(InvalidInputError, match="ngram") as refused:
        deploy(plan, "docker", DeploySettings(purpose="serve", options=WEIGHTS))
    assert "vllm or sglang" in refused.value.hint


@pytest.mark.parametrize("engine", PROGRAMS)
def test_a_narrow_cache_is_asked_for(engine: str) -> None:
    settings = DeploySettings(purpose="serve", options=WEIGHTS)
    for cache_format in ("", "fp8"):
        plan = plans.service(engine=engine, cache_format=cache_format)
        given = options_of(command("docker", deploy(plan, "docker", settings)))
        assert given.get("--kv-cache-dtype", "").startswith(cache_format or "x") == bool(
            cache_format
        )
    assert "--kv-cache-dtype" in known(PROGRAMS[engine])


@pytest.mark.parametrize("target", TARGETS)
def test_the_load_test_sends_the_plan_s_load(target: str) -> None:
    made = deployed(target)
    script = next(file.text for file in made.files if file.path == "load-test.sh")
    words = shlex.split(script.rsplit("\nvllm", 1)[1])
    given = options_of(words)
    assert not set(given) - known("vllm bench serve")
    assert (given["--random-input-len"], given["--random-output-len"]) == ("512", "128")
    assert float(given["--request-rate"]) == 20.0
    # Lengths between mean (1 - r) and mean (1 + r) have a spread of r over the root of three.
    assert float(given["--random-range-ratio"]) / math.sqrt(3.0) == pytest.approx(0.2, rel=0.01)


def test_replicas_of_a_machine_have_devices_of_their_own_behind_a_router() -> None:
    made = deployed("docker")
    services = yaml.safe_load(made.files[0].text)["services"]
    ids = [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for name, service in services.items()
        if name != "router"
    ]
    assert ids == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
    router = next(file.text for file in made.files if file.path == "router.conf")
    assert "server engine-0:8000;" in router
    assert "server engine-1:8000;" in router


def test_replicas_on_rocm_have_an_image_and_see_their_own_devices() -> None:
    rocm = plans.stack(platform="rocm", platform_version="7.2", min_driver=None)
    plan = plans.service()
    plan = replace(plan, choices=(replace(plan.choices[0], stack=rocm),))
    made = deploy(plan, "docker", DeploySettings(purpose="serve", options=WEIGHTS))
    services = yaml.safe_load(made.files[0].text)["services"]
    second = services["engine-1"]
    assert "rocm" in second["image"]
    assert second["devices"] == ["/dev/kfd", "/dev/dri"]
    assert second["environment"]["HIP_VISIBLE_DEVICES"] == "4,5,6,7"


def test_a_cluster_scales_with_the_requests_that_wait() -> None:
    plain = deployed("kubernetes")
    assert "ScaledObject" not in plain.files[0].text
    made = deployed("kubernetes", prometheus="http://prometheus:9090")
    kinds = {one["kind"]: one for one in yaml.safe_load_all(made.files[0].text)}
    scaled = kinds["ScaledObject"]["spec"]
    assert scaled["minReplicaCount"] == kinds["Deployment"]["spec"]["replicas"] == 2
    assert "vllm:num_requests_waiting" in scaled["triggers"][0]["metadata"]["query"]
    # 26 requests/s at the slow end on two replicas, a first token after 0.2 s.
    assert scaled["triggers"][0]["metadata"]["threshold"] == "3"
    container = kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    served = yaml.safe_load(deployed("kserve", prometheus="http://prometheus:9090").files[0].text)
    assert served["spec"]["predictor"]["autoScaling"]


def test_a_replica_of_skyserve_is_asked_no_more_than_it_can_do() -> None:
    task = yaml.safe_load(deployed("skypilot", region="us-east-1").files[0].text)
    policy = task["service"]["replica_policy"]
    assert policy["min_replicas"] == 2
    assert 10.0 <= policy["target_qps_per_replica"] <= 13.0
    assert task["resources"]["accelerators"] == {"A100": 4}


def test_a_replica_over_several_machines_is_refused() -> None:
    """A rack joins machines, and the files of one server start one of them."""
    wide = plans.service(num_ranks=16, num_replicas=1)
    with pytest.raises(InvalidInputError, match="16 devices fills machines of 8") as refused:
        deploy(wide, "docker", DeploySettings(purpose="serve", options=WEIGHTS))
    assert "Ray" in refused.value.hint


def split(strategy: str, engine: str, **changes: object) -> PlanFile:
    plan = plans.service(engine=engine, num_replicas=1, **changes)
    return replace(plan, choices=(replace(plan.choices[0], strategy=strategy),))


@pytest.mark.parametrize(
    ("engine", "ranks", "requests", "told"),
    [
        ("vllm", "2", "512", {"--data-parallel-size": "4", "--enable-expert-parallel": ""}),
        ("sglang", "8", "2048", {"--dp-size": "4", "--ep-size": "8", "--enable-dp-attention": ""}),
    ],
)
def test_replicas_of_attention_that_share_experts_are_asked_for(
    engine: str, ranks: str, requests: str, told: dict[str, str]
) -> None:
    plan = split("ep4.tp2", engine, num_ranks=8)
    made = deploy(plan, "docker", DeploySettings(purpose="serve", options=WEIGHTS))
    given = options_of(command("docker", made))
    assert not set(given) - known(PROGRAMS[engine])
    options = engine_servers()[engine]["options"]
    assert given[options["ranks"]] == ranks
    assert given[options["max_requests"]] == requests
    assert all(value in ("", given[name]) for name, value in told.items())


@pytest.mark.parametrize(
    ("engine", "told"), [("vllm", "--pipeline-parallel-size 2"), ("sglang", "--pp-size 2")]
)
def test_stages_in_several_machines_are_started_by_hand(engine: str, told: str) -> None:
    plan = split("pp2.tp8@1f1b/mb2", engine, num_ranks=16)
    with pytest.raises(InvalidInputError, match="16 devices fills machines of 8") as refused:
        deploy(plan, "docker", DeploySettings(purpose="serve", options=WEIGHTS))
    words = shlex.split(refused.value.hint.split("`")[1])
    assert told in " ".join(words)
    assert not set(options_of(words)) - known(PROGRAMS[engine])
    assert options_of(words)[engine_servers()[engine]["options"]["ranks"]] == "8"


def test_a_server_without_such_ranks_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not on record"):
        deploy(
            split("ep4.tp2", "llamacpp", num_ranks=8), "docker",
            DeploySettings(purpose="serve", options=WEIGHTS),
        )  # fmt: skip


def test_what_is_not_known_is_asked_for() -> None:
    with pytest.raises(MissingFactError, match="weights to serve"):
        deploy(plans.service(), "kubernetes", DeploySettings(purpose="serve"))
    with pytest.raises(InvalidInputError, match="server of lmdeploy"):
        deployed("kubernetes", "lmdeploy")
    with pytest.raises(InvalidInputError, match="no option `format`"):
        deployed("docker", format="onnx")


HOSTILE = "a'b\"c $(touch pwned) `touch pwned`\n; touch pwned\n- {x}: &e\t${HOME}"


def unescaped(text: str) -> str:
    return text.replace("$$", "$")


@pytest.mark.parametrize("engine", PROGRAMS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("weights", [HOSTILE, "/data/" + HOSTILE])
def test_names_stay_values_whatever_is_in_them(
    target: str, engine: str, weights: str, tmp_path: Path
) -> None:
    """Weights, the plan's title and model: in documents as data, in shell texts as single words."""
    calm = plans.service(engine=engine)
    hostile = replace(calm, workload=replace(calm.workload, title=HOSTILE, model=f"m{HOSTILE}"))
    made, plain = (
        deploy(plan, target, DeploySettings(purpose="serve", options={"weights": one}))
        for plan, one in ((hostile, weights), (calm, "/data/x" if weights[0] == "/" else "org/x"))
    )
    assert weights in [unescaped(word) for word in command(target, made)]
    if target == "docker" and weights[0] == "/":
        (volume,) = yaml.safe_load(made.files[0].text)["services"]["engine-0"]["volumes"]
        assert [unescaped(volume[key]) for key in ("source", "target")] == [weights, weights]
    for mine, theirs in zip(made.files, plain.files, strict=True):
        if mine.path.endswith(".yaml"):
            ours, others = (list(yaml.safe_load_all(one.text)) for one in (mine, theirs))
            assert list(map(shape, ours)) == list(map(shape, others))
        elif mine.path.endswith(".sh"):
            (tmp_path / "vllm").write_text('#!/bin/sh\nprintf "%s\\1" "$@" > words\n')
            (tmp_path / "vllm").chmod(0o755)
            path = f"{tmp_path}:/usr/bin:/bin"
            subprocess.run(["sh", "-c", mine.text], cwd=tmp_path, env={"PATH": path, "SERVER": "x"})
            said = (tmp_path / "words").read_bytes().decode().split("\1")
            assert weights in said
            assert f"paceline_model=m{HOSTILE}" in said
    assert not (tmp_path / "pwned").exists()


def shape(value: object) -> object:
    """A document without its values."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else type(value)


_GUESSES = {
    "ngram": "draft=ngram,tokens=4,acceptance=0.6",
    "mtp": "draft=mtp,tokens=2,acceptance=0.8",
    "model": "draft=llama-3.2-1b,tokens=4,acceptance=0.7",
}


@pytest.mark.parametrize("engine", PROGRAMS)
@pytest.mark.parametrize("guesses", _GUESSES)
def test_guesses_are_asked_for_by_the_engine_s_own_options(engine: str, guesses: str) -> None:
    plan = plans.service(engine=engine, prefix_share=0.5, speculation=_GUESSES[guesses])
    options = {**WEIGHTS, "draft": "org/small"}
    made = deploy(plan, "docker", DeploySettings(purpose="serve", options=options))
    given = options_of(command("docker", made))
    assert not set(given) - known(PROGRAMS[engine])
    if engine == "vllm":
        assert "--enable-prefix-caching" in given
        told = json.loads(given["--speculative-config"])
        assert told["num_speculative_tokens"] == (2 if guesses == "mtp" else 4)
        assert told.get("model") == ("org/small" if guesses == "model" else None)
    else:
        assert given["--speculative-num-draft-tokens"] == ("3" if guesses == "mtp" else "5")
        assert given.get("--speculative-draft-model-path") == (
            "org/small" if guesses == "model" else None
        )


def test_a_model_that_guesses_needs_its_weights() -> None:
    plan = plans.service(speculation=_GUESSES["model"])
    with pytest.raises(MissingFactError, match="the model that guesses"):
        deploy(plan, "docker", DeploySettings(purpose="serve", options=WEIGHTS))


@pytest.mark.parametrize("engine", PROGRAMS)
def test_adapters_are_asked_for_with_their_number_and_a_rank_that_the_engine_has(
    engine: str,
) -> None:
    plan = plans.service(engine=engine, adapters="count=32,rank=12,loaded=8")
    options = {**WEIGHTS, "adapters": "a=org/a b=org/b"}
    made = deploy(plan, "docker", DeploySettings(purpose="serve", options=options))
    words = command("docker", made)
    given = options_of(words)
    assert not set(given) - known(PROGRAMS[engine])
    slots, rank = ("--max-loras", "16") if engine == "vllm" else ("--max-loras-per-batch", "12")
    assert (given[slots], given["--max-lora-rank"]) == ("8", rank)
    assert "a=org/a" in words
    plain = deploy(plan, "docker", DeploySettings(purpose="serve", options=WEIGHTS))
    assert any("--set adapters=" in need for need in plain.needs)


def test_sglang_guesses_beside_adapters_by_copies_alone() -> None:
    plan = plans.service(engine="sglang", adapters="count=4,rank=16", speculation=_GUESSES["mtp"])
    with pytest.raises(InvalidInputError, match="no guesses but those of ngram"):
        deploy(plan, "docker", DeploySettings(purpose="serve", options=WEIGHTS))


def test_the_load_test_sends_what_the_plan_says_of_requests() -> None:
    plan = plans.service(prefix_share=0.75, adapters="count=2,rank=16")
    options = {**WEIGHTS, "adapters": "a=org/a b=org/b"}
    made = deploy(plan, "docker", DeploySettings(purpose="serve", options=options))
    text = next(one.text for one in made.files if one.path == "load-test.sh")
    words = shlex.split(text.splitlines()[-1])
    given = options_of(words)
    assert not set(given) - known("vllm bench serve")
    assert (given["--random-prefix-len"], given["--random-input-len"]) == ("384", "128")
    names = words.index("--lora-modules")
    assert words[names + 1 : names + 3] == ["a", "b"]
    assert any(word == "item=prefix@0.75 adapters@count@2,rank@16" for word in words)
