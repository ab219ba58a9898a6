"""What a user asks of the predictor, made into devices, counts and batches of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paceline.app.requests.plan_request import check_length, read_calibration, read_compiler
from paceline.catalog.entities import Catalog, Device
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device, parse_device_count, split_names, variant_note
from paceline.errors import DoesNotFitError, InvalidInputError, MissingFactError, PacelineError
from paceline.model.graph.costs import Checkpointing
from paceline.model.graph.workload import Workload
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import SEARCHED_SHARDINGS, Sharding
from paceline.planning.effects import check_effects
from paceline.planning.forecast.grid import GridCell, PredictionGrid, grid_of
from paceline.planning.forecast.grid_jobs import (
    MAX_DEVICES_PER_MACHINE,
    MAX_SERVING_DEVICES,
    UNSTATED_SHARDINGS,
    GridAxes,
    GridCases,
    grid_cases,
)
from paceline.planning.forecast.largest_batch import largest_batches, largest_cells, row_of_cell
from paceline.planning.goal.applicable import check_requests
from paceline.planning.goal.chance import chance_text
from paceline.planning.goal.goal import Goal, Work, named_precisions
from paceline.planning.goal.options import parse_work
from paceline.planning.goal.rewrites import (
    OF_A_PREDICTION,
    check_rewrite,
    habit_words,
    run_words,
    table_words,
    usual_words,
)
from paceline.planning.goal.service import service_of
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.simulation.cases import Cases
from paceline.simulation.queue.load import (
    NUM_REQUESTS,
    Arrivals,
    Lengths,
    Load,
    read_trace,
)
from paceline.simulation.simulator import simulate
from paceline.stack.engines import USUAL_LOOP
from paceline.stack.trainers import loop_of
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.app.requests.remedies import Remedy

#: Batches tried where the user names none.
_LADDER = (1, 4, 16, 64, 256, 1024)
_FINE_LADDER = tuple(2**power for power in range(11))
_MAX_BATCH = 1_000_000_000
_MOST_BATCHES = 64
_MOST_IN_FLIGHT = 20_000
#: How a plain loop runs where the user does not say.
_COMPILERS = ("eager",)
#: What devices of a training job may be asked to split; `auto` is what fits.
SHARDINGS: tuple[Sharding | Literal["auto"], ...] = ("auto", *SEARCHED_SHARDINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Where and how a model is to be predicted; see `paceline.app.api.planning.predict`.

    Attributes:
        takes_largest: Whether each device, count and way is asked at the largest batch that it
            holds, instead of at ``batches``.
    """

    device: str | None
    batches: tuple[int, ...]
    counts: tuple[int, ...]
    takes_largest: bool = False
    seq: int | None = None
    precision: str | None = None
    compiler: str | None = None
    framework: str | None = None
    checkpointing: Checkpointing = "none"
    rewrite: str = ""
    sharding: Sharding | Literal["auto"] = "auto"
    work: Work = field(default_factory=Work)
    trace: Path | None = None
    facts: tuple[Path, ...] = ()
    calibration: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """The devices that were meant, and what had to be assumed to know that."""

    devices: tuple[Device, ...]
    counts: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedGrid:
    """A question as jobs on machines, with what its answer says beside their steps."""

    question: Question
    where: _Where
    grid: GridCases
    calibration: Calibration

    @property
    def cases(self) -> Cases:
        """What to simulate."""
        return self.grid.cases

    def answer(self, steps: Steps) -> PredictionGrid:
        """What is said of the steps of the cases.

        Raises:
            PacelineError: What was asked cannot be, or changes none of the steps.
        """
        steps.check_asked()
        check_effects(self.grid, steps, self.calibration)
        question, where = self.question, self.where
        grid = grid_of(self.grid, steps, self.calibration.name)
        if (asked := _load(question, self.grid.workload)) is not None:
            grid = self._with_services(grid, asked)
        is_named = question.device is not None
        notes = (
            *filter(None, (self.grid.workload.reading,)),
            *_left_out(question, self.grid.workload),
            *_notes(question, self.grid),
        )
        is_ladder = not question.batches and is_named
        shown = largest_cells if question.takes_largest else _trimmed
        return replace(
            grid,
            cells=tuple(shown(grid.cells)) if is_ladder else grid.cells,
            assumptions=(*notes, *grid.assumptions, *where.notes),
            remedies=_remedies(self, grid) if is_named else (),
        )

    def _with_services(self, grid: PredictionGrid, asked: Load) -> PredictionGrid:
        from paceline.planning.forecast.services import check_served, service_cells

        question = self.question
        trace = None if question.trace is None else read_trace(question.trace)
        if trace is not None:
            prompt, output = (
                Lengths(mean=max(float(tokens.mean()), 1.0))
                for tokens in (trace.prompt_tokens, trace.output_tokens)
            )
            asked = replace(asked, prompt=prompt, output=output, num_requests=len(trace))
        cells = service_cells(self.cases, asked, trace=trace, calibration=self.calibration)
        check_served(cells, asked)
        return replace(grid, services=cells, load=_load_words(question, asked))


def _load(question: Question, workload: Workload) -> Load | None:
    """The requests that a question asks of a service; None where it asks for batches.

    Raises:
        InvalidInputError: They come in two ways, or cannot come so.
    """
    work, spread = question.work.of(workload), question.work.length_spread or 0.0
    stated = {
        "--rps": work.requests_per_s, "--concurrency": work.concurrency, "--trace": question.trace
    }  # fmt: skip
    given = [name for name, value in stated.items() if value is not None]
    if not given:
        if spread:
            raise InvalidInputError(
                "`--spread` says nothing without requests", hint="add --rps 20 or --concurrency 8"
            )
        return None
    if len(given) > 1:
        raise InvalidInputError(
            f"`{given[0]}` and `{given[1]}` are two ways for requests to come",
            hint="give one of --rps, --concurrency and --trace",
        )
    concurrency = work.concurrency
    if concurrency is not None and not 1 <= concurrency <= _MOST_IN_FLIGHT:
        raise InvalidInputError(
            f"{concurrency:,} requests in flight cannot be simulated",
            hint=f"give 1 to {_MOST_IN_FLIGHT:,}",
        )
    arrivals: dict[str, Arrivals] = {"--rps": "poisson", "--concurrency": "closed"}
    if workload.task != "infer":
        raise InvalidInputError(
            f"`{given[0]}` is of requests that are answered, and {workload.title} is trained here",
            hint="add --task infer",
        )
    one = Lengths(mean=1.0)
    is_queued = workload.generates and service_of(_goal(question), workload) is not None
    if not is_queued and question.trace is not None:
        raise InvalidInputError(
            f"`--trace` has tokens, and {workload.title} is answered in whole batches here",
            hint="give --rps or --concurrency",
        )
    return Load(
        arrivals=arrivals.get(given[0], "at-once"),
        prompt=Lengths(mean=work.prompt_length, spread=spread) if is_queued else one,
        output=Lengths(mean=work.output_length, spread=spread) if is_queued else one,
        rate_per_s=work.requests_per_s,
        concurrency=concurrency,
        num_requests=NUM_REQUESTS if concurrency is None else max(6 * concurrency, 32),
    )


def _load_words(question: Question, asked: Load) -> str:
    lengths = f"{asked.prompt.mean:,.0f} tokens in, {asked.output.mean:,.0f} out"
    if asked.prompt.mean == asked.output.mean == 1.0:
        lengths = "answered in batches of those that wait"
    rate = question.work.requests_per_s
    spread = f" (spread {asked.prompt.spread:g})" if asked.prompt.spread else ""
    if question.trace is not None:
        return f"{asked.num_requests:,} requests of {question.trace.name}, in the mean {lengths}"
    if rate is not None:
        return f"{rate:g} requests/s by themselves (Poisson), each {lengths}{spread}"
    return f"{asked.concurrency} requests in flight, each {lengths}{spread}"


def read_question(question: Question, workload: Workload) -> AskedGrid:
    """List the jobs of a question.

    Raises:
        UnknownNameError: No such device, precision, compiler or setting.
        InvalidInputError: A batch, count or setting that cannot be.
    """
    check_rewrite(question.rewrite, OF_A_PREDICTION)
    check_length(workload, question.seq)
    if question.checkpointing != "none" and "checkpointing" in question.rewrite:
        raise InvalidInputError(
            f"`--checkpointing {question.checkpointing}` and `--rewrite {question.rewrite}` both "
            "say what is recomputed",
            hint="leave one of them out",
        )
    if workload.task == "infer" and question.sharding not in UNSTATED_SHARDINGS:
        raise InvalidInputError(
            f"`--sharding {question.sharding}` splits what training keeps, and nothing is trained",
            hint="leave --sharding out; `--task train` trains",
        )
    catalog = load_catalog(question.facts)
    where = _everywhere(catalog) if question.device is None else _named(catalog, question)
    asked = _asked(question, workload, catalog, where)
    return _at_largest(asked) if question.takes_largest else asked


def _at_largest(asked: AskedGrid) -> AskedGrid:
    """The same question at the largest batches that fit."""
    if asked.question.device is None:
        raise InvalidInputError(
            "`--batch max` is of a device, and none is named", hint="add --device a100,4090"
        )
    if asked.grid.axes.has_load:
        raise InvalidInputError(
            "an engine chooses its batch by the requests that come",
            hint="leave --batch max out, or the requests",
        )

    def cells_at(batches: Sequence[int]) -> tuple[GridCell, ...]:
        """Cells of the same question at other batches."""
        grid = asked.grid.along(replace(asked.grid.axes, batches=batches))
        steps = simulate(grid.cases, calibration=asked.calibration)
        return grid_of(grid, steps, asked.calibration.name).cells

    axes = replace(asked.grid.axes, batches=largest_batches(cells_at))
    return replace(asked, grid=asked.grid.along(axes))


def no_figure(grid: PredictionGrid, *, is_ranking: bool) -> PacelineError | None:
    """The failure of a prediction that leaves a question open; else None.

    A device that was named has no figure, or nothing fits anywhere. A ranking says which devices
    it leaves out, and fails where it has none at all.

    ``is_ranking``: whether no device was named.
    """
    silent = _silent(grid)
    if silent and not (is_ranking and grid.cells):
        name, reason = silent[0]
        others = len(silent) - 1
        more = f" ({others} more have none either)" if others else ""
        return MissingFactError(
            f"no answer: {name}: {reason}{more}",
            hint="name another device, as `paceline devices` lists them, or ask for what it runs; "
            "a rate that you know can be stated with --facts (docs/how-to/own-devices.md)",
        )
    if not grid.cells or any(cell.status != "out of memory" for cell in grid.cells):
        return None
    nearest = min(grid.cells, key=lambda c: c.memory_bytes.mid / c.memory_capacity_bytes)
    hint = "name devices with more memory, a smaller --batch, or run it another way (--rewrite)"
    return DoesNotFitError(
        f"nothing fits: {grid.title} at batch {nearest.batch_per_device} on {nearest.device} "
        f"{nearest.reason}",
        hint="see the remedies in the answer" if grid.remedies else hint,
    )


def _silent(grid: PredictionGrid) -> list[tuple[str, str]]:
    """Devices without a figure that memory does not explain, and why."""
    unsure: dict[str, str] = {}
    for cell in grid.cells:
        if cell.status == "abstained":
            unsure.setdefault(cell.device, cell.reason)
    told = {cell.device for cell in grid.cells if cell.status != "abstained"}
    return [
        *((one.device, one.reason) for one in grid.unanswered),
        *((name, reason) for name, reason in unsure.items() if name not in told),
    ]


def stated_work(options: Mapping[str, object]) -> Work:
    """What is stated of requests and items, by the name of its option; None was not given.

    Raises:
        InvalidInputError: A value that cannot be.
    """
    keys = {"prompt_tokens": "prompt", "output_tokens": "output"}
    return parse_work(
        {
            keys.get(name, name.replace("_", "-")): str(value)
            for name, value in options.items()
            if value is not None and name != "trace"
        }
    )


def _asked(question: Question, workload: Workload, catalog: Catalog, where: _Where) -> AskedGrid:
    is_ranking = question.device is None
    ladder = _FINE_LADDER if is_ranking else _LADDER
    work = replace(question.work, requests_per_s=None, concurrency=None, length_spread=None)
    check_requests(work, workload)
    axes = GridAxes(
        devices=where.devices,
        counts=_checked(
            _answered(question.counts, _most_devices(workload)) or where.counts,
            "device count",
            _most_devices(workload),
        ),
        batches=_checked(question.batches or ladder, "batch", _MAX_BATCH),
        seq=question.seq,
        keeps_best_batch_only=is_ranking,
        checkpointing=question.checkpointing,
        rewrite=question.rewrite,
        sharding=question.sharding,
        loop_compilers=_COMPILERS,
        takes_unreleased=not is_ranking,
        has_load=_load(question, workload) is not None,
    )
    return AskedGrid(
        question=question,
        where=where,
        grid=grid_cases(workload, _goal(question), work, catalog, axes),
        calibration=read_calibration(question.calibration) or builtin_calibration(),
    )


def _remedies(asked: AskedGrid, grid: PredictionGrid) -> tuple[str, ...]:
    question, catalog = asked.question, asked.grid.catalog
    stuck = _stuck(grid.cells)
    if not stuck:
        return ()
    from paceline.app.requests.remedies import remedy_lines

    def evaluate(remedy: Remedy, name: str, batches: Sequence[int]) -> Sequence[GridCell]:
        """The cells that the question has with one remedy; none where it has no answer."""
        changed = replace(
            question,
            batches=tuple(batches),
            counts=(remedy.count,),
            precision=remedy.precision or question.precision,
            rewrite=",".join(filter(None, (question.rewrite, remedy.rewrite))),
            checkpointing="none" if "checkpointing" in remedy.rewrite else question.checkpointing,
            sharding=remedy.sharding,
        )
        where = _Where(devices=(find_device(catalog, name),), counts=(remedy.count,), notes=())
        try:
            other = _asked(changed, asked.grid.workload, catalog, where)
            steps = simulate(other.cases, calibration=other.calibration)
            return grid_of(other.grid, steps, other.calibration.name).cells
        except PacelineError:
            return ()

    workload = asked.grid.workload
    lines = remedy_lines(workload.task, stuck, evaluate, rewrite=question.rewrite)
    return (*_fewer_adapters(workload), *lines)


def _fewer_adapters(workload: Workload) -> Iterator[str]:
    """What to say of adapters that a device holds at once, where it holds several."""
    adapters = workload.adapters
    if adapters is not None and adapters.held > 1:
        fewer = replace(adapters, loaded=min(8, adapters.held // 2))
        yield f"hold fewer adapters at once, and let requests wait: --adapters {fewer}"


def _stuck(cells: Sequence[GridCell]) -> list[GridCell]:
    """Cells of the devices on which nothing fits."""
    fitting = {cell.device for cell in cells if cell.status != "out of memory"}
    return [cell for cell in cells if cell.device not in fitting]


def _goal(question: Question) -> Goal:
    """The precisions and compilers that are asked for."""
    compilers = tuple(read_compiler(name) for name in _names(question.compiler or ""))
    precisions = named_precisions(_names(question.precision or ""))
    return Goal(
        compilers=compilers,
        precisions=precisions,
        framework=question.framework,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _host_words(grid: GridCases) -> str:
    """Whose processors update what is kept on the host."""
    counts = [place.num_vcpus for place in grid.places]
    if None in counts:
        return "as fast as those of one machine that DeepSpeed was measured on"
    told = ", ".join(dict.fromkeys(f"{count:,}" for count in counts))
    return f"{told} vCPUs, as machines for rent have for so many devices"


def _notes(question: Question, grid: GridCases) -> Iterator[str]:
    if question.checkpointing != "none":
        yield f"recomputed in backward: {question.checkpointing}"
    usual = usual_words(
        question.framework,
        question.rewrite,
        is_training=grid.workload.task == "train",
        leaving=() if question.checkpointing == "none" else ("checkpointing",),
    )
    habits = next((job.habits for job in grid.cases.jobs if job.habits), ())
    tables = table_words(grid.workload, question.rewrite)
    yield from filter(None, (tables, usual, habit_words(question.framework, habits)))
    if question.rewrite:
        yield run_words(question.rewrite)
    if question.takes_largest:
        chance = chance_text(grid.goal.memory_confidence)
        yield f"the largest batch that fits at a chance of {chance}, within 1 %"
    if any(f"offload={what}" in question.rewrite for what in ("optimizer", "weights")):
        yield f"the update is of the host's processors, {_host_words(grid)}"
    if "offload=weights" in question.rewrite and question.sharding == "zero3":
        yield "shares of weights come from the host before each gather; of gradients, go there"
    if question.sharding not in UNSTATED_SHARDINGS:
        yield f"devices share the training state ({question.sharding})"
    is_eager = any(
        not one.configuration.is_served and one.configuration.compiler == "eager"
        for one in grid.configured
    )
    loop = loop_of(question.framework or USUAL_LOOP)
    if is_eager and not loop.is_own and (question.compiler or "eager") == "eager":
        is_usual = loop.framework == USUAL_LOOP
        better = "compiled for torch.compile" if is_usual else "xla compiles it"
        yield f"eager execution (--compiler {better})"
    if question.framework is None and any(
        one.configuration.compiler == "tensorrt" for one in grid.configured
    ):
        yield "convolutions in 8 bits by TensorRT, as PyTorch compiles none there"
    is_told = "channels_last" in question.rewrite
    has_pictures = "pictures of" in grid.workload.input_description
    has_pictures |= grid.workload.sample_unit == "images"
    if is_eager and loop.framework == USUAL_LOOP and not is_told and has_pictures:
        yield "images stored channels last, as PyTorch must be told (--rewrite channels_last=no)"


def _everywhere(catalog: Catalog) -> _Where:
    return _Where(devices=catalog.devices, counts=(1,), notes=())


def _named(catalog: Catalog, question: Question) -> _Where:
    names = split_names(question.device or "")
    if not names:
        raise InvalidInputError("no device is named", hint="write --device a100,4090")
    parsed = [parse_device_count(name) for name in names]
    devices = [find_device(catalog, name) for name, _ in parsed]
    notes = [
        note
        for (name, _), device in zip(parsed, devices, strict=True)
        if (note := variant_note(catalog, name, device))
    ]
    counts = sorted({count for _, count in parsed})
    distinct = {device.name: device for device in devices}
    return _Where(devices=tuple(distinct.values()), counts=tuple(counts), notes=tuple(notes))


def _most_devices(workload: Workload) -> int:
    """Of one machine, or of those among which a served model may be staged."""
    return MAX_SERVING_DEVICES if workload.generates else MAX_DEVICES_PER_MACHINE


def _answered(counts: Sequence[int], most: int) -> tuple[int, ...]:
    """The counts that are answered; all of them, to be refused, where none can be."""
    held = tuple(count for count in counts if count <= most)
    return held if held and min(held) > 0 else tuple(counts)


def _left_out(question: Question, workload: Workload) -> Iterator[str]:
    """Which of the counts that were asked for are no machine, and who answers for them."""
    more = sorted(set(question.counts) - set(_answered(question.counts, _most_devices(workload))))
    if more:
        listed = ", ".join(f"{count:,}" for count in more)
        verb = (
            f"`paceline scale MODEL --device NAME --counts {listed.replace(' ', '')}`"
            if workload.task == "train"
            else f"`paceline plan MODEL --task infer --max-devices {max(more)}`"
        )
        yield f"{listed} devices are several machines, which {verb} answers"


def _checked(numbers: Sequence[int], what: str, most: int) -> tuple[int, ...]:
    wrong = [number for number in numbers if not 1 <= number <= most]
    if wrong:
        raise InvalidInputError(
            f"a {what} of {wrong[0]:,} cannot be predicted", hint=_range_hint(most)
        )
    if len(set(numbers)) > _MOST_BATCHES:
        raise InvalidInputError(
            f"{len(set(numbers))} values of {what} are too many for a table",
            hint=f"give at most {_MOST_BATCHES}",
        )
    return tuple(sorted(set(numbers)))


def _range_hint(most: int) -> str:
    hint = f"give whole numbers from 1 to {most:,}"
    if most == MAX_DEVICES_PER_MACHINE:
        return f"{hint}; over many machines: `paceline scale MODEL --device NAME --counts 1,8,64`"
    return hint


def _trimmed(cells: Sequence[GridCell]) -> Iterator[GridCell]:
    """The cells of each device, count and way up to the first that does not fit."""
    for _, group in groupby(cells, key=row_of_cell):
        for cell in group:
            yield cell
            if cell.status == "out of memory":
                break
