ORCHESTRATION = {"source": "scale_orch.c", "function_name": "aicpu_orchestration_entry"}
