ORCHESTRATION = {"source": "reduce_orch.c", "function_name": "build_reduce_graph"}
