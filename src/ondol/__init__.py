"""Ondol: one shared, verified fire under every CI job; every job in a room of its own."""

__version__ = "0.1.0"
