"""Networks of one shape by subject: ``MODELS`` of each module has a builder for each name."""
