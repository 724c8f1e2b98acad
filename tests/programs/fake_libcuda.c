/* A CUDA driver that agrees to everything: one device of compute capability 9.0, launches do nothing.
 * With it Triton's whole launch path runs without a GPU, and builds its helper library (cuda_utils) into the cache. */
#include <stdint.h>
#include <string.h>

#define AGREE(name) int name(void) { return 0; }

enum { MAJOR = 75, MINOR = 76, MULTIPROCESSORS = 16, WARP = 10, SHARED_OPTIN = 97, SHARED = 8, THREADS = 1, REGISTERS = 12 };

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)16; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = (void *)16; return 0; }
int cuStreamIsCapturing(void *stream, int *answer) { (void)stream; *answer = 0; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { (void)module; (void)name; *function = (void *)48; return 0; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { (void)function; *value = attribute == 0 ? 1024 : 0; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "an error of the fake driver"; return 0; }
int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer) { (void)attribute; *(uint64_t *)data = pointer; return 0; }

int cuModuleLoadData(void **module, const void *image) {
    if (memcmp(image, "\177ELF", 4) != 0) return 200; /* CUDA_ERROR_INVALID_IMAGE, as the real one says */
    *module = (void *)32;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case MAJOR: *value = 9; break;
    case MINOR: *value = 0; break;
    case MULTIPROCESSORS: *value = 132; break;
    case WARP: *value = 32; break;
    case SHARED_OPTIN: *value = 232448; break;
    case SHARED: *value = 49152; break;
    case THREADS: *value = 1024; break;
    case REGISTERS: *value = 65536; break;
    default: *value = 1;
    }
    return 0;
}

AGREE(cuCtxSetCurrent) AGREE(cuModuleUnload) AGREE(cuCtxGetLimit) AGREE(cuCtxSetLimit) AGREE(cuFuncSetAttribute)
AGREE(cuFuncSetCacheConfig) AGREE(cuOccupancyMaxActiveClusters) AGREE(cuTensorMapEncodeIm2col)
AGREE(cuTensorMapEncodeTiled) AGREE(cuLaunchKernelEx) AGREE(cuLaunchKernel)
