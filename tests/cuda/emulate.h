// Runs sennit's CUDA C on the CPU, unmodified: included before it, this turns every CUDA thread into a fiber that
// yields at barriers and shuffles. Blocks run one after the other, the threads of a block in an order of choice, so
// that a missing barrier changes results; shared memory is poisoned before each block; threads that disagree about a
// barrier are reported.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((unused))
#define __launch_bounds__(threads)
#define __shared__ static __attribute__((section("emulated_shared")))

extern char __start_emulated_shared[] __attribute__((weak)), __stop_emulated_shared[] __attribute__((weak));

enum { EMULATED_THREADS = 1024, EMULATED_STACK = 64 * 1024 };
typedef enum emulated_state { RUNNING, AT_BARRIER, AT_SHUFFLE, DONE } emulated_state;

typedef struct emulated_fiber {
    ucontext_t context;
    emulated_state state;
    uint64_t exchanged;
} emulated_fiber;

static struct {
    emulated_fiber fibers[EMULATED_THREADS];
    char *stacks;
    ucontext_t scheduler;
    void (*kernel)(void **arguments);
    void **arguments;
    int thread, threads, block;
} emulated;

typedef struct emulated_index {
    int x;
} emulated_index;
#define threadIdx ((emulated_index){emulated.thread})
#define blockIdx  ((emulated_index){emulated.block})
#define blockDim  ((emulated_index){emulated.threads})

static void emulated_yield(emulated_state state) {
    int thread = emulated.thread;
    emulated.fibers[thread].state = state;
    swapcontext(&emulated.fibers[thread].context, &emulated.scheduler);
    emulated.thread = thread;
}

static inline void __attribute__((unused)) __syncthreads(void) {
    emulated_yield(AT_BARRIER);
}

static inline uint64_t __attribute__((unused)) emulated_exchange(uint64_t bits, int step) {
    emulated.fibers[emulated.thread].exchanged = bits;
    emulated_yield(AT_SHUFFLE);
    uint64_t other = emulated.fibers[emulated.thread ^ step].exchanged;
    emulated_yield(AT_SHUFFLE); // nobody overwrites what others still read
    return other;
}
#define __shfl_xor_sync(mask, value, step)                                                                             \
    ({                                                                                                                 \
        __typeof__(value) value_ = (value);                                                                            \
        uint64_t bits_ = 0;                                                                                            \
        memcpy(&bits_, &value_, sizeof value_);                                                                        \
        bits_ = emulated_exchange(bits_, step);                                                                        \
        memcpy(&value_, &bits_, sizeof value_);                                                                        \
        value_;                                                                                                        \
    })
#define atomicAdd(pointer, value) (*(pointer) += (value))

#define EMULATED_BITCAST(name, to, from)                                                                               \
    static inline to __attribute__((unused)) name(from value) {                                                        \
        to result;                                                                                                     \
        memcpy(&result, &value, sizeof result);                                                                        \
        return result;                                                                                                 \
    }
EMULATED_BITCAST(__float_as_int, int, float)
EMULATED_BITCAST(__float_as_uint, unsigned, float)
EMULATED_BITCAST(__int_as_float, float, int)
EMULATED_BITCAST(__uint_as_float, float, unsigned)
EMULATED_BITCAST(__double_as_longlong, long long, double)
EMULATED_BITCAST(__longlong_as_double, double, long long)

static inline unsigned __attribute__((unused)) __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline float __attribute__((unused)) sn_host_f16_to_float(unsigned short bits) {
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
}
static inline unsigned short __attribute__((unused)) sn_host_f16_from_float(float value) {
    _Float16 half = (_Float16)value;
    unsigned short bits;
    memcpy(&bits, &half, 2);
    return bits;
}

static void emulated_entry(void) {
    emulated.kernel(emulated.arguments);
    emulated.fibers[emulated.thread].state = DONE;
    swapcontext(&emulated.fibers[emulated.thread].context, &emulated.scheduler);
}

// The i-th thread to run: forwards, backwards, or scattered by a multiplier that is coprime to any power of two.
static int emulated_order(int order, int i) {
    int n = emulated.threads;
    return order == 0 ? i : order == 1 ? n - 1 - i : (int)((unsigned)i * 13u + 5u) % n;
}

static int emulated_run_block(int order) {
    size_t shared = (size_t)(__stop_emulated_shared - __start_emulated_shared);
    if (__start_emulated_shared) memset(__start_emulated_shared, 0xff, shared);
    for (int t = 0; t < emulated.threads; t++) {
        emulated_fiber *f = &emulated.fibers[t];
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = emulated.stacks + (size_t)t * EMULATED_STACK;
        f->context.uc_stack.ss_size = EMULATED_STACK;
        makecontext(&f->context, emulated_entry, 0);
    }
    for (;;) {
        for (int i = 0; i < emulated.threads; i++) {
            emulated.thread = emulated_order(order, i);
            emulated.fibers[emulated.thread].state = RUNNING;
            swapcontext(&emulated.scheduler, &emulated.fibers[emulated.thread].context);
        }
        for (int t = 1; t < emulated.threads; t++)
            if (emulated.fibers[t].state != emulated.fibers[0].state) return t;
        if (emulated.fibers[0].state == DONE) return 0;
    }
}

// Launches `grid` blocks. 0, or the number of a thread that missed a barrier others wait at. `threads` is a multiple
// of 32.
static int __attribute__((unused))
emulated_launch(void (*kernel)(void **), void **arguments, int grid, int threads, int order) {
    emulated.kernel = kernel;
    emulated.arguments = arguments;
    emulated.threads = threads;
    emulated.stacks = malloc((size_t)threads * EMULATED_STACK);
    int wrong = 0;
    for (emulated.block = 0; emulated.block < grid && !wrong; emulated.block++) wrong = emulated_run_block(order);
    free(emulated.stacks);
    return wrong;
}
