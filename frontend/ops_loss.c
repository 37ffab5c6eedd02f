// Losses over labels. The mean divides by the weights of the labels that are not ignored, counted over the whole batch.
#include "frontend/handlers.h"

#include <string.h>

typedef struct loss {
    sn_value *labels, *weights; // weights: one per label, NULL for all ones
    sn_value *kept;             // whether a label counts; NULL when none is ignored
    sn_dtype dtype;
    const char *reduction;
} loss;

static loss read_loss(sn_node *n, sn_value *scores) {
    loss l = {.labels = sn_emit_cast(n, sn_node_in(n, 1), SN_I64), .dtype = scores->type.dtype};
    l.reduction = sn_node_string(n, "reduction", "mean");
    if (strcmp(l.reduction, "none") && strcmp(l.reduction, "sum") && strcmp(l.reduction, "mean"))
        sn_node_fail(n, NULL, "the reduction '%s' is unknown", l.reduction);
    if (scores->type.rank < 2) sn_node_fail(n, NULL, "the scores have rank %d", scores->type.rank);
    bool ignores = sn_node_attr(n, "ignore_index");
    int64_t ignored = sn_node_int(n, "ignore_index", 0);
    sn_value *index = sn_emit_scalar(n, SN_I64, (double)ignored), *safe = l.labels;
    if (ignores) {
        sn_value *drop = sn_emit_binary(n, SN_OP_EQUAL, l.labels, index);
        l.kept = sn_emit_unary(n, SN_OP_NOT, drop);
        safe = sn_emit_where(n, l.kept, l.labels, sn_emit_scalar(n, SN_I64, 0));
    }
    sn_value *weight = sn_node_optional(n, 2);
    if (weight) l.weights = sn_emit_gather(n, sn_emit_cast(n, weight, l.dtype), safe, 0);
    if (weight && l.kept) l.weights = sn_emit_where(n, l.kept, l.weights, sn_emit_scalar(n, l.dtype, 0));
    return l;
}

static sn_value *sum_all(sn_node *n, sn_value *x) {
    int64_t axes[SN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) axes[i] = i;
    return sn_emit_reduce(n, SN_OP_REDUCE_SUM, x, x->type.rank, axes, false);
}

// `losses` is one per label, 0 where ignored, not weighted yet.
static sn_value *reduce_loss(sn_node *n, const loss *l, sn_value *losses) {
    if (l->weights) losses = sn_emit_binary(n, SN_OP_MUL, losses, sn_emit_cast(n, l->weights, losses->type.dtype));
    if (strcmp(l->reduction, "none") == 0) return sn_emit_cast(n, losses, l->dtype);
    sn_value *sum = sum_all(n, losses);
    if (strcmp(l->reduction, "mean") == 0) {
        sn_value *count;
        if (l->weights)
            count = sum_all(n, sn_emit_cast(n, l->weights, losses->type.dtype));
        else if (l->kept)
            count = sum_all(n, sn_emit_cast(n, l->kept, losses->type.dtype));
        else
            count = sn_emit_scalar(n, losses->type.dtype, (double)sn_type_count(losses->type));
        sum = sn_emit_binary(n, SN_OP_DIV, sum, count);
    }
    return sn_emit_cast(n, sum, l->dtype);
}

void sn_handle_softmax_cross_entropy(sn_node *n) {
    sn_value *scores = sn_node_in(n, 0);
    loss l = read_loss(n, scores);
    // Without ignore_index no label is special: an impossible one stands for none.
    int64_t ignored = l.kept ? sn_node_int(n, "ignore_index", 0) : INT64_MIN;
    sn_attr attrs[] = {sn_attr_int("axis", 1), sn_attr_int("ignore_index", ignored)};
    sn_value *losses = sn_emit(n, SN_OP_CROSS_ENTROPY, 2, (sn_value *[]){scores, l.labels}, 2, attrs, NULL)->results[0];
    sn_node_out(n, 0, reduce_loss(n, &l, losses));
    if (sn_node_wants(n, 1)) sn_node_out(n, 1, sn_emit_along(n, SN_OP_LOG_SOFTMAX, scores, 1));
}

void sn_handle_nll_loss(sn_node *n) {
    sn_value *scores = sn_node_in(n, 0);
    loss l = read_loss(n, scores);
    sn_value *safe = l.labels;
    if (l.kept) safe = sn_emit_where(n, l.kept, l.labels, sn_emit_scalar(n, SN_I64, 0));
    int64_t dims[SN_MAX_RANK];
    for (int i = 0; i < scores->type.rank; i++) dims[i] = i == 1 ? 1 : scores->type.dim[i];
    sn_value *column = sn_emit_reshape(n, safe, scores->type.rank, dims);
    sn_attr axis = sn_attr_int("axis", 1);
    sn_value *picked = sn_emit(n, SN_OP_GATHER_ELEMENTS, 2, (sn_value *[]){scores, column}, 1, &axis, NULL)->results[0];
    sn_value *losses = sn_emit_unary(n, SN_OP_NEG, sn_emit_reshape(n, picked, l.labels->type.rank, l.labels->type.dim));
    if (l.kept) losses = sn_emit_where(n, l.kept, losses, sn_emit_scalar(n, losses->type.dtype, 0));
    sn_node_out(n, 0, reduce_loss(n, &l, losses));
}
