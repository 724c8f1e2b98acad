"""A job's private, writable caches: open, fill, harvest, sweep."""
