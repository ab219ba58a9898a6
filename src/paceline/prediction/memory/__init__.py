"""How much memory a pass needs, live bytes first, then through an allocator."""
