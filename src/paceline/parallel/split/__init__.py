"""One graph, many ranks: what one of them runs of a pass, keeps, and exchanges with the others."""
