"""`make demo`: the main job, three times, with real Triton and without a GPU."""
