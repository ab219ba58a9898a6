"""What ``feed`` is made of: decoding, batches, threads, processes, and how many of them."""
