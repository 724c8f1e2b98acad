"""One tool per file: what its cache is made of."""
