"""What a message tells the user to type must exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from refusals import Outcome

import paceline
from paceline.app.main import build_commands, main
from paceline.app.option_hints import MEANT
from paceline.errors import UnknownNameError

Run = Callable[..., Outcome]
_PACKAGE = Path(paceline.__file__).parent
#: A command in backquotes, or alone in a string.
_COMMAND = re.compile(r"(?:`|^)paceline ([a-z]+[^`\n]*)(?:`|$)")

#: What a file has somewhere that tells one; the others need not be parsed.
_TELLS = re.compile(r"[`'\"]paceline [a-z]")


def commands_told() -> Iterator[tuple[str, str]]:
    """Every command that a string of the package tells, with the file that tells it."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if _TELLS.search(text) else "")):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in _COMMAND.finditer(node.value):
                    yield str(path.relative_to(_PACKAGE)), found[1]


@pytest.fixture(scope="module")
def known() -> click.Group:
    return build_commands()


def unknown_words(commands: click.Group, told: str) -> list[str]:
    """The verb and the options of a command that the program does not have."""
    words = re.sub(r"'[^']*'", "QUOTED", told.partition(" -- ")[0]).split()
    command: click.Command = commands
    while isinstance(command, click.Group) and words:
        verb = words.pop(0)
        if verb.startswith("-") or verb.isupper():
            break
        if words and f"{verb} {words[0]}" in command.commands:
            verb = f"{verb} {words.pop(0)}"
        if verb not in command.commands:
            return [verb]
        command = command.commands[verb]
    flags = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    return [word for word in words if word.startswith("--") and word.strip("…,") not in flags]


def test_every_command_that_a_message_names_exists(known: click.Group) -> None:
    told = list(commands_told())
    assert len(told) > 50
    assert [(path, text) for path, text in told if unknown_words(known, text)] == []


def test_a_name_of_a_short_list_is_answered_with_the_list() -> None:
    error = UnknownNameError.from_name("storage", "tape", ["nvme", "hdd"])
    assert error.hint == "known are: nvme, hdd"


@pytest.mark.parametrize("folder", ["plain", "with a space"])
def test_what_comes_next_names_the_files_that_the_user_named(tmp_path: Path, folder: str) -> None:
    here = tmp_path / folder
    here.mkdir()
    model, plan = here / "mine.npz", here / "mine.yaml"
    assert main(["trace", "mnist-cnn", "--save", str(model)]) == 0
    words = ("--samples", "1M", "--epochs", "9", "--cloud", "aws", "-o", str(plan))
    assert main(["plan", str(model), *words]) == 0
    deploy, why_not = paceline.read_plan(plan).next_commands
    assert shlex.split(deploy)[:3] == ["paceline", "deploy", str(plan)]
    assert shlex.split(why_not)[:3] == ["paceline", "plan", str(model)]
    assert main([*shlex.split(deploy)[1:], "--dry-run"]) == 0


def test_a_goal_file_is_named_again(tmp_path: Path) -> None:
    goal = tmp_path / "goal.yaml"
    goal.write_text("model: mnist-cnn\ngoal: {deadline: 1h, cloud: lambda}\n")
    plan = paceline.plan(str(goal), as_of="2026-11-20")
    assert f"paceline plan {goal} " in plan.next_commands[1]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("plan gpt2 --lora 16", "`--rewrite lora_rank=16`"),
        ("plan gpt2 --lora-rank 16", "`--rewrite lora_rank=16`"),
        ("plan gpt2 --freeze wte", "`--rewrite`"),
        ("plan gpt2 --dedline 1h", "`--deadline`"),
        ("plan gpt2 --isl 100", "`--prompt-tokens N`"),
        ("plan gpt2 --max-new-tokens 100", "`--output-tokens N`"),
        ("plan gpt2 --tp 2", "`--pin strategy=tpN`"),
        ("plan gpt2 --load_in_4bit", "`--precision int4`"),
        ("plan gpt2 --conf 0.9", "`--confidence`"),
        ("plan gpt2 --p95 50ms", "`--latency TIME`"),
    ],
)
def test_an_unknown_option_leads_to_one_that_speaks_of_it_or_is_spelt_like_it(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    hint = capsys.readouterr().err.splitlines()[-1]
    assert meant in hint
    assert "`paceline plan --help`" in hint


def test_a_word_that_takes_no_flag_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offers", "--device", "4090"]) == 2
    assert "`paceline offers DEVICE`" in capsys.readouterr().err


def test_how_many_are_bought_stands_before_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["own", "h100", "--count", "8"]) == 2
    assert "`paceline own '8x NAME'`" in capsys.readouterr().err


def test_each_option_of_other_tools_leads_to_one_that_some_verb_has() -> None:
    verbs = build_commands().commands.values()
    flags = {flag for verb in verbs for option in verb.params for flag in option.opts}
    meant = {one.partition(" ")[0] for ways in MEANT.values() for one in ways}
    assert meant <= flags


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("scale gpt2 --devices 8", "--counts"),
        ("plan gpt2 --devices 8", "--max-devices"),
        ("predict gpt2 --counts 8", "--devices"),
    ],
)
def test_each_verb_has_a_word_of_its_own_for_how_many(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    assert f"write `{meant} N`" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["predict gpt2 --device", "plan gpt2 --as-of", "bill x"])
def test_a_missing_value_leads_to_the_help_of_its_verb(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    assert f"`paceline {typed.split()[0]} --help`" in capsys.readouterr().err


def test_few_names_are_told_where_none_is_near_and_many_are_listed_by_a_command() -> None:
    few, many = ("eager", "compiled"), tuple(f"name{n}" for n in range(50))
    told = UnknownNameError.from_name("compiler", "gcc", few, command="paceline plan --help")
    assert all(name in told.hint for name in few)
    near = UnknownNameError.from_name("compiler", "eagr", few, command="paceline plan --help")
    assert near.hint.startswith("did you mean `eager`?")
    listed = UnknownNameError.from_name("device", "gcc", many, command="paceline devices")
    assert listed.hint == "list them with `paceline devices`"
    none = UnknownNameError.from_name("option", "--jsn", (), command="paceline stack --help")
    assert none.hint == "list them with `paceline stack --help`"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("scale resnet50 --device a100 --batch few", "'few' is not a whole number"),
        ("bill aws/p5.48xlarge 2h --interruptions few", "'few' is not a number"),
        ("diagnose", "`paceline diagnose -- python train.py`"),
        ("run", "`paceline run -- python train.py`"),
    ],
)
def test_a_message_has_the_words_and_the_verb_of_who_asked(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("predict", "gpt2", "--gpu", "a100"), "--device NAME"),
        (("predict", "gpt2", "--num_gpus", "8"), "--devices N"),
        (("scale", "gpt2", "--gpus", "8"), "--counts N"),
        (("plan", "gpt2", "--qlora"), "--rewrite lora_rank=16,frozen_weights=int4"),
        (("predict", "gpt2", "--per_device_train_batch_size", "8"), "--batch N"),
        (("predict", "gpt2", "--tensor-parallel-size", "2"), "--devices N"),
        (("predict", "gpt2", "--seq", "8k"), "8192 or 8000"),
    ],
)
def test_an_option_of_another_tool_is_told_what_says_the_same(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    done = run(*words)
    done.assert_helpful()
    assert said in done.err


@pytest.mark.parametrize(
    ("task", "told"),
    [("dpo", "objective=dpo"), ("QLoRA", "lora_rank"), ("sft", "--task train"), ("serve", "infer")],
)
def test_what_people_call_a_task_is_told_as_it_is_said_here(task: str, told: str, run: Run) -> None:
    outcome = run("predict", "gpt2", "--device", "t4", "--task", task)
    assert outcome.status == 2
    assert told in outcome.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("predict vgg16 --strategy fsdp", "write `--sharding zero3`"),
        ("plan vgg16 --parallelism fsdp", "write `--strategies fsdp,tp`"),
        ("predict vgg16 --epochs 3", "`paceline plan`, `paceline scale` and"),
        ("bill aws/p5.48xlarge 2h --speculate x", "`paceline plan` and `paceline predict` take"),
    ],
)
def test_an_option_of_another_verb_leads_to_its_own_word_or_to_that_verb(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("timn:resnet34", "`timm:resnet34`"),
        ("publised_segments:pspnet_resnet50", "`published_segments:pspnet_resnet50`"),
    ],
)
def test_a_misspelt_source_of_models_leads_to_the_model(typed: str, meant: str, run: Run) -> None:
    outcome = run("predict", typed, "--device", "t4")
    assert outcome.status == 2
    assert f"did you mean {meant}?" in outcome.err


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("run train.py", "paceline run -- python train.py"),
        ("run plan.yaml train.sh -v", "paceline run plan.yaml -- bash train.sh -v"),
        ("diagnose --limit 30s ls", "paceline diagnose --limit 30s -- ls"),
    ],
)
def test_a_command_without_its_dashes_is_shown_with_them(typed, written, capsys) -> None:
    assert main(typed.split()) == 2
    assert written in capsys.readouterr().err
