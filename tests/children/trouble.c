/* Native code that misbehaves: it never returns, or it takes the whole stack. */

static volatile int forever = 1;

void spin(void) {
    while (forever) {
    }
}

int overflow(int depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    return overflow(depth + 1) + frame[0];
}
