"""How a model is read: its name or code, a worker that traces it, a graph from its report."""
