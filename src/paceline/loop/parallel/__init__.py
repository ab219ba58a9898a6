"""A plan's strategy on PyTorch's own engines: which wrapper, in which order, on which mesh."""
