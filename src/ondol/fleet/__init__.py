"""The run wing: warm, supervised workers that cannot lose a result."""
