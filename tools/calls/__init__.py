"""A fixed list of command lines, run under a source tree; their answers compared with others'."""
