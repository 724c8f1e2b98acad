ORCHESTRATION = {"source": "spin_orch.c", "function_name": "aicpu_orchestration_entry"}
RUNTIME_CONFIG = {"timeout_s": 2}
