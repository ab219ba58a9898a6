"""A workload: the passes of a job, how often each runs, and what one sample is.

A training job repeats one step. Generation is a prefill and then many decodes; a GAN updates two
networks; reinforcement learning rolls out and then updates. Each is passes × repeats.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from paceline.errors import InvalidInputError
from paceline.model.graph.engine_features import Adapters, Speculation
from paceline.model.graph.graph import Graph, monomials
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.rows import Window
from paceline.values import dataclass

Task = Literal["train", "infer"]
SampleUnit = Literal[
    "images", "clips", "volumes", "molecules", "recordings", "windows",
    "tokens", "sequences", "samples", "seconds of sound",
]  # fmt: skip
#: What one item is called, by how its description begins.
_CALLED: tuple[tuple[str, SampleUnit], ...] = (
    (r"pictures of", "images"), (r"\d+ frames of", "clips"), (r"volumes of", "volumes"),
    (r"molecules of", "molecules"), (r"[\d.]+ s of sound", "recordings"),
    (r"windows of", "windows"),
)  # fmt: skip


def unit_of_item(unit: SampleUnit, description: str) -> SampleUnit:
    """What a person calls an item that is only known as a sample, by its description.

    >>> unit_of_item("samples", "16 frames of 224×224"), unit_of_item("tokens", "tokens")
    ('clips', 'tokens')
    """
    if unit != "samples":
        return unit
    return next((name for start, name in _CALLED if re.match(start, description)), unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceJob:
    """The amount of work meant when the user names none.

    Attributes:
        num_samples: Samples per epoch (training) or in all (inference), in ``sample_unit``.
        num_epochs: Passes over them.
        description: As printed in the first assumption.
        source: Where the figure comes from.
    """

    num_samples: float
    num_epochs: float
    description: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """A graph and how often it runs per step of the job.

    Attributes:
        name: ``step``, ``forward``, ``prefill`` or ``encode``, ``decode``, ``discriminator`` …
        graph: What one execution asks for.
        repeats: Executions per step of the job (per output token for ``decode``).
        network: Whose weights it reads, where that is another network than the model's own, such
            as the decoder of latents beside a denoiser; its weights stay on the device too.
    """

    name: str
    graph: Graph
    repeats: float = 1.0
    runs_on: Literal["device", "host"] = "device"
    network: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """A model with a task, ready to be lowered and predicted.

    Attributes:
        name: As typed, such as ``resnet50``.
        title: As printed, such as ``ResNet-50``.
        task: Training or inference.
        passes: What runs; the model's own network first.
        sample_unit: What throughput counts.
        default_seq: Sequence length used when none is given; 1 where there is none.
        sample_bytes: Host-to-device bytes per batch item, at ``default_seq``.
        optimizer: ``sgd``, ``adam``, ``adamw``, …, of the first update; None in inference.
        input_description: As printed, such as ``224×224``.
        max_global_batch: Largest global batch that the reference recipe trains well with.
        reference_job: Used when no work is given; None if unknown.
        source: Where the architecture comes from, with its published parameter count.
        shortest_seq: Shortest length that the graphs are known at.
        longest_seq: Where a learned table of positions ends; None where none is known.
        reading: How a short name was read (`reading_of`); empty where nothing was left open.
        length_name: What ``default_seq`` is the length of, as printed.
        has_own_optimizer: Whether its code names its optimizer, which then stays.
        samples_per_item: Samples that one item of a batch counts for, where those are no tokens:
            the seconds of a recording.
        item: What one item of inference is, where that is more than a pass; as printed.
        stated_item: What a user stated of one, as a job's line has it.
        beams: Answers that a search keeps of each request, all written at once.
        prefix_share: Of a prompt, what an engine finds in its cache.
        adapters: Of which each request asks for one; None without.
        speculation: How its tokens are guessed; None where they are not.
        unguessed: Its passes as they are where none are guessed; none likewise.
        usual_prompt_tokens: Of a request whose answer is generated, where none is stated.
        usual_output_tokens: Of its answer, likewise.
        beside_frac: Time that the code around its passes takes where they run op by op, over
            theirs: of a pipeline of several networks.
        beside_log_sigma: How surely that is known.
        window_tokens: That layers with a window of attention see of the past; 0 without.
        full_every: Of so many layers the last one sees everything; 0 where none does.
        released: Precisions that its weights are released in, what devices prefer first.
    """

    name: str
    title: str
    task: Task
    passes: tuple[Pass, ...]
    sample_unit: SampleUnit
    default_seq: int
    sample_bytes: float
    num_parameters: int
    optimizer: str | None
    input_description: str
    max_global_batch: int | None
    reference_job: ReferenceJob | None
    source: str
    shortest_seq: int = 1
    longest_seq: int | None = None
    reading: str = ""
    length_name: str = "sequence length"
    has_own_optimizer: bool = False
    samples_per_item: float = 1.0
    item: str = ""
    stated_item: str = ""
    beams: int = 1
    prefix_share: float = 0.0
    adapters: Adapters | None = None
    speculation: Speculation | None = None
    unguessed: tuple[Pass, ...] = ()
    usual_prompt_tokens: int = 512
    usual_output_tokens: int = 128
    beside_frac: float = 0.0
    beside_log_sigma: float = 0.0
    window_tokens: int = 0
    full_every: int = 0
    released: tuple[str, ...] = ()

    @property
    def window(self) -> Window | None:
        """Which of its layers look back on a window; None where all see everything."""
        if not self.window_tokens:
            return None
        return Window(tokens=self.window_tokens, full_every=self.full_every)

    @property
    def generates(self) -> bool:
        """Whether requests are answered token by token."""
        return any(one.name == "decode" for one in self.passes)

    @property
    def convolves(self) -> bool:
        """Whether most operations of the model's own network are of convolutions."""
        ops = self.passes[0].graph.ops
        flop = ops.flop @ monomials(1.0, float(self.default_seq))[0]
        return float(flop[ops.kind == OpKind.CONV].sum()) > 0.5 * float(flop.sum())

    @property
    def encodes(self) -> bool:
        """Whether an encoder reads what is answered, so that a request begins with its pass."""
        return any(one.name == "encode" for one in self.passes)

    @property
    def needs_engine(self) -> bool:
        """Whether only an engine answers its requests as they are stated."""
        return bool(self.prefix_share or self.adapters or self.speculation)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step writes of each answer in the mean: more than one with guesses."""
        return 1.0 if self.speculation is None else self.speculation.tokens_per_step

    @property
    def tokens_checked(self) -> int:
        """Tokens of each answer that a step reads: its guesses and the one before them."""
        return 1 if self.speculation is None else self.speculation.tokens + 1

    @property
    def reads_by(self) -> str:
        """The pass that an answer begins with."""
        return "encode" if self.encodes else "prefill"

    def read_whole(self) -> Workload:
        """The same where a request is answered by reading it, as texts are embedded or ranked."""
        read = replace(next(one for one in self.passes if one.name == "prefill"), name="forward")
        return replace(self, passes=(read,), sample_unit="sequences")

    @property
    def has_fixed_length(self) -> bool:
        """Whether a pass is known at ``default_seq`` only: its operators change with the length."""
        return self.default_seq > 1 and any(not one.graph.variables[1] for one in self.passes)

    def knows_length(self, seq: int) -> bool:
        """Whether the graphs say what a length asks for; another may be traced."""
        is_traced = not self.has_fixed_length or seq == self.default_seq
        return is_traced and (seq >= self.shortest_seq or self.default_seq == 1)

    def check_length(self, seq: int) -> None:
        """Refuse a length that the graphs say nothing about.

        Raises:
            InvalidInputError: Another length than the one traced, a shorter one than traced, or one
                beyond the model's table of positions.
        """
        if self.longest_seq is not None and seq > self.longest_seq:
            raise InvalidInputError(
                f"the table of positions of `{self.name}` ends before a length of {seq}",
                hint=f"give --seq {self.longest_seq} or less",
            )
        if self.has_fixed_length and seq != self.default_seq:
            raise InvalidInputError(
                f"the operators of `{self.name}` change with the length, and this graph was "
                f"traced at {self.default_seq}",
                hint=f"trace the model again with `--seq {seq}`",
            )
        if seq < self.shortest_seq and self.default_seq > 1:
            raise InvalidInputError(
                f"`{self.name}` works in chunks or windows, or sees a picture, and this graph is "
                f"known from a length of {self.shortest_seq} on",
                hint=f"trace the model again with `--seq {seq}`",
            )
