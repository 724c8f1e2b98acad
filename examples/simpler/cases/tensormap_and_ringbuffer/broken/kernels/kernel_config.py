ORCHESTRATION = {"source": "broken_orch.c", "function_name": "aicpu_orchestration_entry"}
