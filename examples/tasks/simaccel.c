/* A simulated accelerator: memory is host memory, a kernel is a shared library, and errors are as sticky as on a real
 * device. Like the runtime that taught us (seed 003), it never closes a kernel that it has loaded. */

#include <dlfcn.h>
#include <stdio.h>

typedef int (*kernel_t)(double *data, int count);

enum { OK = 0, NO_DEVICE = 1, CANNOT_LOAD = 2, NO_SYMBOL = 3, STICKY = 700 };

static int opened = -1;
static int sticky = 0;

int sim_open(int device) {
    if (device < 0) {
        return NO_DEVICE;
    }
    opened = device;
    return OK;
}

int sim_launch(const char *library, double *data, int count) {
    if (opened < 0) {
        return NO_DEVICE;
    }
    if (sticky) {
        return STICKY; /* nothing works any more in this process */
    }
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        return CANNOT_LOAD;
    }
    kernel_t kernel = (kernel_t)dlsym(handle, "kernel");
    if (kernel == NULL) {
        return NO_SYMBOL;
    }
    if (kernel(data, count) != 0) {
        sticky = 1;
        return STICKY;
    }
    return OK;
}

int sim_status(void) { return sticky ? STICKY : OK; }

void sim_close(void) { opened = -1; }
