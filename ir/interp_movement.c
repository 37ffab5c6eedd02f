// Generators and operators that move elements without arithmetic.
#include "base/philox.h"
#include "ir/interp_reference.h"

const char *sn_reference_constant(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)in;
    int64_t count = sn_type_count(out->type);
    if (sn_tensor_is_float(out)) {
        double value = sn_op_float(op, "value");
        for (int64_t i = 0; i < count; i++) sn_put_f64(out, i, value);
    } else {
        int64_t bits = sn_op_int(op, "bits");
        for (int64_t i = 0; i < count; i++) sn_put_i64(out, i, bits);
    }
    return NULL;
}

// On a mesh of one rank every coordinate is 0.
const char *sn_reference_axis_index(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)op, (void)in;
    sn_put_i64(out, 0, 0);
    return NULL;
}

const char *sn_reference_iota(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)in;
    int64_t axis = sn_op_int(op, "axis"), start = sn_op_int(op, "start"), step = sn_op_int(op, "step");
    for (sn_walk w = sn_walk_over(out->type); w.left; sn_walk_next(&w))
        sn_put_i64(out, w.index, (int64_t)((uint64_t)start + (uint64_t)step * (uint64_t)w.at[axis])); // wraps
    return NULL;
}

// The element index counts in the whole tensor (`global`), of which the result may be a part along `dims`.
const char *sn_reference_random(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    int rank;
    const int64_t *global = sn_op_ints(op, "global", &rank);
    int n_cut;
    const int64_t *cut = sn_op_ints(op, "dims", &n_cut);
    int64_t stride[SN_MAX_RANK] = {0}, whole = 1;
    if (!sn_op_attr(op, "global")) global = out->type.dim, rank = out->type.rank; // not cut
    if (rank != out->type.rank) return "the whole tensor has another rank than its part";
    for (int d = rank - 1; d >= 0; d--) {
        stride[d] = whole;
        whole *= global[d];
    }
    sn_walk w = sn_walk_over(out->type);
    sn_walk_add(&w, stride);
    int64_t base = 0;
    for (int i = 0; i < n_cut; i++) base += sn_at_i64(&in[2 + i], 0) * stride[cut[i]];
    uint64_t seed = (uint64_t)sn_at_i64(&in[0], 0);
    uint32_t step = (uint32_t)sn_at_i64(&in[1], 0), id = (uint32_t)sn_op_int(op, "id");
    for (; w.left; sn_walk_next(&w))
        sn_put_f64(out, w.index, sn_random_uniform(seed, step, id, (uint64_t)(base + w.offset[0])));
    return NULL;
}

// Element (i0, i1, …) of the result is element start + i0*stride[0] + i1*stride[1] + … of the operand.
static void read_strided(const sn_tensor *in, int64_t start, const int64_t *stride, sn_tensor *out) {
    sn_walk w = sn_walk_over(out->type);
    sn_walk_add(&w, stride);
    for (; w.left; sn_walk_next(&w)) sn_copy_element(out, w.index, in, start + w.offset[0]);
}

const char *sn_reference_transpose(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    const int64_t *perm = sn_op_ints(op, "perm", NULL);
    int64_t from[SN_MAX_RANK] = {0}, stride[SN_MAX_RANK] = {0};
    sn_type_strides(in->type, from);
    for (int d = 0; d < out->type.rank; d++) stride[d] = from[perm[d]];
    read_strided(in, 0, stride, out);
    return NULL;
}

const char *sn_reference_broadcast(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)op;
    int64_t stride[SN_MAX_RANK] = {0};
    sn_broadcast_strides(in->type, out->type, stride);
    read_strided(in, 0, stride, out);
    return NULL;
}

const char *sn_reference_slice(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    const int64_t *starts = sn_op_ints(op, "starts", NULL), *steps = sn_op_ints(op, "steps", NULL);
    int64_t from[SN_MAX_RANK] = {0}, stride[SN_MAX_RANK] = {0}, start = 0;
    sn_type_strides(in->type, from);
    for (int d = 0; d < out->type.rank; d++) {
        start += starts[d] * from[d];
        stride[d] = out->type.dim[d] > 1 ? steps[d] * from[d] : 0; // a step that is not taken may be anything
    }
    read_strided(in, start, stride, out);
    return NULL;
}

// Copies the operand to where it lies inside the result.
static void write_at(sn_tensor *out, const int64_t *low, const sn_tensor *in) {
    int64_t stride[SN_MAX_RANK] = {0}, start = 0;
    sn_type_strides(out->type, stride);
    for (int d = 0; d < out->type.rank; d++) start += low[d] * stride[d];
    sn_walk w = sn_walk_over(in->type);
    sn_walk_add(&w, stride);
    for (; w.left; sn_walk_next(&w)) sn_copy_element(out, start + w.offset[0], in, w.index);
}

const char *sn_reference_pad(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    double value = sn_op_float(op, "value");
    int64_t count = sn_type_count(out->type);
    for (int64_t i = 0; i < count; i++) sn_put_f64(out, i, value);
    write_at(out, sn_op_ints(op, "low", NULL), in);
    return NULL;
}

const char *sn_reference_concat(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    int64_t axis = sn_op_int(op, "axis"), low[SN_MAX_RANK] = {0};
    for (int i = 0; i < op->n_operands; i++) {
        write_at(out, low, &in[i]);
        low[axis] += in[i].type.dim[axis];
    }
    return NULL;
}
