int kernel(double *data, int count) { this is not C; }
