"""What the words of a published table mean: models, devices, formats, units, strategies."""
