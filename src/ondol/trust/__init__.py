"""Who may write, and what may be read."""
