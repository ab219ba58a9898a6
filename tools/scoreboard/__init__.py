"""What the scoreboard is made of: what published tables leave out, and what pages say of them."""
