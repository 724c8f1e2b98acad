"""What this machine can do: files, file systems, processes, identity. Knows nothing of caches."""
