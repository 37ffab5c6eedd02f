// Gradients of composite operators, from the results and statistics that the forward pass keeps.
#include "passes/autodiff/gradient.h"

void sn_gradient_softmax(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *y = op->results[0];
    int64_t axis = sn_op_int(op, "axis");
    sn_value *sum = g_sum(w, g_mul(w, g, y), 1, &axis);
    sn_gradient_send(w, op, 0, g_mul(w, y, g_sub(w, g, sum)));
}

void sn_gradient_log_softmax(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    int64_t axis = sn_op_int(op, "axis");
    sn_value *p = g_un(w, SN_OP_EXP, op->results[0]);
    sn_gradient_send(w, op, 0, g_sub(w, g, g_mul(w, p, g_sum(w, g, 1, &axis))));
}

// The loss's part is (p - [class = label]) g, 0 for ignored labels; that of lse is p g. p = e^(logits - lse).
void sn_gradient_cross_entropy(sn_gradient_walk *w, sn_op *op) {
    sn_value *labels = op->operands[1], *g_loss = sn_gradient_of(w, op, 0), *g_lse = sn_gradient_of(w, op, 1);
    int64_t axis = sn_op_int(op, "axis");
    sn_type logits = op->operands[0]->type, row = logits, classes = {.rank = logits.rank};
    row.dim[axis] = 1;
    for (int i = 0; i < logits.rank; i++) classes.dim[i] = i == axis ? logits.dim[i] : 1;
    classes.dtype = labels->type.dtype;
    sn_value *x = sn_build_cast(w->b, op->operands[0], op->results[1]->type.dtype);
    sn_value *p = g_un(w, SN_OP_EXP, g_sub(w, x, g_reshape_as(w, op->results[1], row)));
    sn_value *sum = NULL;
    if (g_loss) {
        sn_value *is_ignored = g_compare(w, SN_OP_EQUAL, labels, (double)sn_op_int(op, "ignore_index"));
        sn_value *scale = sn_build_where(w->b, is_ignored, sn_build_number_like(w->b, g_loss, 0), g_loss);
        sn_value *is_label =
            sn_build_binary(w->b, SN_OP_EQUAL, sn_build_iota(w->b, classes, (int)axis), g_reshape_as(w, labels, row));
        sn_value *difference = g_sub(w, p, sn_build_cast(w->b, is_label, p->type.dtype));
        sum = g_mul(w, difference, g_reshape_as(w, scale, row));
    }
    if (g_lse) {
        sn_value *part = g_mul(w, p, g_reshape_as(w, g_lse, row));
        sum = sum ? g_add(w, sum, part) : part;
    }
    if (sum) sn_gradient_send(w, op, 0, sum);
}

// What both normalisations share: operands in the type of the statistics, and means over the normalised dims.
typedef struct norm {
    sn_value *x, *scale, *g, *rstd;
    int64_t axes[SN_MAX_RANK];
    int n_axes;
    double count;
} norm;

static norm norm_of(sn_gradient_walk *w, sn_op *op) {
    sn_value *rstd = op->results[op->n_results - 1], *g = sn_gradient_of(w, op, 0);
    sn_dtype dtype = rstd->type.dtype;
    norm n = {.rstd = rstd, .count = 1};
    n.x = sn_build_cast(w->b, op->operands[0], dtype);
    n.scale = sn_build_cast(w->b, op->operands[1], dtype);
    n.g = g ? sn_build_cast(w->b, g, dtype) : NULL;
    for (int i = (int)sn_op_int(op, "axis"); i < n.x->type.rank; i++) {
        n.axes[n.n_axes++] = i;
        n.count *= (double)n.x->type.dim[i];
    }
    return n;
}

static sn_value *mean(sn_gradient_walk *w, const norm *n, sn_value *x) {
    return g_muln(w, g_sum(w, x, n->n_axes, n->axes), 1 / n->count);
}

static sn_value *add_to(sn_gradient_walk *w, sn_value *sum, sn_value *part) {
    return sum ? g_add(w, sum, part) : part;
}

// With n = (x - mean) rstd and h = g scale: dx = rstd (h - mean(h) - n mean(h n)) (Ba et al. 2016), and from the
// statistics, when they are read: dmean / count - drstd rstd^2 n / count.
void sn_gradient_layer_norm(sn_gradient_walk *w, sn_op *op) {
    norm n = norm_of(w, op);
    sn_value *g_mean = sn_gradient_of(w, op, 1), *g_rstd = sn_gradient_of(w, op, 2), *dx = NULL;
    sn_value *normal = g_mul(w, g_sub(w, n.x, op->results[1]), n.rstd);
    if (n.g && sn_gradient_wanted(w, op, 0)) {
        sn_value *h = g_mul(w, n.g, n.scale);
        sn_value *centred = g_sub(w, h, mean(w, &n, h));
        dx = g_mul(w, n.rstd, g_sub(w, centred, g_mul(w, normal, mean(w, &n, g_mul(w, h, normal)))));
    }
    if (g_rstd) {
        sn_value *slope = g_mul(w, g_mul(w, g_rstd, g_mul(w, n.rstd, n.rstd)), normal);
        dx = add_to(w, dx, g_muln(w, slope, -1 / n.count));
    }
    if (g_mean) {
        sn_type x = n.x->type;
        dx = add_to(w, dx, sn_build_broadcast(w->b, g_muln(w, g_mean, 1 / n.count), x.rank, x.dim));
    }
    if (dx) sn_gradient_send(w, op, 0, dx);
    if (!n.g) return;
    if (sn_gradient_wanted(w, op, 1)) sn_gradient_send(w, op, 1, g_mul(w, n.g, normal));
    sn_gradient_send(w, op, 2, n.g);
}

// With n = x rstd and h = g scale: dx = rstd (h - n mean(h n)) (Zhang and Sennrich 2019), and from rstd, when it is
// read: -drstd rstd^2 n / count.
void sn_gradient_rms_norm(sn_gradient_walk *w, sn_op *op) {
    norm n = norm_of(w, op);
    sn_value *g_rstd = sn_gradient_of(w, op, 1), *dx = NULL, *normal = g_mul(w, n.x, n.rstd);
    if (n.g && sn_gradient_wanted(w, op, 0)) {
        sn_value *h = g_mul(w, n.g, n.scale);
        dx = g_mul(w, n.rstd, g_sub(w, h, g_mul(w, normal, mean(w, &n, g_mul(w, h, normal)))));
    }
    if (g_rstd) {
        sn_value *slope = g_mul(w, g_mul(w, g_rstd, g_mul(w, n.rstd, n.rstd)), normal);
        dx = add_to(w, dx, g_muln(w, slope, -1 / n.count));
    }
    if (dx) sn_gradient_send(w, op, 0, dx);
    if (n.g && sn_gradient_wanted(w, op, 1)) sn_gradient_send(w, op, 1, g_mul(w, n.g, normal));
}
