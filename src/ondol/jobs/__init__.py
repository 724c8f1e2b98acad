"""The use cases: the only place where rooms meet."""
