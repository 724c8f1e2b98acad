"""Packs and where they live."""
