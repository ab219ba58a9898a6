"""Every target: what all promise, and what no word of a user's may do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from validators import harness

from paceline.deployment.deploying import deploy, targets
from paceline.deployment.settings import DeploySettings
from paceline.errors import InvalidInputError, MissingFactError, PacelineError, UnknownNameError

from . import plans
from .settings_of_targets import PLANS, settings_for

NASTY = ("train.py", "two words", "$(touch pwned)", "it's", 'say "hi"', "a\nb", "${HOME}", "`id`")
SECRET = "s3cr3t-t0ken"
#: Targets in which words of the user's are read by a shell.
SHELL_TARGETS = [
    name for name in PLANS if settings_for(name).purpose == "train" and name != "trainjob"
]


@pytest.mark.parametrize("target", harness.CHECKERS)
def test_files_have_what_the_validators_break(target: str) -> None:
    payload = harness.payload_of(target, deploy(PLANS[target](), target, settings_for(target)))
    assert len(list(harness.broken(target, payload))) == 10


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


def _strings(value) -> list[str]:
    """Every text in a document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


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
timeout() { shift 2; "$@"; }
apptainer() { record "$@"; }
srun() { while [ "$1" != sh ]; do shift; done; eval "$3"; }
export DATA_DIR=d CHECKPOINT_DIR=c HEAD_ADDRESS=h NODE_RANK=0 SLURM_JOB_NODELIST=n SLURM_JOB_ID=1
export SLURM_NODEID=0 JOB_COMPLETION_INDEX=0 SKYPILOT_NODE_RANK=0 SKYPILOT_NODE_IPS=1.2.3.4
"""


def _words_of_script(script: str, folder: Path) -> list[str]:
    """The words from ``train.py`` on that the faked launcher was given."""
    (folder / "words").unlink(missing_ok=True)
    (folder / "train.py").touch()
    whole = _FAKE + script
    subprocess.run(["bash", "-c", whole, "bash", str(folder)], check=False, capture_output=True)
    words = (folder / "words").read_bytes().decode().split("\1")[:-1]
    return words[words.index("train.py") :]


def test_an_image_of_several_machines_is_built_for_the_cluster_that_starts_it() -> None:
    made = deploy(plans.two_nodes(), "docker", plans.training())
    files = {file.path: file.text for file in made.files}
    assert "compose.yaml" not in files
    assert "--nnodes=2" in files["Dockerfile"]
    assert "HEAD_ADDRESS" in files["Dockerfile"]
    assert made.command.startswith("docker build --tag ")
    assert any("--image" in need for need in made.needs)


def test_a_plan_for_inference_trains_nothing_whatever_its_amount_of_work() -> None:
    measured = plans.plan(plans.choice(time_s=None))
    inference = replace(measured, workload=replace(measured.workload, task="infer"))
    with pytest.raises(InvalidInputError, match="the plan is for inference"):
        deploy(inference, "slurm", plans.training())


def test_several_machines_of_another_framework_are_not_silently_left_alone() -> None:
    jax = plans.stack(framework="jax", framework_version="0.11.0")
    plan = plans.plan(plans.choice(stack=jax, place=plans.place(num_nodes=2)))
    with pytest.raises(InvalidInputError, match="several machines of jax"):
        deploy(plan, "slurm", plans.training(image=None))


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


@pytest.mark.parametrize("target", ["torchrun", "docker", "slurm", "skypilot", "azureml"])
def test_a_script_of_the_users_own_is_asked_for_where_it_is_looked_for(target: str) -> None:
    def needs(*command: str) -> str:
        settings = settings_for(target, command=command)
        return " ".join(deploy(PLANS[target](), target, settings).needs)

    there = r"in (this folder|the folder that the job is started in)"
    assert re.search(f"train.py {there}", needs("train.py"))
    assert re.search(f"your code {there}", needs("-m", "mine.train"))
    assert not re.search(there, needs("/opt/train.py"))


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


def test_a_managed_service_has_machines_of_its_own_cloud_only() -> None:
    settings = settings_for("vertex")
    with pytest.raises(MissingFactError, match="no machine of aws"):
        deploy(plans.plan(), "vertex", settings)
    lambda_cloud = plans.plan(plans.choice(place=plans.place(cloud="lambda")))
    with pytest.raises(MissingFactError, match="no machine of lambda"):
        deploy(lambda_cloud, "sagemaker", settings_for("sagemaker"))
    with pytest.raises(MissingFactError, match="Azure ML has no machine of lambda"):
        deploy(lambda_cloud, "azureml", settings_for("azureml", options={"compute": "cluster"}))


@pytest.mark.parametrize("queue", ["gpu/a100_80", "amd/mi250x"])
def test_nodes_of_a_list_are_asked_for_by_their_partition_and_type(queue: str) -> None:
    partition, kind = queue.split("/")
    own = replace(plans.plan().choices[0].place, cloud="own", instance_type=queue)
    plan = replace(plans.plan(), choices=(replace(plans.plan().choices[0], place=own),))
    text = deploy(plan, "slurm", plans.training()).files[0].text
    assert f"#SBATCH --partition={partition}\n" in text
    assert f"#SBATCH --gpus-per-node={kind}:{own.devices_per_node:g}\n" in text
    stated = deploy(plan, "slurm", plans.training(options={"partition": "all", "gpu-type": "x"}))
    assert "--partition=all\n" in stated.files[0].text
    assert "--gpus-per-node=x:" in stated.files[0].text


@pytest.mark.parametrize("place", [{"cloud": "aws"}, {"instance_type": "own machine"}])
def test_what_is_no_name_of_a_list_is_no_partition(place: dict[str, str]) -> None:
    own = replace(
        plans.plan().choices[0].place, **({"cloud": "own", "instance_type": "a/b"} | place)
    )
    plan = replace(plans.plan(), choices=(replace(plans.plan().choices[0], place=own),))
    assert "--partition" not in deploy(plan, "slurm", plans.training()).files[0].text
