"""Known faults of caches: how each looks in a log, what it means, what cures it, and which healer may act on it."""
