"""What a browser or a purchase request shows: each answer as HTML or Markdown."""
