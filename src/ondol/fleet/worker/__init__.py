"""What a worker runs: the user's tests, in pytest's own protocol.

Rule of this folder: it decides nothing. Deadlines, retries and verdicts belong to processes that a test cannot kill, so
nothing here imports `agent/` or `controller/`.
"""
