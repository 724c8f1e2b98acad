"""What the controller runs: inside the user's pytest, which collected the items and shows their results.

Rule of this folder: no test runs here and no device is touched. It may import `agent/` and `worker/`, because it forks
into them; neither may import it.
"""
