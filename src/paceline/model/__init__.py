"""What the model asks: the op graph, its rewrites, its lowering, and the zoo."""
