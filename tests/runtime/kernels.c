// Kernels of the tests' training program, as the backend would emit them: y = w x + b with a mean squared error, one
// scalar sample a row. Blocks are samples, or 1.
#include <stdint.h>

void k_residual(void *const *args, int64_t begin, int64_t end); // (w, b, x, target) -> residual
void k_gradient(void *const *args, int64_t begin, int64_t end); // (x, residual, rows) -> grad_w, grad_b, loss: sums
void k_update(void *const *args, int64_t begin, int64_t end);   // (sums, lr) -> w, b, m; loss and norm
void k_predict(void *const *args, int64_t begin, int64_t end);  // (w, b, x) -> y

enum { ROWS_ALL = 12 }; // of the whole batch, as compiled in

void k_residual(void *const *args, int64_t begin, int64_t end) {
    const float *w = args[0], *b = args[1], *x = args[2], *target = args[3];
    float *residual = args[4];
    for (int64_t i = begin; i < end; i++) residual[i] = w[0] * x[i] + b[0] - target[i];
}

void k_gradient(void *const *args, int64_t begin, int64_t end) {
    const float *x = args[0], *residual = args[1];
    const int64_t *rows = args[2];
    float *sums = args[3]; // grad_w, grad_b, loss
    (void)begin, (void)end;
    sums[0] = sums[1] = sums[2] = 0;
    for (int64_t i = 0; i < *rows; i++) {
        sums[0] += 2 * residual[i] * x[i] / ROWS_ALL;
        sums[1] += 2 * residual[i] / ROWS_ALL;
        sums[2] += residual[i] * residual[i] / ROWS_ALL;
    }
}

void k_update(void *const *args, int64_t begin, int64_t end) {
    const float *sums = args[0], *lr = args[1];
    float *w = args[2], *b = args[3], *m = args[4], *loss = args[5], *norm = args[6];
    (void)begin, (void)end;
    *loss = sums[2];
    *norm = sums[0] * sums[0] + sums[1] * sums[1];
    *m = 0.5f * *m + sums[0]; // momentum on w alone, so that there is a moment
    *w -= *lr * *m;
    *b -= *lr * sums[1];
}

void k_predict(void *const *args, int64_t begin, int64_t end) {
    const float *w = args[0], *b = args[1], *x = args[2];
    float *y = args[3];
    for (int64_t i = begin; i < end; i++) y[i] = w[0] * x[i] + b[0];
}
