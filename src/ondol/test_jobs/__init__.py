"""The use cases of `ondol test`: a run in pytest, the front around it, a node of it, what earlier runs tell."""
