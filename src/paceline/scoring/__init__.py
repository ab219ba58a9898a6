"""Score predictions against published measurements: the one way in which everybody does."""
