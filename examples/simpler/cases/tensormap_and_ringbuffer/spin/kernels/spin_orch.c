#include <unistd.h>
int aicpu_orchestration_entry(double *data, int count) { volatile int waiting = 1; (void)data; (void)count; while (waiting) { pause(); } return 0; }
