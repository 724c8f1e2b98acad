"""`ondol explain`: the known faults of caches, how each looks in a log, and what a failed log says."""
