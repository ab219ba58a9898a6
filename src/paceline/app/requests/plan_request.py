"""What a user asks of the planner, gathered: one road for the command line and the API."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack, get_args

from paceline.app.goal_options import GOAL_OPTIONS, WORK_OPTIONS, PlanOptions
from paceline.app.option_table import option_texts
from paceline.app.progress import progress
from paceline.app.requests.python_files import without_file
from paceline.app.requests.words import read_day, read_word
from paceline.dtypes import is_trainable
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.names.front_ends import usual_software, usual_task
from paceline.reading import stamp_of
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.catalog.entities import Catalog
    from paceline.model.graph.costs import Compiler
    from paceline.model.graph.workload import Workload
    from paceline.model.items import StatedItem
    from paceline.planfile import PlanFile
    from paceline.planning.goal.goal import Goal, Scenario, Work
    from paceline.prediction.calibration.fitted import Calibration

Task = Literal["train", "infer"]
Given = TypeVar("Given", "Goal", "Work")
_GOAL_FILE_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanRequest:
    """A model, a goal, an amount of work, the facts, and the day on which prices are judged.

    ``calibration`` is that of the predictor; the built-in one if None. ``asked_as`` is what the
    user typed for the model, or its name.
    """

    workload: Workload
    goal: Goal
    work: Work
    catalog: Catalog
    today: date
    calibration: Calibration | None = None
    asked_as: str = ""

    def plan(self, plan_file: Path = Path("plan.yaml")) -> PlanFile:
        """The ranked plan.

        Args:
            plan_file: Where it will lie, for the commands that it names.

        Raises:
            NoOfferError: No offer meets the goal.
            DoesNotFitError: The model fits on none of the devices that the goal allows.
        """
        from paceline.planning.forecast.question import SearchOptions
        from paceline.planning.planner import make_plan

        with progress("searching") as advance:
            return make_plan(
                self.workload,
                self.goal,
                self.work,
                self.catalog,
                today=self.today,
                options=SearchOptions(advance=advance),
                calibration=self.calibration,
                asked_as=self.asked_as,
                plan_file=str(plan_file),
            )

    def why_not(self, name: str) -> tuple[str, ...]:
        """Why a device or offer is not first, one sentence each.

        Raises:
            UnknownNameError: Neither a device nor an offer has that name.
            InvalidInputError: No name.
        """
        from paceline.planning.planner import why_not

        if not any(letter.isalnum() for letter in name):
            raise InvalidInputError(
                "no device or offer is named", hint='write --why-not "RTX 4090"'
            )
        return why_not(
            self.workload,
            self.goal,
            self.work,
            self.catalog,
            name,
            today=self.today,
            calibration=self.calibration,
        )


#: Options that only what answers requests has.
_OF_ANSWERS = (
    "rps", "concurrency", "trace", "ttft", "tpot", "prefix_share", "adapters", "speculate",
    "prompt_tokens", "denoising_steps", "guidance", "beams",
)  # fmt: skip
#: Options that only what is trained has.
_OF_TRAINING = ("epochs", "tokens", "global_batch", "optimizer", "checkpointing")
#: How settings begin that only what is trained has.
_REWRITES_OF_TRAINING = (
    "lora_", "frozen", "objective", "checkpointing", "accumulates", "optimizer",
)  # fmt: skip
#: What an option says where it is left out.
_UNSTATED = (None, "none")


def task_and_software(
    model: object, task: str | None, framework: str | None, options: Mapping[str, object]
) -> tuple[str, str | None]:
    """The task and the software as stated, else what the options and the model's file are of.

    Raises:
        UnknownNameError: No software has that name.

    >>> task_and_software("gpt2", None, None, {"rps": 20})
    ('infer', None)
    >>> task_and_software("gpt2", None, "vllm", {}), task_and_software("model.gguf", None, None, {})
    (('infer', 'vllm'), ('infer', 'llamacpp'))
    """
    task = task or _implied_task(framework, options) or usual_task(model)
    return task, framework or usual_software(model, task)


def _implied_task(framework: str | None, options: Mapping[str, object]) -> str | None:
    from paceline.catalog.lookup import split_names
    from paceline.stack.engines import engine_of_format
    from paceline.stack.trainers import loop_of

    if any(options.get(name) not in _UNSTATED for name in _OF_ANSWERS):
        return "infer"
    if any(options.get(name) not in _UNSTATED for name in _OF_TRAINING):
        return "train"
    settings = split_names(str(options.get("rewrite") or ""))
    if any(setting.startswith(_REWRITES_OF_TRAINING) for setting in settings):
        return "train"
    if framework is not None and loop_of(framework).only_answers:
        return "infer"
    names = split_names(str(options.get("precision") or ""))
    is_of_answers = all(engine_of_format(name) or not is_trainable(name) for name in names)
    return "infer" if names and is_of_answers else None


def read_request(
    model: object,
    *,
    task: str | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    facts: Sequence[Path] = (),
    as_of: str | date | None = None,
    calibration: Path | None = None,
    **options: Unpack[PlanOptions],
) -> PlanRequest:
    """Read everything that a plan needs; a mistake in it is found before anything is searched.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.catalog.load import load_catalog
    from paceline.catalog.past import check_priced
    from paceline.planning.goal.options import parse_goal, parse_work

    check_option_names(options, PlanOptions.__annotations__, command="paceline plan --help")
    asked_as = model if isinstance(model, str) else ""
    goal = parse_goal(option_texts(options, GOAL_OPTIONS))
    work = parse_work(option_texts(options, WORK_OPTIONS))
    today = read_day(as_of)
    if isinstance(model, str) and model.endswith(_GOAL_FILE_ENDINGS):
        scenario = _read_scenario(Path(model), goal, work)
        model, goal, work = scenario.model, scenario.goal, scenario.work
        _check_task(task or "train", scenario.task)
        task, seq = scenario.task, seq or scenario.seq
        facts = (*((Path(scenario.facts_file),) if scenario.facts_file else ()), *facts)
    catalog = load_catalog(tuple(facts))
    check_priced(catalog, today)
    stated = {**options, "optimizer": optimizer}
    task, framework = task_and_software(model, task, goal.framework, stated)
    goal = replace(goal, framework=framework)
    workload = load(
        model, task=task, seq=seq, image_size=image_size,
        optimizer=optimizer, python=python, item=work.item, framework=goal.framework,
    )  # fmt: skip
    check_length(workload, seq)
    return PlanRequest(
        workload=workload,
        goal=goal,
        work=work,
        catalog=catalog,
        today=today,
        calibration=read_calibration(calibration),
        asked_as=asked_as,
    )


def check_option_names(
    options: Mapping[str, object], known: Collection[str], *, command: str
) -> None:
    """Refuse a keyword that no option has: it would be a constraint that nobody keeps.

    Raises:
        UnknownNameError: There is one; ``command`` tells which there are.
    """
    for name in options:
        if name not in known:
            raise UnknownNameError.from_name("option", name, known, command=command)


def read_calibration(path: Path | None) -> Calibration | None:
    """The built-in calibration with the user's updates; None without a file.

    Raises:
        InvalidInputError: Not such a file.
    """
    if path is None:
        return None
    return _updated(path, stamp_of(path))


@lru_cache(maxsize=2)
def _updated(path: Path, _stamp: tuple[int, int]) -> Calibration:
    """One object as long as the file stays what it is: searches know their costs by it."""
    from paceline.prediction.calibration.fitted import builtin_calibration
    from paceline.prediction.calibration.from_measurements import read_updates

    return read_updates(builtin_calibration(), path)


def _read_scenario(path: Path, goal: Goal, work: Work) -> Scenario:
    """A goal file, with what was also given as options in place of what it says."""
    from paceline.planning.goal.scenarios import read_scenario

    scenario = read_scenario(path)
    return replace(
        scenario, goal=_overlaid(scenario.goal, goal), work=_overlaid(scenario.work, work)
    )


def _check_task(asked: str, written: str) -> None:
    if asked not in ("train", written):
        raise InvalidInputError(
            f"`--task {asked}`, and the goal file says {written}",
            hint="change `task` in the file, or leave --task out",
        )


def _overlaid(base: Given, given: Given) -> Given:
    """``base`` with every field of ``given`` that is not the default."""
    default = type(given)()
    changes = {
        field.name: getattr(given, field.name)
        for field in fields(given)
        if getattr(given, field.name) != getattr(default, field.name)
    }
    return replace(base, **changes)


def load(
    model: object,
    *,
    task: str = "train",
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    item: StatedItem | None = None,
    framework: str | None = None,
) -> Workload:
    """The traced model, with a line of progress where that takes longer than a moment.

    It is written as the framework writes it, where that has models of its own.

    With what is stated of an item, its items are what people mean; else they are those of a pass.
    A workload that was loaded before is taken as it is.

    Raises:
        PacelineError: The model cannot be traced, or has no length, or nothing that is trained, but
            is given one.
    """
    from paceline.model.graph.workload import Workload
    from paceline.model.items import as_items
    from paceline.model.names.lookup import hub_entry_of
    from paceline.model.reading.load import load_workload
    from paceline.stack.trainers import builds_hub_models

    if isinstance(model, Workload):
        return model
    model = without_file(model)
    if isinstance(model, str) and framework is not None and builds_hub_models(framework):
        model = hub_entry_of(model)
    _check_python(model, python, read_task(task), image_size)
    if optimizer is not None and task == "infer":
        raise InvalidInputError(
            f"nothing is trained, and `--optimizer {optimizer}` would change nothing",
            hint="leave --optimizer out; `--task train` trains",
        )
    with progress(f"tracing {model if isinstance(model, str) else type(model).__name__}"):
        workload = load_workload(
            model,
            task=read_task(task),
            seq=seq,
            image_size=image_size,
            optimizer=optimizer,
            python=python,
        )
    _check_optimizer(workload, optimizer)
    if seq is not None and workload.default_seq <= 1:
        raise InvalidInputError(
            f"{workload.title} reads {workload.sample_unit}, which have no sequence length",
            hint="leave --seq out",
        )
    if item is None:
        return workload
    guesser = item.speculation.model if item.speculation is not None else ""
    draft = load(guesser, task="infer", python=python) if guesser else None
    return as_items(workload, item, typed=str(model), draft=draft)


def python_for(model: str, python: str | None, task: str) -> str | None:
    """The Python named for several models, where this one is traced."""
    from paceline.model.reading.load import is_traced

    return python if is_traced(model, task=read_task(task)) else None


def check_python_used(python: str | None, used: Sequence[str | None]) -> None:
    """Refuse a Python that none of several models is traced in.

    Raises:
        InvalidInputError: One is named.
    """
    if python is not None and not any(used):
        raise _unused_python(python)


def _unused_python(python: str) -> InvalidInputError:
    return InvalidInputError(
        f"`--python {python}` says nothing here: no model is traced in it",
        hint="leave --python out: the graph is there already",
    )


def _check_python(model: object, python: str | None, task: Task, image_size: int | None) -> None:
    """Refuse a Python in which nothing is run."""
    from paceline.model.reading.load import is_traced

    if python is None:
        return
    if not isinstance(model, str) or not is_traced(model, task=task, image_size=image_size):
        raise _unused_python(python)


def _check_optimizer(workload: Workload, optimizer: str | None) -> None:
    """Refuse an optimizer in place of the one that the model's own code calls."""
    from paceline.model.rewrite.optimizer import find_optimizer

    if optimizer is not None and find_optimizer(optimizer).name != workload.optimizer:
        raise InvalidInputError(
            f"{workload.title} calls its own optimizer, {workload.optimizer}, and "
            f"`--optimizer {optimizer}` would change nothing",
            hint="leave --optimizer out, or change it in the model's code",
        )


def check_length(workload: Workload, seq: int | None) -> None:
    """Refuse the length of a sequence where a prompt and its answer have theirs.

    Raises:
        InvalidInputError: One is given.
    """
    from paceline.planning.goal.amounts import is_generation

    if seq is not None and is_generation(workload) and not workload.has_fixed_length:
        raise InvalidInputError(
            f"`--seq {seq}` says nothing here: {workload.title} answers prompts",
            hint=f"give --prompt-tokens {seq}, and --output-tokens for the answer",
        )


#: What people call a task, by what says it here.
_TASKS = {
    ("dpo", "kto", "grpo", "ppo"): "--rewrite objective={}",
    ("lora", "qlora"): "--rewrite lora_rank=16, with frozen_weights=int4 for QLoRA",
    ("finetune", "finetuning", "fine-tune", "sft", "pretrain", "pretraining"): "--task train",
    ("serve", "serving", "generate", "inference"): "--task infer",
}


def read_task(text: str) -> Task:
    """The task of that name.

    Raises:
        UnknownNameError: Neither ``train`` nor ``infer``.
    """
    meant = next((how for words, how in _TASKS.items() if text.lower() in words), None)
    if meant is not None:
        raise UnknownNameError(
            f"no task named `{text}`", hint=f"write {meant.format(text.lower())}"
        )
    return read_word(text, get_args(Task), "task", command="paceline plan --help")


def read_compiler(text: str) -> Compiler:
    """The compiler of that name.

    Raises:
        UnknownNameError: No such compiler.
    """
    from paceline.model.graph.costs import Compiler

    return read_word(text, get_args(Compiler), "compiler", command="paceline predict --help")
