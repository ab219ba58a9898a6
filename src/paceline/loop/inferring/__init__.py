"""A trained model over a data set: CPU before, device, CPU after, at once, and resumable."""
