"""The order of what the resolver offers."""

from paceline.stack.queries import Constraints, resolve


def test_without_a_framework_the_newest_of_each_stands_before_the_second_of_any() -> None:
    found = resolve(Constraints(gpu="rtx 3090"), max_combinations=6).combinations
    frameworks = [one.framework for one in found]
    num_kinds = len(set(frameworks))
    assert num_kinds >= 3
    assert len(set(frameworks[:num_kinds])) == num_kinds
