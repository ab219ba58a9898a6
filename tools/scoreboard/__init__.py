"""What the pages of the scoreboard say, quoted in the README."""
