"""Which to choose: goal, cost, search, Pareto front, rent or buy, several jobs on one pool."""
