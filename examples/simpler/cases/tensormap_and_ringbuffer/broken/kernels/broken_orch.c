int aicpu_orchestration_entry(double *data, int count) { this is not C; }
