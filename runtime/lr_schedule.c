#include "runtime/lr_schedule.h"

#include <math.h>
#include <string.h>

sn_lr_shape sn_lr_shape_from_name(const char *name) {
    static const char *const names[] = {
        [SN_LR_CONSTANT] = "constant", [SN_LR_COSINE] = "cosine", [SN_LR_LINEAR] = "linear"};
    sn_lr_shape shape = SN_LR_CONSTANT;
    while (shape < SN_LR_SHAPE_COUNT && strcmp(names[shape], name) != 0) shape++;
    return shape;
}

double sn_lr_at(const sn_lr_schedule *s, int64_t step) {
    if (step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
    double p = s->steps > s->warmup ? (double)(step - s->warmup) / (double)(s->steps - s->warmup) : 1;
    if (p > 1) p = 1;
    switch (s->shape) {
    case SN_LR_COSINE:
        return s->min_lr + (s->lr - s->min_lr) * (1 + cos(M_PI * p)) / 2;
    case SN_LR_LINEAR:
        return s->lr + (s->min_lr - s->lr) * p;
    default:
        return s->lr;
    }
}
