"""Engines: how a run gets nodes, and how one agent comes to live on each of them."""
