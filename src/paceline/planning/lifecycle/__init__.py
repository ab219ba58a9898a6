"""Where to develop, train and serve one model."""
