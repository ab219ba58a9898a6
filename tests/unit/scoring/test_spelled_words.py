"""How published tables spell number formats and frameworks.

Each table holds a spelling and what it must mean; an empty precision is one that must not be
answered, since no such format is modelled or the words name two.
"""

import csv
from pathlib import Path

import pytest

from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.readings import read_job
from paceline.scoring.rows import parse_row

ROW = {"model": "resnet50", "task": "infer", "gpu": "A100", "batch_per_gpu": "8"}


def survey(name):
    return list(csv.DictReader(Path(__file__).with_name(name).read_text("utf-8").splitlines()))


def job(**given):
    return read_job(parse_row(ROW | {"framework": "PyTorch", "precision": "fp32"} | given))


def precision_or_none(spelling):
    try:
        return job(precision=spelling).configuration.precision
    except UnresolvedRowError:
        return ""


def test_a_spelling_means_its_format_and_no_other():
    lines = survey("spelled_precisions.csv")
    meant = {line["spelling"]: precision_or_none(line["spelling"]) for line in lines}
    assert meant == {line["spelling"]: line["precision"] for line in lines}


def test_a_spelling_means_its_host_and_compiler():
    lines = survey("spelled_frameworks.csv")
    found = {one["spelling"]: job(framework=one["spelling"], precision="fp16") for one in lines}
    meant = {name: (one.framework, one.configuration.compiler) for name, one in found.items()}
    assert meant == {one["spelling"]: (one["framework"], one["compiler"]) for one in lines}
    assert [name for name, one in found.items() if one.assumed] == []


def test_tf32_that_is_off_stays_fp32_where_a_release_turns_it_on():
    release = "TensorFlow 2.10"
    assert job(framework=release).configuration.precision == "tf32"
    assert job(framework=release, precision="fp32 (tf32 off)").configuration.precision == "fp32"


def test_a_precision_may_stand_in_the_flags_or_in_the_name_of_the_model():
    assert job(precision="", compiler_flags="nhwc; amp").configuration.precision == "fp16"
    name = "Qwen/Qwen2.5-7B-Instruct-AWQ"
    assert job(precision="", model=name).configuration.precision == "int4"
    assert job(precision="bfloat16", model=name).configuration.precision == "int4"
    with pytest.raises(UnresolvedRowError, match="no precision"):
        job(precision="", compiler_flags="nhwc")


def test_xla_that_is_off_is_not_xla():
    for flags in ("XLA off", "no XLA", "xla=false"):
        found = job(framework="TensorFlow 1.15", compiler_flags=flags)
        assert found.configuration.compiler == "eager"
    assert job(framework="TensorFlow 1.15", compiler_flags="XLA").configuration.compiler == "xla"
