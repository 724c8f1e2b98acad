"""Commands: each is a function, found by the table in `main`. The only place from which Ondol prints."""
