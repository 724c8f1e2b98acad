#define PTO_SCALE(x) ((x) * 2)
