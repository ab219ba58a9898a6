"""Which to choose: goal, cost, search, Pareto front, rent or buy, several jobs on one pool."""

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
