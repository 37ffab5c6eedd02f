// Gradients of operators that move elements: each rule is the transpose of the move.
#include "passes/autodiff/gradient.h"

#include <string.h>

static const int64_t ones[SN_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};

void sn_gradient_reshape(sn_gradient_walk *w, sn_op *op) {
    sn_gradient_send(w, op, 0, g_reshape_as(w, sn_gradient_of(w, op, 0), op->operands[0]->type));
}

void sn_gradient_transpose(sn_gradient_walk *w, sn_op *op) {
    int64_t inverse[SN_MAX_RANK];
    int rank;
    const int64_t *perm = sn_op_ints(op, "perm", &rank);
    for (int i = 0; i < rank; i++) inverse[perm[i]] = i;
    sn_gradient_send(w, op, 0, sn_build_transpose(w->b, sn_gradient_of(w, op, 0), inverse));
}

void sn_gradient_broadcast(sn_gradient_walk *w, sn_op *op) {
    sn_gradient_send(w, op, 0, sn_gradient_of(w, op, 0)); // sending sums over what was stretched
}

void sn_gradient_slice(sn_gradient_walk *w, sn_op *op) {
    sn_gradient_send_slice(w, op, 0, sn_gradient_of(w, op, 0), sn_op_ints(op, "starts", NULL),
                           sn_op_ints(op, "steps", NULL));
}

void sn_gradient_pad(sn_gradient_walk *w, sn_op *op) {
    const int64_t *low = sn_op_ints(op, "low", NULL);
    sn_gradient_send(w, op, 0, sn_build_slice(w->b, sn_gradient_of(w, op, 0), low, ones, op->operands[0]->type.dim));
}

void sn_gradient_concat(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    int64_t axis = sn_op_int(op, "axis"), starts[SN_MAX_RANK] = {0};
    for (int i = 0; i < op->n_operands; i++) {
        sn_type part = op->operands[i]->type;
        if (sn_gradient_wanted(w, op, i) && sn_type_count(part))
            sn_gradient_send(w, op, i, sn_build_slice(w->b, g, starts, ones, part.dim));
        starts[axis] += part.dim[axis];
    }
}

// 0 where the padding row was read (padding_idx of PyTorch's Embedding).
static sn_value *without_padding(sn_gradient_walk *w, const sn_op *op, sn_value *g) {
    int64_t padding = sn_op_int(op, "padding"), axis = sn_op_int(op, "axis");
    if (padding < 0) return g;
    sn_value *indices = op->operands[1];
    sn_type along = indices->type; // the indices' dims, followed by 1 for each dim of a row
    for (int i = 0; i < op->operands[0]->type.rank - axis - 1; i++) along.dim[along.rank++] = 1;
    sn_value *is_padding = g_compare(w, SN_OP_EQUAL, g_reshape_as(w, indices, along), (double)padding);
    return sn_build_where(w->b, is_padding, sn_build_number_like(w->b, g, 0), g);
}

void sn_gradient_gather(sn_gradient_walk *w, sn_op *op) {
    if (!sn_gradient_wanted(w, op, 0)) return;
    sn_value *operands[] = {op->operands[1], without_padding(w, op, sn_gradient_of(w, op, 0))};
    sn_attr axis = sn_attr_int("axis", sn_op_int(op, "axis"));
    sn_op *grad = sn_build(w->b, SN_OP_GATHER_GRAD, 2, operands, 1, &axis, &op->operands[0]->type);
    sn_gradient_send(w, op, 0, grad->results[0]);
}

void sn_gradient_gather_grad(sn_gradient_walk *w, sn_op *op) {
    if (!sn_gradient_wanted(w, op, 1)) return;
    sn_value *g = sn_gradient_of(w, op, 0);
    sn_gradient_send(w, op, 1, sn_build_gather(w->b, g, op->operands[0], (int)sn_op_int(op, "axis")));
}

static sn_value *build_with_axis(sn_gradient_walk *w, sn_op_kind kind, int n, sn_value *const *operands, int64_t axis,
                                 const char *reduction) {
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_string("reduction", reduction ? reduction : "none")};
    return sn_build(w->b, kind, n, operands, reduction ? 2 : 1, attrs, NULL)->results[0];
}

void sn_gradient_gather_elements(sn_gradient_walk *w, sn_op *op) {
    sn_value *operands[] = {sn_build_splat(w->b, op->operands[0]->type, 0), op->operands[1], sn_gradient_of(w, op, 0)};
    sn_value *scattered = build_with_axis(w, SN_OP_SCATTER_ELEMENTS, 3, operands, sn_op_int(op, "axis"), "add");
    sn_gradient_send(w, op, 0, scattered);
}

// Index tuples that name the batch position, too: ScatterND has no batch dims.
static sn_value *with_batch_indices(sn_gradient_walk *w, sn_value *indices, int batch_dims) {
    sn_value *parts[SN_MAX_RANK + 1];
    sn_type one = indices->type;
    one.dim[one.rank - 1] = 1;
    for (int i = 0; i < batch_dims; i++) parts[i] = sn_build_iota(w->b, one, i);
    parts[batch_dims] = indices;
    return sn_build_concat(w->b, batch_dims + 1, parts, indices->type.rank - 1);
}

static sn_value *scatter_nd(sn_gradient_walk *w, sn_value *into, sn_value *indices, sn_value *updates,
                            const char *reduction) {
    sn_attr attr = sn_attr_string("reduction", reduction);
    return sn_build(w->b, SN_OP_SCATTER_ND, 3, (sn_value *[]){into, indices, updates}, 1, &attr, NULL)->results[0];
}

void sn_gradient_gather_nd(sn_gradient_walk *w, sn_op *op) {
    sn_value *indices = with_batch_indices(w, op->operands[1], (int)sn_op_int(op, "batch_dims"));
    sn_value *into = sn_build_splat(w->b, op->operands[0]->type, 0);
    sn_gradient_send(w, op, 0, scatter_nd(w, into, indices, sn_gradient_of(w, op, 0), "add"));
}

// Both scatters, through one reading and one writing function.
static sn_value *read_at(sn_gradient_walk *w, const sn_op *op, sn_value *x) {
    sn_value *operands[] = {x, op->operands[1]};
    if (op->kind == SN_OP_SCATTER_ND) return sn_build(w->b, SN_OP_GATHER_ND, 2, operands, 0, NULL, NULL)->results[0];
    return build_with_axis(w, SN_OP_GATHER_ELEMENTS, 2, operands, sn_op_int(op, "axis"), NULL);
}

static sn_value *write_at(sn_gradient_walk *w, const sn_op *op, sn_value *into, sn_value *updates, const char *how) {
    if (op->kind == SN_OP_SCATTER_ND) return scatter_nd(w, into, op->operands[1], updates, how);
    sn_value *operands[] = {into, op->operands[1], updates};
    return build_with_axis(w, SN_OP_SCATTER_ELEMENTS, 3, operands, sn_op_int(op, "axis"), how);
}

// Of the element and the updates that met at a place, those that equal the result share the gradient evenly.
static void scatter_extreme(sn_gradient_walk *w, sn_op *op, sn_value *g) {
    sn_value *x = op->operands[0], *updates = op->operands[2], *y = op->results[0];
    sn_dtype dtype = x->type.dtype;
    sn_value *kept = sn_build_cast(w->b, sn_build_binary(w->b, SN_OP_EQUAL, x, y), dtype);
    sn_value *won = sn_build_cast(w->b, sn_build_binary(w->b, SN_OP_EQUAL, updates, read_at(w, op, y)), dtype);
    sn_value *share = g_div(w, g, write_at(w, op, kept, won, "add"));
    sn_gradient_send(w, op, 0, g_mul(w, share, kept));
    sn_gradient_send(w, op, 2, g_mul(w, read_at(w, op, share), won));
}

void sn_gradient_scatter(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *x = op->operands[0], *updates = op->operands[2];
    const char *how = sn_op_string(op, "reduction");
    if (strcmp(how, "add") == 0) {
        sn_gradient_send(w, op, 0, g);
        if (sn_gradient_wanted(w, op, 2)) sn_gradient_send(w, op, 2, read_at(w, op, g));
    } else if (strcmp(how, "none") == 0) {
        if (sn_gradient_wanted(w, op, 0))
            sn_gradient_send(w, op, 0, write_at(w, op, g, sn_build_splat(w->b, updates->type, 0), "none"));
        if (sn_gradient_wanted(w, op, 2)) sn_gradient_send(w, op, 2, read_at(w, op, g));
    } else if (strcmp(how, "mul") == 0) { // as PyTorch's: undefined where an update is 0
        if (sn_gradient_wanted(w, op, 0)) {
            sn_value *factors = write_at(w, op, sn_build_splat(w->b, x->type, 1), updates, "mul");
            sn_gradient_send(w, op, 0, g_mul(w, g, factors));
        }
        if (sn_gradient_wanted(w, op, 2))
            sn_gradient_send(w, op, 2, g_div(w, read_at(w, op, g_mul(w, g, op->results[0])), updates));
    } else {
        scatter_extreme(w, op, g);
    }
}

void sn_gradient_top_k(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    sn_value *operands[] = {sn_build_splat(w->b, op->operands[0]->type, 0), op->results[1], g};
    sn_gradient_send(w, op, 0, build_with_axis(w, SN_OP_SCATTER_ELEMENTS, 3, operands, sn_op_int(op, "axis"), "none"));
}
