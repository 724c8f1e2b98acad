/* A CUDA driver with one context that can turn sticky: enough of it for the check after every item, and for the probe.
 * FAKE_CUDA_HEALTH is the code that the probe's allocation answers with. */

#include <stdlib.h>
#include <string.h>

static int initialised = 0;
static int sticky = 0;
static unsigned char memory[1 << 20];

static int answer(void) { return initialised ? sticky : 3; }

int cuInit(unsigned flags) { (void)flags; initialised = 1; return 0; }
int cuGetErrorString(int code, const char **text) {
    *text = code == 700 ? "an illegal memory access was encountered"
          : code == 214 ? "uncorrectable ECC error encountered" : NULL;
    return *text ? 0 : 1;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return initialised ? 0 : 3; }
int cuCtxGetCurrent(void **context) { *context = NULL; return initialised ? 0 : 3; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device; *flags = 0; *active = initialised; return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = memory; return answer(); }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxPushCurrent_v2(void *context) { (void)context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = memory; return 0; }
int cuCtxSynchronize(void) { return answer(); }
int cuMemAlloc_v2(void **where, size_t size) {
    (void)size; *where = memory;
    return getenv("FAKE_CUDA_HEALTH") ? atoi(getenv("FAKE_CUDA_HEALTH")) : answer();
}
int cuMemsetD8_v2(void *where, unsigned char value, size_t size) { memset(where, value, size); return answer(); }
int cuMemcpyDtoH_v2(void *to, void *from, size_t size) { memcpy(to, from, size); return answer(); }
int cuMemFree_v2(void *where) { (void)where; return 0; }

/* Not CUDA's: a kernel, good or out of bounds. */
int launch(int bad) {
    if (!sticky && bad) { sticky = 700; }
    return answer();
}
