ORCHESTRATION = {"source": "add_orch.c", "function_name": "aicpu_orchestration_entry"}
