"""Which to choose: goals, costs, search, ranking and explanation."""
