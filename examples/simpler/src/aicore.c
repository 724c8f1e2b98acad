const char aicore_firmware[] = RUNTIME;
