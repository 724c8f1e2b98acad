/* Native code that misbehaves: it never returns, or it takes the whole stack. */

#include <unistd.h>

static volatile int forever = 1;

void spin(void) {
    while (forever) {
    }
}

void wait_in_c(void) {
    while (forever) {
        pause();
    }
}

int overflow(int depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    return overflow(depth + 1) + frame[0];
}
