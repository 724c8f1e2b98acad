"""The speed claims of docs/benchmarks.md, measured side by side with their peers: `python -m bench`."""
