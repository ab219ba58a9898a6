"""Which to choose: goal, cost, search, Pareto front, rent or buy, several jobs on one pool.

Names are imported when first used, so that reading a plan file does not load the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.lazy import lazy_exports

if TYPE_CHECKING:
    from paceline.plan.files import dump_plan, load_plan, plan_schema, read_plan, write_plan
    from paceline.plan.goal import Goal, Scenario, Work
    from paceline.plan.options import format_goal, parse_goal, parse_work
    from paceline.plan.planner import make_plan, why_not
    from paceline.plan.question import SearchOptions

__all__ = [
    "Goal",
    "Scenario",
    "SearchOptions",
    "Work",
    "dump_plan",
    "format_goal",
    "load_plan",
    "make_plan",
    "parse_goal",
    "parse_work",
    "plan_schema",
    "read_plan",
    "why_not",
    "write_plan",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "files": ("dump_plan", "load_plan", "plan_schema", "read_plan", "write_plan"),
        "goal": ("Goal", "Scenario", "Work"),
        "options": ("format_goal", "parse_goal", "parse_work"),
        "planner": ("make_plan", "why_not"),
        "question": ("SearchOptions",),
    },
)
