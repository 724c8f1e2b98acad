int aicpu_orchestration_entry(double *data, int count) { (void)data; return *(volatile int *)(long)count; /* no such address */ }
