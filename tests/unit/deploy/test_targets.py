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
from paceline.deploy import DeploySettings, deploy, targets
from paceline.errors import (
    InvalidInputError,
    MissingFactError,
    PacelineError,
    StackConflictError,
    UnknownNameError,
)

from . import plans
from .settings_of_targets import PLANS, settings_for

NASTY = ("train.py", "two words", "$(touch pwned)", "it's", 'say "hi"', "a\nb", "${HOME}", "`id`")
SECRET = "s3cr3t-t0ken"
#: Targets in which words of the user's are read by a shell.
SHELL_TARGETS = [
    name for name in PLANS if settings_for(name).purpose == "train" and name != "trainjob"
]


@pytest.mark.parametrize("target", PLANS)
def test_each_target_writes_files_and_one_command(target: str) -> None:
    written = deploy(PLANS[target](), target, settings_for(target))
    assert written.files
    assert written.command
    assert "\n" not in written.command
    assert all(file.text.endswith("\n") for file in written.files)


@pytest.mark.parametrize("target", PLANS)
def test_what_is_needed_stands_at_the_top_of_the_first_file(target: str) -> None:
    written = deploy(PLANS[target](), target, settings_for(target))
    first = written.files[0].text
    head = first[: first.find("\n\n") if "\n\n" in first else None]
    assert all(need in head for need in written.needs[:3])


@pytest.mark.parametrize(
    ("cloud", "need"),
    [
        ("aws", "an account of aws that `sky check aws` finds"),
        ("own", "your machines as a Kubernetes cluster that `sky check kubernetes` finds"),
    ],
)
def test_skypilot_says_where_it_must_be_let_in(cloud: str, need: str) -> None:
    first = plans.choice(place=plans.place(cloud=cloud))
    settings = settings_for("skypilot")
    assert need in deploy(plans.plan(choices=(first,)), "skypilot", settings).needs


@pytest.mark.parametrize("target", PLANS)
def test_files_are_the_same_every_time(target: str) -> None:
    first, second = (deploy(PLANS[target](), target, settings_for(target)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("target", SHELL_TARGETS)
def test_hostile_words_never_leave_their_place(target: str, tmp_path: Path) -> None:
    """Every shell text runs with the launcher faked, and the script is given its exact words."""
    settings = settings_for(target, command=NASTY)
    written = deploy(PLANS[target](), target, settings)
    scripts = _shell_texts(target, written)
    assert scripts
    for script in scripts:
        assert _words_of_script(script, tmp_path) == list(NASTY)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("target", PLANS)
def test_a_hostile_plan_cannot_leave_a_comment(target: str) -> None:
    plan = PLANS[target]()
    title = "ResNet\n#SBATCH --wrap=evil\nRUN evil\n%post\nevil: true"
    hostile = plans.plan(*plan.choices, workload=plans.workload(title=title))
    written = deploy(hostile, target, settings_for(target))
    for file in written.files:
        assert not re.search(r"^\s*(RUN evil|#SBATCH --wrap|%post\nevil|evil)", file.text, re.M)


@pytest.mark.parametrize("target", ["docker", "skypilot", "azureml"])
def test_places_go_in_as_data(target: str) -> None:
    places = ("/a b/$(id)/x", "/c'd\": {}/&e")
    settings = settings_for(target, data=places[0], checkpoints=places[1])
    written = deploy(PLANS[target](), target, settings)
    documents = [
        document
        for file in written.files
        if file.path.endswith(".yaml")
        for document in yaml.safe_load_all(file.text)
    ]
    found = [text.replace("$$", "$") for text in _strings(documents)]
    assert set(places) <= set(found)


@pytest.mark.parametrize(
    "target",
    ["kubernetes", "jobset", "trainjob", "rayjob", "sagemaker", "vertex", "kserve",
     "sagemaker-endpoint"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["/a b/$(id)/x", "/mnt/data", "c'd\": {}"])
def test_a_place_that_is_none_of_the_target_s_is_refused(target: str, place: str) -> None:
    with pytest.raises(PacelineError) as caught:
        deploy(PLANS[target](), target, settings_for(target, data=place))
    assert "--data" in caught.value.hint or place in str(caught.value)


@pytest.mark.parametrize("target", PLANS)
def test_no_secret_of_the_environment_is_written(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "AZURE_CLIENT_SECRET"):
        monkeypatch.setenv(name, SECRET)
    written = deploy(PLANS[target](), target, settings_for(target))
    assert all(SECRET not in file.text for file in written.files)


def test_every_target_is_tested() -> None:
    assert {target.name for target in targets()} == set(PLANS)


def test_an_unknown_target_names_its_neighbours() -> None:
    with pytest.raises(UnknownNameError, match="no target named `slrm`") as caught:
        deploy(plans.plan(), "slrm", plans.training())
    assert "slurm" in caught.value.hint


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no option `partitoin`") as caught:
        deploy(plans.plan(), "slurm", plans.training(options={"partitoin": "gpu"}))
    assert "partition" in caught.value.hint


def test_a_directive_takes_no_shell_text() -> None:
    with pytest.raises(InvalidInputError, match="cannot hold"):
        deploy(plans.plan(), "slurm", plans.training(options={"account": "a b; rm -rf /"}))


def test_a_cluster_needs_an_image_that_holds_the_code() -> None:
    with pytest.raises(MissingFactError, match="image that holds your code") as caught:
        deploy(plans.plan(), "kubernetes", plans.training(image=None))
    assert "--image" in caught.value.hint


def test_a_tpu_slice_sets_nodes_and_chips_itself() -> None:
    settings = plans.training(variant="gke-tpu")
    text = deploy(plans.tpu(16), "jobset", settings).files[0].text
    spec = yaml.safe_load(text)["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = spec["template"]["spec"]
    assert (
        spec["completions"] * int(pod["containers"][0]["resources"]["limits"]["google.com/tpu"])
        == 16
    )
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "4x4"


def test_a_slice_that_does_not_exist_is_a_missing_fact() -> None:
    with pytest.raises(MissingFactError, match="slice of 7 chips"):
        deploy(plans.tpu(7), "jobset", plans.training(variant="gke-tpu"))


def test_measurements_go_to_the_first_offers_each_once() -> None:
    offers = [plans.choice(place=plans.place(offer=f"aws/{n}")) for n in ("a", "a", "b", "c", "d")]
    settings = DeploySettings(purpose="measure", options={"offers": "3"})
    made = deploy(plans.plan(*offers), "skypilot", settings)
    tasks = [yaml.safe_load(f.text) for f in made.files if f.path.endswith("sky.yaml")]
    assert [task["name"] for task in tasks] == [f"measure-resnet50-aws-{n}" for n in "abc"]
    assert made.command == "sh measure-all.sh"
    assert made.files[0].text.count("rsync") == 3
    assert made.files[0].text.count("cp -R") == 3


def _shell_texts(target: str, written) -> list[str]:
    """Every text of the deployment that a shell will read and that starts the ranks."""
    first = written.files[0].text
    if target in {"torchrun", "slurm", "apptainer"}:
        return [first]
    if target == "docker":
        words = json.loads(re.search(r"^CMD (.*)$", first, re.M).group(1))
        return [words[2]]
    if target == "skypilot":
        return [yaml.safe_load(first)["run"]]
    if target == "rayjob":
        return [yaml.safe_load(first)["spec"]["entrypoint"]]
    if target == "azureml":
        return [re.sub(r"\$\{\{[^}]*\}\}", "/place", yaml.safe_load(first)["command"])]
    if target == "sagemaker":
        environment = json.loads(written.files[1].text)["Environment"]
        parts = [value for name, value in environment.items() if name.startswith("PACELINE_LAUNCH")]
        return ["".join(parts)]
    if target == "vertex":
        return [yaml.safe_load(first)["workerPoolSpecs"][0]["containerSpec"]["command"][2]]
    return [text.replace("$$", "$") for text in _pod_scripts(list(yaml.safe_load_all(first)))]


def _values(value, key: str) -> list:
    """Every value under ``key``, however deep."""
    if isinstance(value, list):
        return [one for item in value for one in _values(item, key)]
    if not isinstance(value, dict):
        return []
    mine = [value[key]] if key in value else []
    return mine + [one for item in value.values() for one in _values(item, key)]


def _strings(value) -> list[str]:
    """Every text in a document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


def _variable(environment: list[dict[str, str]], name: str) -> str:
    return next(one["value"] for one in environment if one["name"] == name)


def _pod_scripts(value) -> list[str]:
    if isinstance(value, dict):
        found = value.get("command")
        mine = [found[2]] if isinstance(found, list) and found[:2] == ["sh", "-c"] else []
        return mine + [text for item in value.values() for text in _pod_scripts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _pod_scripts(item)]
    return []


_FAKE = """
cd "$1"; shift
record() { printf '%s\\1' "$@" > words; }
for name in torchrun python scontrol scancel; do eval "$name() { :; }"; done
exec() { "$@"; }
torchrun() { record "$@"; }
python() { if [ "$1" = -c ]; then echo host 0 train; else record "$@"; fi; }
apptainer() { record "$@"; }
srun() { while [ "$1" != sh ]; do shift; done; eval "$3"; }
export DATA_DIR=d CHECKPOINT_DIR=c HEAD_ADDRESS=h NODE_RANK=0 SLURM_JOB_NODELIST=n SLURM_JOB_ID=1
export SLURM_NODEID=0 JOB_COMPLETION_INDEX=0 SKYPILOT_NODE_RANK=0 SKYPILOT_NODE_IPS=1.2.3.4
"""


def _words_of_script(script: str, folder: Path) -> list[str]:
    """The words from ``train.py`` on that the faked launcher was given."""
    (folder / "words").unlink(missing_ok=True)
    whole = _FAKE + script
    subprocess.run(["bash", "-c", whole, "bash", str(folder)], check=False, capture_output=True)
    words = (folder / "words").read_bytes().decode().split("\1")[:-1]
    return words[words.index("train.py") :]


def test_a_platform_without_an_image_still_gets_a_script() -> None:
    gaudi = plans.stack(platform="gaudi", platform_version="1.18.0", min_driver=None)
    plan = plans.plan(plans.choice(stack=gaudi))
    assert deploy(plan, "torchrun", plans.training(image=None)).files
    with pytest.raises(MissingFactError, match="no image of torch for gaudi") as caught:
        deploy(plan, "docker", plans.training(image=None))
    assert "--image" in caught.value.hint


def test_several_machines_of_another_framework_are_not_silently_left_alone() -> None:
    jax = plans.stack(framework="jax", framework_version="0.11.0")
    plan = plans.plan(plans.choice(stack=jax, place=plans.place(num_nodes=2)))
    with pytest.raises(InvalidInputError, match="several machines of jax"):
        deploy(plan, "slurm", plans.training(image=None))


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


def test_a_folder_that_takes_no_checkpoint_is_known_before_an_hour_of_work(
    tmp_path: Path,
) -> None:
    files = {f.path: f.text for f in deploy(plans.plan(), "docker", plans.training()).files}
    (tmp_path / "check_device.py").write_text(files["check_device.py"])
    words = [sys.executable, str(tmp_path / "check_device.py"), "echo", "begun"]
    outputs = {}
    for folder in ("there", "not-there"):
        (tmp_path / "there").mkdir(exist_ok=True)
        variables = {"PACELINE_SKIP_DEVICE_CHECK": "1", "CHECKPOINT_DIR": str(tmp_path / folder)}
        done = subprocess.run(
            words, capture_output=True, text=True, env=os.environ | variables, check=False
        )
        outputs[folder] = (done.returncode, done.stdout, "cannot write to" in done.stderr)
    assert outputs == {"there": (0, "begun\n", False), "not-there": (1, "", True)}


@pytest.mark.parametrize("target", ["kubernetes", "jobset", "rayjob", "trainjob"])
@pytest.mark.parametrize(("options", "user"), [({}, 10001), ({"user": "1000"}, 1000)])
def test_pods_run_as_a_user_without_rights_who_owns_the_volumes(
    target: str, options: dict[str, str], user: int
) -> None:
    made = deploy(PLANS[target](), target, settings_for(target, options=options))
    contexts = _values(list(yaml.safe_load_all(made.files[0].text)), "securityContext")
    pods = [c for c in contexts if "runAsUser" in c]
    containers = [c for c in contexts if "runAsUser" not in c]
    assert {(c["runAsUser"], c["fsGroup"], c["runAsNonRoot"]) for c in pods} == {(user, user, True)}
    assert {c["allowPrivilegeEscalation"] for c in containers} == {False}
    assert all(c["capabilities"] == {"drop": ["ALL"]} for c in containers)
    assert len(pods) == len(containers) > 0


def test_the_image_of_a_pod_runs_as_the_user_that_owns_its_volumes() -> None:
    image = deploy(plans.plan(), "docker", plans.training(image=None)).files[0].text
    pod = deploy(plans.plan(), "kubernetes", plans.training()).files[0].text
    (user,) = _values(list(yaml.safe_load_all(pod)), "runAsUser")
    assert f"USER {user}:{user}" in image
    assert f"--uid {user}" in image


@pytest.mark.parametrize("target", ["kubernetes", "kserve"])
def test_nodes_are_told_apart_by_the_labels_that_are_named(target: str) -> None:
    label = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    plain = settings_for(target)
    named = settings_for(
        target,
        options={**plain.options, "node-selector": "=".join(*label.items())},
    )
    documents = list(yaml.safe_load_all(deploy(PLANS[target](), target, named).files[0].text))
    assert _values(documents, "nodeSelector") == [label]
    with pytest.raises(InvalidInputError, match="no list of labels"):
        deploy(PLANS[target](), target, settings_for(
            target, options={**plain.options, "node-selector": "gpu"}
        ))  # fmt: skip


def test_a_device_plugin_that_tells_no_devices_apart_is_said() -> None:
    needs = deploy(plans.two_nodes(), "kubernetes", settings_for("kubernetes")).needs
    assert any("A100 SXM4 40GB" in need and "node-selector" in need for need in needs)


@pytest.mark.parametrize(("devices", "framework"), [(1, "torch"), (8, "torch"), (8, "jax")])
def test_ray_is_told_that_there_are_gpus_however_many_processes_drive_them(
    devices: int, framework: str
) -> None:
    software = plans.stack(framework=framework, framework_version="2.13.0")
    where = plans.place(devices_per_node=devices)
    plan = plans.plan(plans.choice(place=where, stack=software, num_devices=devices))
    text = deploy(plan, "rayjob", settings_for("rayjob")).files[0].text
    pods = _values(yaml.safe_load(text), "env")
    assert [_variable(pod, "PACELINE_USES_GPU") for pod in pods] == ["true", "true"]


def test_a_slurm_job_in_a_container_brings_its_definition_and_binds_what_it_has() -> None:
    settings = settings_for("slurm", image=None, options={"container": "apptainer"})
    made = deploy(plans.plan(), "slurm", settings)
    assert [file.path for file in made.files] == ["job.sbatch", "apptainer.def"]
    assert made.files[0].text.count("--bind") == 2
    sweep = deploy(
        plans.plan(),
        "slurm",
        DeploySettings(purpose="measure", options={"container": "apptainer"}),
    )
    assert "DATA_DIR" not in sweep.files[0].text
    with pytest.raises(InvalidInputError, match="not run in `docker`"):
        deploy(plans.plan(), "slurm", settings_for("slurm", options={"container": "docker"}))


@pytest.mark.parametrize("target", ["docker", "apptainer", "skypilot", "kubernetes"])
def test_what_measures_is_the_release_that_wrote_the_files(target: str) -> None:
    made = deploy(plans.plan(), target, DeploySettings(purpose="measure"))
    whole = "".join(file.text for file in made.files)
    assert f"paceline=={paceline.__version__}" in whole
    assert not re.search(r"pip install (--no-cache-dir )?paceline\b(?!==)", whole)


@pytest.mark.parametrize("target", ["torchrun", "docker", "slurm", "skypilot", "azureml"])
def test_a_script_of_the_users_own_is_asked_for_where_it_is_looked_for(target: str) -> None:
    def needs(*command: str) -> str:
        settings = settings_for(target, command=command)
        return " ".join(deploy(PLANS[target](), target, settings).needs)

    assert "train.py in this folder" in needs("train.py")
    assert "your code in this folder" in needs("-m", "mine.train")
    assert "in this folder" not in needs("/opt/train.py")


def test_a_disk_has_room_for_the_checkpoints_that_wait_on_it() -> None:
    small, large = (
        json.loads(
            deploy(
                plans.plan(workload=plans.workload(num_parameters=count)),
                "sagemaker",
                settings_for("sagemaker"),
            ).files[1].text
        )["ResourceConfig"]["VolumeSizeInGB"]
        for count in (10**7, 7 * 10**10)
    )  # fmt: skip
    assert small == 100
    assert large * 2**30 > 3 * 7e10 * 8


@pytest.mark.parametrize("target", ["triton", "torchserve", "tensorflow-serving"])
def test_a_server_says_who_may_reach_it_and_when_it_is_ready(target: str) -> None:
    made = deploy(PLANS[target](), target, settings_for(target))
    script = made.files[0].text
    port = re.search(r"# ready when `curl --fail localhost:(\d+)/", script)
    assert port is not None
    assert f"--publish {port.group(1)}:{port.group(1)}" in script
    assert any("only callers reach the ports" in need for need in made.needs)


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("cpus", "20", "--cpus-per-task=18"),
        ("host-memory", "100GiB", "--mem=92160M"),
        ("wall-time", "90min", "--time=0-01:30:00"),
    ],
)
def test_facts_of_the_plan_can_be_replaced_with_their_units(
    option: str, value: str, line: str
) -> None:
    made = deploy(plans.plan(), "slurm", plans.training(options={option: value}))
    assert line in made.files[0].text


def test_a_measured_rate_of_saving_changes_the_interval() -> None:
    slow, fast = (
        deploy(plans.plan(), "torchrun", plans.training(options={"checkpoint-rate": rate}))
        for rate in ("10MB", "10GB")
    )
    intervals = [int(re.search(r"INTERVAL_S=(\d+)", made.files[0].text).group(1))
                 for made in (slow, fast)]  # fmt: skip
    assert intervals[0] > intervals[1]


def test_python_in_front_of_a_script_is_the_launcher_s_business() -> None:
    bare, named = (
        deploy(plans.plan(), "torchrun", plans.training(command=words))
        for words in (("train.py", "x"), ("python", "train.py", "x"))
    )
    assert bare == named


@pytest.mark.parametrize("target", ["torchrun", "docker", "slurm", "kubernetes", "skypilot"])
def test_a_measurement_leaves_its_records_where_they_can_be_fetched(target: str) -> None:
    made = deploy(plans.plan(), target, DeploySettings(purpose="measure"))
    text = made.files[0].text + (made.files[1].text if len(made.files) > 1 else "")
    assert "paceline measure resnet50" in text
    assert "paceline-records" in text
    assert "--compiler compiled --mode step" in text.replace("\n", " ")


def test_where_the_plan_compiles_there_is_a_compiler() -> None:
    eager = plans.plan(plans.choice(compiler="eager"))
    settings = settings_for("azureml", image=None)
    texts = [deploy(plan, "azureml", settings).files[0].text for plan in (plans.plan(), eager)]
    assert ["devel" in text for text in texts] == [True, False]
    tasks = [deploy(plan, "skypilot", plans.training(image=None)).files[0].text
             for plan in (plans.plan(), eager)]  # fmt: skip
    assert ["gcc" in task for task in tasks] == [True, False]


def test_a_managed_service_has_machines_of_its_own_cloud_only() -> None:
    settings = settings_for("vertex")
    with pytest.raises(MissingFactError, match="no machine of aws"):
        deploy(plans.plan(), "vertex", settings)
    lambda_cloud = plans.plan(plans.choice(place=plans.place(cloud="lambda")))
    with pytest.raises(MissingFactError, match="no machine of lambda"):
        deploy(lambda_cloud, "sagemaker", settings_for("sagemaker"))
    with pytest.raises(MissingFactError, match="Azure ML has no machine of lambda"):
        deploy(lambda_cloud, "azureml", settings_for("azureml", options={"compute": "cluster"}))


def test_a_training_job_may_be_sent_again_under_another_name() -> None:
    made = deploy(PLANS["sagemaker"](), "sagemaker", settings_for("sagemaker"))
    assert "--training-job-name resnet50-train-$(date -u +" in made.files[0].text


def test_a_claim_that_several_nodes_mount_says_so() -> None:
    needs = {
        nodes: [
            "ReadWriteMany" in need
            for need in deploy(plan, "kubernetes", settings_for("kubernetes")).needs
            if need.startswith("PersistentVolumeClaim")
        ]
        for nodes, plan in ((1, plans.plan()), (2, plans.two_nodes()))
    }
    assert needs == {1: [False, False], 2: [True, True]}


def test_no_pod_shares_more_memory_than_it_has() -> None:
    spec = yaml.safe_load(
        deploy(PLANS["rayjob"](), "rayjob", settings_for("rayjob")).files[0].text
    )["spec"]["rayClusterSpec"]
    groups = (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    for pod in (group["template"]["spec"] for group in groups):
        (size,) = _values(pod["volumes"], "sizeLimit")
        limit = pod["containers"][0]["resources"]["limits"]["memory"]
        assert int(size.removesuffix("Mi")) < int(limit.removesuffix("Mi"))


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


def test_each_data_parallel_rank_serves_as_a_replica_of_its_own() -> None:
    made = deploy(plans.plan(), "kserve", settings_for("kserve"))
    predictor = yaml.safe_load(made.files[0].text)["spec"]["predictor"]
    resources = predictor["model"]["resources"]
    assert predictor["minReplicas"] * int(resources["limits"]["nvidia.com/gpu"]) == 8
    assert predictor["minReplicas"] * int(resources["requests"]["cpu"]) <= 86


def properties_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(("batch", "devices"), [(1, 8), (256, 8), (32, 0)])
def test_torchserve_batches_as_planned_with_a_worker_per_device(batch: int, devices: int) -> None:
    choice = plans.choice(batch_per_device=batch)
    plan = plans.plan(choice) if devices else plans.cpu()
    made = deploy(plan, "torchserve", settings_for("torchserve"))
    config = properties_of(made.files[1].text)
    ((name, versions),) = json.loads(config["models"]).items()
    (model,) = versions.values()
    assert model["batchSize"] == plan.choices[0].batch_per_device
    assert model["minWorkers"] == model["maxWorkers"] == max(devices, 1)
    assert int(config["number_of_gpu"]) == devices
    assert model["marName"] == config["load_models"] == f"{name}.mar"


def test_requests_need_no_key_and_the_port_that_registers_models_stays_in() -> None:
    made = deploy(plans.plan(), "torchserve", settings_for("torchserve"))
    config = properties_of(made.files[1].text)
    host, _, port = config["management_address"].removeprefix("http://").partition(":")
    assert config["disable_token_authorization"] == "true"
    assert host == "127.0.0.1"
    assert f"{port}:{port}" not in made.files[0].text


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
