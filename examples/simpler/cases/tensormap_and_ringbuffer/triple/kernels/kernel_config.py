ORCHESTRATION = {"source": "triple_orch.c", "function_name": "aicpu_orchestration_entry"}
