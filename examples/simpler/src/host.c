/* The host's part of a runtime of the chip. It never closes what it has loaded. */
#include <dlfcn.h>
#include <stdio.h>

int chip_run(const char *library, const char *symbol, double *data, int count, char *error, int size) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    int (*entry)(double *, int) = handle ? (int (*)(double *, int))dlsym(handle, symbol) : NULL;
    if (entry == NULL) {
        snprintf(error, size, "%s", dlerror());
        return -1;
    }
    return entry(data, count);
}
