// Kernels of the tests' pipeline: y = w1 (w0 x) + b1 with a mean squared error, the first factor in one stage and the
// rest in the next. Blocks are samples, or 1.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void k_scale(void *const *args, int64_t begin, int64_t end);    // (w0, x) -> h
void k_residual(void *const *args, int64_t begin, int64_t end); // (w1, b1, h, target) -> residual
void k_grad1(void *const *args, int64_t begin, int64_t end);    // (h, residual, w1, rows) -> sums1 +=, grad_h
void k_grad0(void *const *args, int64_t begin, int64_t end);    // (x, grad_h, rows) -> sums0 +=
void k_update0(void *const *args, int64_t begin, int64_t end);  // (lr) -> sums0, w0, m0, norm +=
void k_update1(void *const *args, int64_t begin, int64_t end);  // (lr) -> sums1, w1, b1, loss, norm +=
void k_loss(void *const *args, int64_t begin, int64_t end);     // (residual, rows) -> loss
void k_predict(void *const *args, int64_t begin, int64_t end);  // (w1, b1, h) -> y

enum { ROWS_STEP = 12, ROWS_MICRO = 4 }; // of the whole batch and of a micro-batch, as compiled in

// For the tests of faults: HANG=RANK:CALLS puts that rank to sleep in the call for good, SPIN=RANK:CALLS makes it
// compute for seven seconds in that one call.
static bool is_due(const char *variable, int calls, bool after) {
    const char *what = getenv(variable), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!what || !rank || atoi(what) != atoi(rank)) return false;
    int wanted = atoi(strchr(what, ':') + 1);
    return calls == wanted || (after && calls > wanted);
}

static void misbehave(void) {
    static int calls;
    calls++;
    if (is_due("HANG", calls, true)) sleep(1000);
    if (!is_due("SPIN", calls, false)) return;
    for (time_t end = time(NULL) + 7; time(NULL) < end;) continue;
}

void k_scale(void *const *args, int64_t begin, int64_t end) {
    const float *w = args[0], *x = args[1];
    float *h = args[2];
    misbehave();
    for (int64_t i = begin; i < end; i++) h[i] = w[0] * x[i];
}

void k_residual(void *const *args, int64_t begin, int64_t end) {
    const float *w = args[0], *b = args[1], *h = args[2], *target = args[3];
    float *residual = args[4];
    misbehave();
    for (int64_t i = begin; i < end; i++) residual[i] = w[0] * h[i] + b[0] - target[i];
}

void k_grad1(void *const *args, int64_t begin, int64_t end) {
    const float *h = args[0], *residual = args[1], *w = args[2];
    const int64_t *rows = args[3];
    float *sums = args[4], *grad_h = args[5]; // grad_w1, grad_b1, loss
    (void)begin, (void)end;
    for (int64_t i = 0; i < *rows; i++) {
        sums[0] += 2 * residual[i] * h[i] / ROWS_STEP;
        sums[1] += 2 * residual[i] / ROWS_STEP;
        sums[2] += residual[i] * residual[i] / ROWS_STEP;
        grad_h[i] = 2 * residual[i] * w[0] / ROWS_STEP;
    }
}

void k_grad0(void *const *args, int64_t begin, int64_t end) {
    const float *x = args[0], *grad_h = args[1];
    const int64_t *rows = args[2];
    float *sums = args[3];
    (void)begin, (void)end;
    for (int64_t i = 0; i < *rows; i++) sums[0] += grad_h[i] * x[i];
}

void k_update0(void *const *args, int64_t begin, int64_t end) {
    const float *lr = args[0];
    float *sums = args[1], *w = args[2], *m = args[3], *norm = args[4];
    (void)begin, (void)end;
    *norm += sums[0] * sums[0];
    *m = 0.5f * *m + sums[0];
    *w -= *lr * *m;
    sums[0] = 0;
}

void k_update1(void *const *args, int64_t begin, int64_t end) {
    const float *lr = args[0];
    float *sums = args[1], *w = args[2], *b = args[3], *loss = args[4], *norm = args[5];
    (void)begin, (void)end;
    *norm += sums[0] * sums[0] + sums[1] * sums[1];
    *loss = sums[2];
    *w -= *lr * sums[0];
    *b -= *lr * sums[1];
    memset(sums, 0, 3 * sizeof *sums);
}

void k_loss(void *const *args, int64_t begin, int64_t end) {
    const float *residual = args[0];
    const int64_t *rows = args[1];
    float *loss = args[2];
    (void)begin, (void)end;
    *loss = 0;
    for (int64_t i = 0; i < *rows; i++) *loss += residual[i] * residual[i] / ROWS_MICRO;
}

void k_predict(void *const *args, int64_t begin, int64_t end) {
    const float *w = args[0], *b = args[1], *h = args[2];
    float *y = args[3];
    for (int64_t i = begin; i < end; i++) y[i] = w[0] * h[i] + b[0];
}
