ORCHESTRATION = {"source": "wild_orch.c", "function_name": "aicpu_orchestration_entry"}
