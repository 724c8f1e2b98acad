const char aicpu_firmware[] = RUNTIME;
