"""What the agent runs: one process per machine, between the controller and the workers.

Rule of this folder: no user code, so no pytest, and nothing of `controller/` or `worker/`. What a test imports, breaks
or holds a lock on cannot reach the process that must end it. `tests/architecture` checks the imports.
"""
