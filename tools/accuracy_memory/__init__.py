"""Published figures of training memory, source by source, each with its prediction."""
