"""One check per file."""
