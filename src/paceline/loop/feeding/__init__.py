"""What ``feed`` is made of: batches, threads, processes, and how many of them."""
