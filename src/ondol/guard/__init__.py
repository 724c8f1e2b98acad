"""`ondol guard`: the lock on a cache, what is bad in it, and the life of a guarded command."""
