// The learning rate of a step.
#pragma once
#include <stdint.h>

typedef enum sn_lr_shape { SN_LR_CONSTANT, SN_LR_COSINE, SN_LR_LINEAR, SN_LR_SHAPE_COUNT } sn_lr_shape;

typedef struct sn_lr_schedule {
    sn_lr_shape shape;
    double lr, min_lr; // at the end of the warm-up; at step `steps`
    int64_t warmup, steps;
} sn_lr_schedule;

sn_lr_shape sn_lr_shape_from_name(const char *name); // SN_LR_SHAPE_COUNT when there is none

// For step 0, 1, …: lr (step + 1) / warmup while step < warmup; then, with p = (step - warmup) / (steps - warmup) in
// [0, 1]: lr; min_lr + (lr - min_lr) (1 + cos πp) / 2; or lr + (min_lr - lr) p.
double sn_lr_at(const sn_lr_schedule *schedule, int64_t step);
