// What is minimised: a scalar of the model, or a mean that is built on the model's outputs.
#pragma once
#include "base/diag.h"
#include "ir/build.h"

// The loss of one batch is sum / count. Both are scalars (rank 0, f32 or f64) of one element type; count does not
// depend on what is trained. Where the loss is a mean over labels or elements, adding up sums and counts over
// micro-batches, or over ranks, gives the mean over all of them; any other loss has count 1, and its mean is taken.
typedef struct sn_loss {
    sn_value *value; // sum / count
    sn_value *sum, *count;
} sn_loss;

// Finds or builds the loss at the builder's point (after the ops of its function, which must be a copy of the model's
// @main with its results). `spec` is NULL (the model's one scalar float output), the name of an output,
// "softmax_cross_entropy:LOGITS,LABELS" (mean over the labels other than ignore_index; the classes are the logits' last
// axis, or axis 1 where LABELS is an input of the model that fits that) or "mse:OUTPUT,TARGET" (mean over all
// elements). LABELS (i64) and TARGET become arguments when the model has no input of that name. False with errors
// E0301..E0304.
bool sn_loss_build(sn_builder *b, const char *spec, int64_t ignore_index, sn_diags *diags, sn_loss *out);
