"""For every option of every verb, a command and a value with which its answer is another one.

A command is written as typed; ``{name}`` stands for a file or folder of the fixture ``files``.
Where an option acts on files or on the form of an answer, the case says so.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """An option, what it is given, and what is asked without it.

    Attributes:
        base: The command without the option.
        value: What the option is given; None for a flag.
        reads: ``json`` compares answers, ``text`` what is printed, ``file`` a file that is written.
    """

    base: str
    value: str | None
    reads: str = "json"

    def words(self, option: str, files: dict[str, str]) -> tuple[list[str], list[str]]:
        """The command without and with the option."""
        base = shlex.split(self.base.format(**files))
        given = [] if self.value is None else [self.value.format(**files)]
        if option in base:
            place = base.index(option)
            rest = base[:place] + base[place + 2 :]
            return base, [*rest, option, *given]
        return base, [*base, option, *given]


def _all(base: str, **values: str | None) -> dict[str, Case]:
    return {f"--{name.replace('_', '-')}": Case(base, value) for name, value in values.items()}


_PLAN = "plan mnist-cnn --cloud lambda --max-devices 1 --as-of 2026-11-20"
_WIDE = "plan mnist-cnn --device a100,4090,mi250x --max-devices 2 --as-of 2026-11-20"
_LLM = (
    "plan llama-3-8b --task infer --rps 2 --cloud lambda --device h100 --max-devices 1"
    " --as-of 2026-11-20"
)
_PREDICT = "predict mnist-cnn --device a100 --batch 8"
_TEXT = "predict gpt2 --device a100 --batch 4"
_HEARD_PLAN = "plan whisper-small --task infer --cloud lambda --max-devices 1 --as-of 2026-11-20"
_PICTURE_PLAN = "plan sd15-unet --task infer --cloud lambda --max-devices 1 --as-of 2026-11-20"
_HEARD = "predict whisper-small --task infer --device a100 --batch 1"
_PICTURE = "predict sd15-unet --task infer --device a100 --batch 1"
_SERVED = "predict llama-3-8b --task infer --device h100"
_TRACE = "trace mnist-cnn"
_SCALE = "scale mnist-cnn --device a100 --counts 1,8 --as-of 2026-11-20"
_SCALE_TEXT = "scale gpt2 --device a100 --counts 8 --as-of 2026-11-20"
_TRIALS = "trials gpt2 --device a100 --devices 4 --as-of 2026-11-20"
_RESOLVE = "stack resolve --gpu a100"
_EXPLAIN = "stack explain --gpu a100"
_CHECK = "stack check --gpu a100"
_DEPLOY = "deploy {plan} --to slurm --command 'python train.py' --dry-run"
_TO_DOCKER = "deploy {plan} --to docker --command 'python t.py' --dry-run"
_TO_PODS = "deploy {plan} --to kubernetes --image me/x:1 --command t.py --dry-run"
_WRITTEN = "deploy {plan} --to slurm --command 'python t.py'"
_OWN_ROWS = "calibrate {own_rows} --facts {lab} --out {page}"
_QUOTES = "offers refresh {quotes} --dry-run"
_JOB = "predict 'gpt2 train bf16 eager dp8 batch=4'"
_BILL = "bill aws/p4d.24xlarge 24h --as-of 2026-11-20"
_SPOT = f"{_BILL} --term spot"
_REPORT = "report mnist-cnn --device a100 --html {page}"

#: What every verb has: where the answer goes, and its form.
_FORM = {
    "--format": Case("devices", "md", "text"),
    "--json": Case("devices", None, "text"),
    "--output": Case("devices", "{page}", "file"),
}

CASES: dict[str, dict[str, Case]] = {
    "plan": {
        **_all(
            _PLAN, samples="10k", epochs="2", deadline="1min", budget="0.001", vendor="AMD",
            power_limit="100W", cloud="vast", region="eu-north", device="a10", objective="energy",
            precision="fp32", compiler="eager", framework="jax", global_batch="96", data="ready",
            pin="batch=16", task="infer",
            optimizer="sgd", as_of="2026-08-02", why_not="a100", max_devices="8",
            rewrite="frozen=except:dense", device_class="consumer", throughput="900k",
        ),
        **_all(
            _PLAN.replace("lambda", "aws"), storage="9TB", egress="9TB", term="reserved-1y"
        ),
        "--confidence": Case(f"{_PLAN} --deadline 11min", "0.9999"),
        "--max-price-age-days": Case(_WIDE, "150"),
        **_all(_HEARD_PLAN, beams="5", sound="10s"),
        **_all(_PICTURE_PLAN, denoising_steps="20", guidance="no"),
        "--ideal": Case("plan resnet50 --device a100 --cloud lambda --as-of 2026-11-20", None),
        **_all(f"{_LLM} --ttft 2s", percentile="99"),
        **_all(_LLM, spread="1.5", tpot="9ms"),
        "--hour-value": Case(f"{_WIDE} --objective balanced", "5000usd"),
        "--strategies": Case("plan gpt2 --cloud lambda --as-of 2026-11-20", "dp"),
        **_all(_WIDE, cooling_limit="50W", datacenter=None, spot=None, trust="hyperscaler",
               quota="4090=1"),
        **_all(_LLM, rps="20", prompt_tokens="2000", output_tokens="500", concurrency="2",
               latency="9ms", ttft="40ms", prefix_share="0.8",
               adapters="count=8,rank=16", speculate="draft=ngram,tokens=3,acceptance=0.6"),
        "--memory-confidence": Case(_LLM.replace("h100", "a10"), "0.5"),
        "--tokens": Case("plan gpt2 --cloud lambda --max-devices 1 --as-of 2026-11-20", "1M"),
        "--seq": Case("plan gpt2 --cloud lambda --max-devices 1 --as-of 2026-11-20", "256"),
        "--image-size": Case("plan torchvision:alexnet --cloud lambda", "112"),
        "--python": Case("plan torchvision:alexnet --cloud lambda", "{no_python}"),
        "--facts": Case("plan mnist-cnn --cloud own,campus", "{lab}"),
        "--calibration": Case("plan resnet50 --cloud lambda --device h100", "{calibration}"),
        "--explain": Case(_PLAN, None, "text"),
        "--output": Case(_PLAN, "{page}", "file"),
    },
    "predict": {
        **_all(
            _PREDICT, device="h100", batch="16", devices="2", task="infer", optimizer="sgd",
            precision="fp32", compiler="compiled", framework="jax", checkpointing="full",
            rewrite="frozen=except:dense",
        ),
        "--sharding": Case(f"{_PREDICT} --devices 4", "zero3"),
        "--seq": Case(_TEXT, "256"),
        "--image-size": Case("predict torchvision:alexnet --device a100", "112"),
        **_all(_HEARD, beams="5", sound="10s"),
        **_all(_PICTURE, denoising_steps="20", guidance="no"),
        **_all(_SERVED, prompt_tokens="300", output_tokens="50", concurrency="3", rps="2",
               prefix_share="0.8", adapters="count=8,rank=16",
               speculate="draft=ngram,tokens=3,acceptance=0.6"),
        "--spread": Case(f"{_SERVED} --rps 2", "1.5"),
        "--trace": Case(_SERVED, "{arrivals}"),
        "--machine": Case(_JOB, "8xA100 SXM4 80GB@dgx-a100"),
        "--python": Case("predict torchvision:alexnet --device a100", "{no_python}"),
        "--facts": Case("predict mnist-cnn --task infer", "{lab}"),
        "--calibration": Case(_PREDICT, "{calibration}"),
    },
    "trace": {
        **_all(
            _TRACE, device="a100", batch="16", task="infer", optimizer="sgd", precision="fp32",
            compiler="compiled", rewrite="checkpointing=full", compare="checkpointing=full",
            top="2",
        ),
        "--seq": Case("trace gpt2", "256"),
        "--image-size": Case("trace torchvision:alexnet", "112"),
        "--python": Case("trace torchvision:alexnet", "{no_python}"),
        "--save": Case(_TRACE, "{saved}", "file"),
        "--facts": Case("trace mnist-cnn --device 'Acme X1 80GB'", "{lab}"),
        "--calibration": Case("trace mnist-cnn --device a100", "{calibration}"),
    },
    "scale": {
        **_all(
            _SCALE, samples="10k", epochs="2", device="h100", counts="1,4", batch="64",
            global_batch="96", strategy="dp8", optimizer="sgd", precision="fp32",
            compiler="compiled", framework="torch:1.13", rewrite="frozen=except:dense",
            as_of="2024-06-01",
            calibration="{calibration}",
        ),
        "--tokens": Case(_SCALE_TEXT, "1M"),
        "--output-tokens": Case("scale t5-small --device a100 --counts 1", "64"),
        "--seq": Case(_SCALE_TEXT, "256"),
        "--image-size": Case("scale torchvision:alexnet --device a100", "112"),
        "--offer": Case("scale mnist-cnn --counts 1", "lambda/gpu_8x_a100"),
        "--experts": Case("scale gpt2 --device a100 --counts 8 --strategy dp4", "whole"),
        "--beside": Case("scale mnist-cnn --device a100 --counts 8", "H100 SXM5 80GB:8"),
        "--python": Case("scale torchvision:alexnet --device a100", "{no_python}"),
        "--facts": Case("scale mnist-cnn --device 'Acme X1 80GB' --counts 1", "{lab}"),
    },
    "trials": {
        **_all(
            _TRIALS, device="h100", devices="8", global_batch="64", num="1", seq="256",
            optimizer="sgd", precision="fp32", compiler="compiled", as_of="2024-06-01",
            framework="tensorflow", rewrite="training_format=pure", calibration="{calibration}",
        ),
        "--offer": Case("trials gpt2 --devices 4", "lambda/gpu_8x_a100"),
        "--rows": Case(_TRIALS, "{page}", "file"),
        "--image-size": Case("trials torchvision:alexnet --device a100", "112"),
        "--python": Case("trials torchvision:alexnet --device a100", "{no_python}"),
        "--facts": Case("trials gpt2 --device 'Acme X1 80GB' --devices 4", "{lab}"),
    },
    "devices": {
        **_all("devices", vendor="AMD", architecture="hopper", kind="tpu", min_memory="64GB",
               device_class="consumer", max_power="300W", facts="{lab}"),
        **_FORM,
    },
    "offers": _all(
        "offers --as-of 2026-11-20", cloud="aws", region="us-east", min_devices="8",
        min_memory="64GB", max_price="2", spot=None, all=None, as_of="2024-06-01", facts="{lab}",
    ),
    "offers refresh": {
        "--seen-on": Case(f"{_QUOTES} --seen-on 2026-11-20 --cloud nebius", "2026-11-19"),
        "--cloud": Case(f"{_QUOTES} --seen-on 2026-11-20 --cloud nebius", "lambda"),
        "--plan": Case(f"{_QUOTES} --seen-on 2026-11-20 --cloud nebius", "{plan}"),
        "--dry-run": Case(
            "offers refresh {quotes} --seen-on 2026-11-20 --cloud nebius", None, "text"
        ),
    },
    "offers rollback": {
        "--shipped": Case("offers rollback", None, "text"),
    },
    "stack resolve": _all(
        _RESOLVE, gpu="h100", driver="535", cuda="12.4", rocm="6.2", python="3.9", num="1",
        framework="jax", release="2.4", compiler="xla", system="windows",
    ),
    "stack explain": _all(
        _EXPLAIN, gpu="mi250x", driver="450", cuda="11.8", rocm="6.2", python="3.9",
        framework="jax", release="2.4", compiler="xla", system="windows",
    ),
    "stack check": _all(
        _CHECK, gpu="mi250x", driver="450", cuda="11.8", rocm="6.2", python="3.8",
        framework="jax", release="2.4", compiler="xla", system="windows",
    ),
    "stack images": _all("stack images 12.6", gpu="b200", driver="535"),
    "deploy": {
        **_all(
            _DEPLOY, to="torchrun", command="python other.py", purpose="measure", choice="2",
            name="mine", data="/data", checkpoints="/kept", set="partition=gpu",
        ),
        "--image": Case(_TO_DOCKER, "me/x:1"),
        "--variant": Case(_TO_PODS, "gke-gpu"),
        "--list": Case("deploy", None),
        "--dry-run": Case(f"{_WRITTEN} --folder {{folder}}", None, "text"),
        "--force": Case(f"{_WRITTEN} --folder {{taken}}", None, "text"),
        "--folder": Case(_WRITTEN, "{folder}", "text"),
    },
    "compare": {
        "--tolerance": Case("compare {before} {after}", "3", "text"),
        "--output": Case("compare {before} {after} --tolerance 3", "{page}", "file"),
        "--json": Case("compare {before} {after} --tolerance 3", None, "text"),
    },
    "report": {
        **_all(_REPORT, device="h100", batch="8", precision="fp32", task="infer", optimizer="sgd",
               compiler="compiled", rewrite="checkpointing=full", calibration="{calibration}"),
        "--seq": Case("report gpt2 --device a100 --html {page}", "256"),
        "--image-size": Case("report torchvision:alexnet --device a100 --html {page}", "112"),
        "--html": Case(_REPORT, "{other_page}", "text"),
        "--svg": Case(_REPORT, "{folder}", "text"),
        "--png": Case(_REPORT, "{folder}", "text"),
        "--python": Case("report torchvision:alexnet --device a100 --html {page}", "{no_python}"),
        "--facts": Case("report mnist-cnn --device 'Acme X1 80GB' --html {page}", "{lab}"),
        "--as-of": Case("report {lifecycle} --html {page}", "2024-06-01"),
        "--json": Case(_REPORT, None, "text"),
    },
    "export": {
        "--where": Case("export {page} --store {before}", "workload = 'no'", "text"),
        "--store": Case("export {page}", "{before}", "text"),
        "--json": Case("export {page} --store {before}", None, "text"),
    },
    "own": {
        **_all("own {purchases}", name="lab-five-years", electricity="0.9", price="90000",
               pue="1.9", utilisation="0.1", months="9", rent="aws/p4d.24xlarge"),
        "--as-of": Case("own 4090", "2024-06-01"),
        "--facts": Case("own {own_purchases}", "{lab}"),
    },
    "fits": _all("fits tower --facts {tower}", device="4060", cards="2", facts="{lab}"),
    "bill": {
        **_all(_BILL, nodes="2", term="reserved-1y", setup="1h", storage="1TB", egress="1TB",
               region="eu-west-1", as_of="2026-08-01"),
        **_all(_SPOT, save="20min", restart="2h", save_every="5h", interruptions="0.1",
               price="90usd"),
        "--facts": Case("bill campus/4x-acme 24h", "{lab}"),
    },
    "pool": {
        "--python": Case("pool {pool}", "{no_python}"),
        "--facts": Case("pool {own_pool}", "{lab}"),
    },
    "feed": {
        **_all("feed imagenet --rate 2000", size="512", cores="4", workers="1", storage="hdd",
               rate="50", devices="8", sent_as="uint8", measured="300"),
    },
    "lifecycle": {
        **_all("lifecycle {lifecycle}", as_of="2024-06-01", calibration="{calibration}",
               python="{no_python}", facts="{lab}"),
    },
    "score": {
        "--out": Case("score {rows}", "{page}", "file"),
        "--explain": Case("score {rows} --out {page}", "0"),
        "--calibration": Case("score {rows} --explain 0", "{calibration}"),
        "--facts": Case("score {own_rows} --explain 0", "{lab}"),
    },
    "calibrate": {
        "--out": Case("calibrate {rows}", "{page}", "file"),
        "--list": Case("calibrate --calibration {calibration}", None),
        "--undo": Case("calibrate --calibration {copied}", "last"),
        "--calibration": Case(_OWN_ROWS, "{calibration}", "file"),
        "--facts": Case("calibrate {own_rows} --out {page}", "{lab}"),
    },
}  # fmt: skip

#: Verbs that measure: what each option is given, which must reach what is measured.
MEASURED: dict[str, dict[str, str | None]] = {
    "measure mnist-cnn": {
        "--batch": "2", "--devices": "2", "--mode": "forward", "--precision": "bf16",
        "--compiler": "eager", "--stack": "jax", "--python": "{no_python}", "--device": "cpu",
        "--threads": "1", "--seq": "64", "--image-size": "64", "--optimizer": "adam",
        "--channels-last": None, "--timeout": "1min", "--memory": "1GB", "--seconds": "2",
        "--profile": "{folder}", "--store": "{folder}", "--html": "{page}",
        "--on": "slurm", "--set": "partition=gpu", "--in": "/tmp", "--runs": "{folder}",
    },
    "feed .": {
        "--seconds": "2", "--model": "gpt2", "--device": "a100", "--check": None,
        "--damaged": "{page}", "--window": "64", "--dtype": "uint16", "--python": "{no_python}",
    },
    "infer m:f --data . --out o": {
        "--data": "..", "--out": "p", "--batch": "8", "--size": "64", "--normalise": "none",
        "--runtime": "torch", "--mode": "latency", "--device": "cuda", "--workers": "3",
        "--scores": None, "--part": "64", "--export": "p.onnx", "--python": "{no_python}",
    },
    "run -- true": {
        "--choice": "2", "--quiet": None, "--runs": "{folder}", "--steps": "9",
        "--budget": "9usd", "--deadline": "2h", "--stall-after": "9s", "--facts": "{lab}",
        "--stop-idle": "9s",
        "--calibration": "{calibration}", "--on": "slurm", "--set": "partition=gpu", "--in": "/tmp",
        "--detach": None,
    },
    "diagnose -- true": {
        "--limit": "9s", "--device": "a100", "--facts": "{lab}", "--calibration": "{calibration}",
        "--runs": "{folder}",
    },
    "train net --data generated --python /bin/sh --framework jax": {
        "--framework": "tensorflow", "--devices": "2",
    },
    "train net --data generated": {
        "--epochs": "9", "--batch": "9", "--optimizer": "adamw",
        "--rate": "0.5", "--size": "64", "--classes": "9", "--samples": "9", "--seed": "9",
        "--window": "64", "--dtype": "uint16", "--saves": "{folder}", "--processes": "2",
        "--restarts": "2", "--choice": "2",
        "--facts": "{lab}", "--calibration": "{calibration}", "--runs": "{folder}",
    },
    "runs list": {"--runs": "{folder}"},
    "runs show": {"--runs": "{folder}", "--billed": "9usd"},
    "runs follow": {"--runs": "{folder}"},
    "runs stop": {"--runs": "{folder}"},
    "web": {
        "--port": "9", "--runs": "{folder}", "--python": "{no_python}", "--facts": "{lab}",
        "--calibration": "{calibration}", "--as-of": "2026-08-02",
    },
    "ceilings": {
        "--stack": "opencl", "--devices": "2", "--threads": "1", "--size": "128",
        "--store": "{folder}",
    },
}  # fmt: skip

#: Options that name the Python of models that a file names; it is asked when one is traced. What
#: `train` starts is held in tests/unit/app/test_training.py. Runs
#: that were watched are learned from in test_run_lessons.py; a browser is opened by no test.
UNPROVED = {
    ("train", "--data"), ("train", "--python"), ("score", "--python"), ("calibrate", "--python"),
    ("calibrate", "--run"), ("web", "--open"),
}  # fmt: skip

#: Commands with an option that has nothing to act on, and words of the refusal.
REFUSED = (
    ("predict mnist-cnn --device a100 --device h100", "`--device` is given twice"),
    ("plan mnist-cnn --pin batch=8 --pin batch=16", "`batch` is given twice"),
    ("plan mnist-cnn --pin batch=8,batch=16", "`batch` is given twice"),
    ("deploy {plan} --to slurm --set qos=a --set qos=b", "`qos` is given twice"),
    ("predict gpt2 --device a100 --rewrite lora_rank=8,lora_rank=9", "is given twice"),
    ("predict gpt2 --device a100 --batch 4 --rewrite lora_rank=0", "`lora_rank=0` is no count"),
    ("predict mnist-cnn --task infer --device a100 --checkpointing full", "changes nothing"),
    ("predict mnist-cnn --device a100 --sharding zero3", "changes nothing"),
    ("predict mnist-cnn --device a100 --rewrite attention=math", "changes nothing"),
    ("predict gpt2 --task infer --device a100 --rewrite lora_rank=8", "changes nothing"),
    ("predict gpt2 --task infer --device a100 --compiler eager,compiled", "change nothing"),
    ("predict gpt2 --device a100 --checkpointing full --rewrite checkpointing=block", "both say"),
    ("predict mnist-cnn --device a100 --python {no_python}", "no model is traced"),
    ("trace mnist-cnn --rewrite attention=math", "changes nothing"),
    ("trace mnist-cnn --facts {lab}", "says nothing without a device"),
    ("plan mnist-cnn --cloud lambda --rewrite attention=math", "changes nothing"),
    ("plan gpt2 --cloud lambda --data imagenet", "reads tokens"),
    ("plan mnist-cnn --cloud lambda --cooling-limit 1kW", "none of your machines"),
    ("plan mnist-cnn --cloud lambda --why-not a100 --explain", "`--explain` is of the plan"),
    ("plan mnist-cnn --cloud lambda --why-not *", "no device or offer is named"),
    ("scale mnist-cnn --device h100 --offer lambda/gpu_8x_a100", "both say on what"),
    ("scale mnist-cnn --device a100 --counts 8 --rewrite attention=math", "changes nothing"),
    (
        "scale mnist-cnn --device a100 --counts 8 --beside 'H100 SXM5 80GB:8' --epochs 2",
        "say nothing of one step",
    ),
    ("devices a100 --json --format nan", "no format named `nan`"),
    ("devices a100 --json --format md", "are two formats"),
    ("stack check --gpu mi300x --driver 550", "NVIDIA's driver"),
    ("measure mnist-cnn --stack jax,torch --python {no_python}", "cannot be several stacks"),
    ("deploy {plan} --to slurm --command 'python t.py' --image me/x:1", "changes nothing"),
    ("deploy {plan} --to slurm --command 'python t.py' --variant gke-gpu", "changes nothing"),
    ("deploy {plan} --to docker --command 'python t.py' --set driver=580", "changes nothing"),
    ("deploy {plan} --list", "lists every target"),
    ("deploy {plan} --to slurm --command 'python t.py' --dry-run --force", "says nothing beside"),
    ("bill aws/p4d.24xlarge 24h --region nope", "no region of aws"),
    ("bill aws/p4d.24xlarge 24h --save 5min", "is of spot machines"),
    ("bill aws/p4d.24xlarge 24h --interruptions 0.1", "is of spot machines"),
    ("bill aws/p4d.24xlarge 24h --region us-east-1 --price 9usd", "is your own"),
    ("feed imagenet --devices 4", "says nothing without what one device"),
    ("report {plan} --html {page} --device a100", "says nothing of a plan file"),
    ("report {before} --html {page} --task infer", "says nothing of a store"),
    ("report mnist-cnn --device a100 --html {page} --as-of 2026-11-01", "says nothing of a model"),
    ("score {rows} --explain 0 --out {page}", "`--explain` gives one"),
    ("calibrate --list --calibration {calibration} --facts {lab}", "says nothing beside --list"),
    ("run --choice 2 -- true", "no plan has a choice 2"),
    ("train resnet50", "there is no data to train on"),
    ("train resnet50 --data x --optimizer lion", "is no optimizer of"),
    ("train resnet50 --data x --choice 2", "no plan has a choice 2"),
    ("train keras:ResNet50 --data x", "its backend is not said"),
    ("train resnet50 --data x --framework mxnet", "is no framework of"),
    ("train resnet50 --data x --devices 2", "one process for each device"),
    ("train resnet50 --data x --framework jax --window 8", "is of token files"),
    ("train resnet50 --data x --framework jax --processes 2", "in one process"),
    ("train m:f --data x --framework tensorflow --processes 2 --devices 2", "one device each"),
    ("run --budget 5usd -- true", "needs a price"),
    ("run --deadline 5h -- true", "needs the number of steps"),
    ("run --steps 5 -- true", "says nothing without"),
    ("run --detach -- true", "says nothing of a run on this machine"),
    ("run --in /tmp -- true", "says nothing of a run on this machine"),
    ("run --set partition=gpu -- true", "says nothing of a run on this machine"),
    ("run --on slum -- true", "no engine named `slum`"),
)
