"""paceline: which accelerator a deep-learning job needs, before anything is rented or bought."""
