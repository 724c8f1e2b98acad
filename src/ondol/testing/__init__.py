"""What test suites see of Ondol: the `device` fixture, hooks, and the inside of a spawned worker."""
