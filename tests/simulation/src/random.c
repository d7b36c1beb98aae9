// The system's randomness, as one seed has it: hash maps iterate, uuids come and select! picks in the same way in every run.
//
// The standard library looks for this symbol before it asks the system, so that it can be put in its place. Without the
// variable the system is asked as usual.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static uint64_t state;
static int known;

static uint64_t next(void) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

ssize_t getrandom(void *into, size_t length, unsigned int flags) {
    if (!known) {
        const char *seed = getenv("SIMULATION_SEED");
        if (!seed) {
            return syscall(SYS_getrandom, into, length, flags);
        }
        state = strtoull(seed, NULL, 10);
        known = 1;
    }
    unsigned char *bytes = into;
    for (size_t at = 0; at < length; at++) {
        bytes[at] = (unsigned char)next();
    }
    return (ssize_t)length;
}
