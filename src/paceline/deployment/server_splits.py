"""What the server of an engine is told of ranks that share more than every layer of a model."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.errors import InvalidInputError
from paceline.parallelism.strategy.strategy import Strategy
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSplit:
    """How the devices of a replica share the model, and what its server calls that.

    Attributes:
        engine: Name.
        strategy: Of the plan.
        facts: Options by what they say, from ``engine_servers.toml``; none where it does not do so.
    """

    engine: str
    strategy: Strategy
    facts: Mapping[str, Any]

    @property
    def shared_by(self) -> int:
        """Replicas of attention to which the server shares out what it is told."""
        return self.strategy.size("ep") if self.facts.get("ranks_are") == "all" else 1

    def told(self, each: int | None) -> int | None:
        """What the server is told so that each replica of attention has so much."""
        return None if each is None else each * self.shared_by

    def ranks(self, num_ranks: int) -> int:
        """What the option of ranks counts, of so many devices of a replica."""
        is_plain = self.strategy.size("ep") * self.strategy.size("pp") == 1
        return num_ranks if is_plain else self.strategy.size("tp") * self.shared_by

    def words(self) -> Iterator[str]:
        """Options for stages, and for experts that replicas of attention share.

        Raises:
            InvalidInputError: The server does not do so.
        """
        stages, experts, tensor = (self.strategy.size(name) for name in ("pp", "ep", "tp"))
        values = {"stages": stages, "replicas": experts, "ranks": experts * tensor}
        for name, count in (("stages", stages), ("experts", experts)):
            if count > 1 and name not in self.facts:
                raise InvalidInputError(
                    f"how {self.engine} is told `{self.strategy}` is not on record",
                    hint="plan with --framework vllm or sglang",
                )
            chosen = self.facts[name] if count > 1 else ()
            yield from (word.format(**values) for word in chosen)

    def check_machines(self, num_ranks: int, per_node: int | None, words: Sequence[str]) -> None:
        """Refuse a replica that fills several machines, which the files of one do not start.

        Args:
            num_ranks: Devices of a replica.
            per_node: Devices of a machine; None where that is not known.
            words: The command on one machine.

        Raises:
            InvalidInputError: It does; says how it is started by hand.
        """
        if not per_node or num_ranks <= per_node:
            return
        more = [w.format(machines=num_ranks // per_node) for w in self.facts.get("machines", ())]
        where = "on each of them" if "--nnodes" in more else "on a cluster of Ray over them"
        raise InvalidInputError(
            f"a replica of {num_ranks} devices fills machines of {per_node}: the files of one "
            "server do not start it",
            hint=f"start the engine {where}: `{shlex.join([*words, *more])}`; or plan with "
            "--device of machines that hold a replica",
        )
