"""How a model may be run: each setting as a function from graph to graph."""
