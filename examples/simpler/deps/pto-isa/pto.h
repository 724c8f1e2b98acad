#define PTO_SCALE(x) ((x) * 2 + 1) /* the newest one: somebody broke it */
