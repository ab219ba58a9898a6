"""Goals and numbers that cannot be: refused before anything runs, with what would do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import AS_OF, EXAMPLES, Outcome, assert_refused

# Goals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--deadline", "1us"), 4),
        (("--budget", "0.000001usd"), 4),
        (("--power-limit", "1W"), 4),
        (("--throughput", "1T"), 4),
        (("--device", "a100", "--vendor", "AMD"), 4),
        (("--cloud", "lambda", "--vendor", "AMD"), 4),
        (("--cloud", "nobody"), 2),
        (("--region", "atlantis"), 2),
        (("--samples", "1e30"), 2),
        (("--samples", "10.5"), 2),
        (("--global-batch", "99999999999999999999"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_impossible_goal_says_which_constraint_kills(
    run: Callable[..., Outcome], arguments: tuple[str, ...], status: int
) -> None:
    outcome = run("plan", "resnet50", *arguments, *AS_OF)
    assert outcome.out == ""
    assert outcome.status == status, outcome.err
    assert outcome.err.splitlines()[-1].startswith("hint: ")


def test_a_model_that_fits_nowhere_has_a_status_of_its_own(run: Callable[..., Outcome]) -> None:
    outcome = run(
        "plan", "llama-3-70b", "--device", "l4", "--max-devices", "1", "--tokens", "1B", *AS_OF
    )
    assert outcome.status == 3
    assert "GB" in outcome.err


_OPTION_TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["24h", "0h", "-1h", "1e400h", "nan", "inf", "5usd", "$", "9" * 400, "½h"]),
)


@EXAMPLES
@given(
    option=st.sampled_from(
        [
            "deadline",
            "budget",
            "samples",
            "epochs",
            "confidence",
            "throughput",
            "global_batch",
            "max_devices",
            "pin",
            "objective",
            "precision",
            "device",
            "power_limit",
            "spot",
        ]
    ),
    text=_OPTION_TEXTS,
)
def test_options_of_any_text(option: str, text: str) -> None:
    from paceline.app.requests.plan_request import read_request

    assert_refused(lambda: read_request("resnet50", as_of="2026-11-20", **{option: text}))


# Numbers and names of the measuring and deciding verbs -------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "feed imagenet --rate -1",
        "feed imagenet --rate nan",
        "feed imagenet --rate inf",
        "feed imagenet --rate 100 --devices 0",
        "feed imagenet --measured 0 --rate 100",
        "feed imagenet --cores -3",
        "feed imagenet --workers -1",
        "feed imagenet --storage tape",
        "feed nowhere",
        "feed ./nowhere",
        "feed . --cores 4",
        "feed . --model resnet50",
        "feed . --seconds 0",
        "feed imagenet --check",
        "infer m:f --data . --out o.parquet --batch 0",
        "infer m:f --data . --out o.parquet --runtime tensorrt",
        "infer m:f --data . --out o.parquet --mode fast",
        "feed imagenet --damaged list.txt",
        "fits desktop",
        "own examples/scenarios/purchases.toml --name nobody",
        "ceilings --devices 0",
        "ceilings --threads -2",
        "measure lstm --precision fp7",
        "measure lstm --compiler gcc",
        "measure lstm --seq 0",
        "measure lstm --seconds nan",
        "measure lstm --store /dev/null/store",
        "trace resnet50 --save /dev/null/model.npz",
        "trace resnet50 --save model.txt",
        "plan resnet50 --calibration no-such.json",
        "plan resnet50 --seq 1024",
        "calibrate no-such.csv",
    ],
)
def test_a_value_that_cannot_be_is_refused_before_anything_runs(
    run: Callable[..., Outcome], command: str
) -> None:
    outcome = run(*command.split())
    outcome.assert_helpful()
    assert "[Errno" not in outcome.err


@pytest.mark.parametrize(
    "words", [("--device", "Jetson AGX Orin 64GB"), ("--device-class", "edge")]
)
def test_devices_that_nobody_rents_out_can_be_owned_or_predicted(
    words: tuple[str, str], run: Callable[..., Outcome]
) -> None:
    outcome = run("plan", "resnet50", "--task", "infer", "--latency", "5ms", *words, *AS_OF)
    hint = outcome.err.splitlines()[-1]
    assert outcome.status == 4
    assert "no known offer holds `Jetson AGX" in hint
    assert "--facts" in hint
    command = re.search(r"--device ('[^']+'|\S+?);", hint)
    assert command is not None
    asked = ("predict", "resnet50", "--task", "infer", "--batch", "1", "--device")
    assert run(*asked, command[1].strip("'")).status == 0


def test_a_framework_that_does_not_run_that_way_is_told_apart_from_missing_facts(
    run: Callable[..., Outcome],
) -> None:
    outcome = run("plan", "gpt2", "--framework", "jax", "--compiler", "eager", *AS_OF)
    assert outcome.status == 4
    assert "--framework jax --compiler eager" in outcome.err
    assert "facts are missing" not in outcome.err


def test_all_options_at_the_top_of_a_goal_file_are_told_with_their_sections(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    goal = tmp_path / "goal.yaml"
    goal.write_text("model: vgg16\nepochs: 3\nsamples: 10k\nbudget: 9usd\n")
    outcome = run("plan", str(goal), *AS_OF)
    assert outcome.status == 2
    assert "`samples`, `epochs` under `work:` and `budget` under `goal:`" in outcome.err


@pytest.mark.parametrize(
    ("words", "option"),
    [(("--deadline", "24"), "--deadline"), (("--samples", "0"), "--samples")],
)
def test_a_value_that_cannot_be_names_its_option(
    run: Callable[..., Outcome], words: tuple[str, ...], option: str
) -> None:
    outcome = run("plan", "vgg16", *words, *AS_OF)
    assert outcome.status == 2
    assert option in outcome.err.splitlines()[0]


def test_a_budget_in_thousands_is_the_budget(run: Callable[..., Outcome]) -> None:
    words = ("plan", "vgg16", "--cloud", "Lambda", *AS_OF)
    assert run(*words, "--budget", "0.9k").out == run(*words, "--budget", "900usd").out
    assert run(*words, "--budget", "9kusdx").status == 2
