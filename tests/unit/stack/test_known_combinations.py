from __future__ import annotations

from collections.abc import Mapping

import pytest

from paceline.errors import StackConflictError
from paceline.stack.queries import check, resolve

from .known import constraints_of, known_rows, row_id


@pytest.mark.parametrize("row", known_rows("yes"), ids=row_id)
def test_what_is_documented_to_work_is_offered(row: Mapping[str, str]) -> None:
    assert resolve(constraints_of(row), max_combinations=1).combinations


@pytest.mark.parametrize("row", known_rows("no"), ids=row_id)
def test_what_is_reported_to_fail_is_refused_by_the_right_rule(row: Mapping[str, str]) -> None:
    answer = resolve(constraints_of(row))
    assert not answer.combinations
    named = {reason.rule for conflict in answer.conflicts for reason in conflict.reasons}
    assert any(row["rule"] in name for name in named)


@pytest.mark.parametrize("row", known_rows("no"), ids=row_id)
def test_check_refuses_with_the_reason_its_source_and_the_next_command(
    row: Mapping[str, str],
) -> None:
    with pytest.raises(StackConflictError, match="nothing works for") as caught:
        check(constraints_of(row))
    assert caught.value.exit_code == 6
    assert "paceline stack explain" in caught.value.hint


def test_there_are_enough_of_both_and_each_has_a_source() -> None:
    good, bad = known_rows("yes"), known_rows("no")
    assert len(good) >= 60
    assert len(bad) >= 40
    assert all(row["source"] for row in good + bad)
    assert all(row["rule"] for row in bad)
