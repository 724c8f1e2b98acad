ORCHESTRATION = {"source": "square_orch.c", "function_name": "build_square_graph"}
