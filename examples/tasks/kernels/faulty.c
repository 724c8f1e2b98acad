int kernel(double *data, int count) { (void)data; (void)count; return 1; /* out of bounds, says the device */ }
