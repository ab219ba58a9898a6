"""One device: op time, host dispatch, memory, input, energy and intervals."""
