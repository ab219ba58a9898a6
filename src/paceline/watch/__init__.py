"""A job beside its prediction: any training command, unchanged, is watched while it runs.

The command is started with an observer on its path, which writes lines into a run folder. What is
said of the run is read from that folder alone, by whoever looks: the watcher that started it, or
another one later.
"""
