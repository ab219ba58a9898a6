"""Which jobs to ask the simulation about, and its answers by device and batch."""
