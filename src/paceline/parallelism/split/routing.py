"""Where the tokens of a model with experts go."""

from __future__ import annotations

import math

from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Where the tokens of a model with experts go.

    Attributes:
        num_experts: Experts of a layer.
        experts_per_token: How many of them each token is sent to.
    """

    num_experts: int
    experts_per_token: int

    def places(self, num_places: float) -> float:
        """Expected places that one token reaches, where each holds an equal share of the experts.

        The experts of a token are different ones, and any are as likely as others.

        >>> Routing(num_experts=8, experts_per_token=2).places(8)
        2.0
        >>> Routing(num_experts=8, experts_per_token=2).places(1)
        1.0
        """
        elsewhere = self.num_experts * (1.0 - 1.0 / num_places)
        missed = math.prod(
            max(elsewhere - i, 0.0) / (self.num_experts - i) for i in range(self.experts_per_token)
        )
        return num_places * (1.0 - missed)
