// Values that follow from attributes and shapes alone.
#include "frontend/handlers.h"

#include "frontend/import.h"

#include <math.h>
#include <string.h>

static sn_value *float_list(sn_node *n, const Onnx__AttributeProto *attr) {
    int64_t count = (int64_t)attr->n_floats;
    return sn_node_constant(n, sn_type_make(SN_F32, 1, &count), attr->floats);
}

static sn_value *int_list(sn_node *n, const Onnx__AttributeProto *attr) {
    int64_t count = (int64_t)attr->n_ints;
    return sn_node_constant_ints(n, 1, &count, attr->ints);
}

void sn_handle_constant(sn_node *n) {
    const Onnx__AttributeProto *attr;
    sn_value *value = NULL;
    if ((attr = sn_node_attr(n, "value")) && attr->t) {
        const char *name = sn_node_outputs(n) ? n->proto->output[0] : n->name;
        value = sn_import_tensor(n->import, attr->t, sn_arena_printf(sn_node_arena(n), "%s%s", n->scope->prefix, name));
        if (!value) return; // diagnosed
    } else if ((attr = sn_node_attr(n, "value_float"))) {
        float number = attr->f;
        value = sn_node_constant(n, sn_type_scalar(SN_F32), &number);
    } else if ((attr = sn_node_attr(n, "value_int"))) {
        value = sn_node_constant(n, sn_type_scalar(SN_I64), &attr->i);
    } else if ((attr = sn_node_attr(n, "value_floats"))) {
        value = float_list(n, attr);
    } else if ((attr = sn_node_attr(n, "value_ints"))) {
        value = int_list(n, attr);
    } else if (sn_node_attr(n, "sparse_value")) {
        sn_node_unsupported(n, "a sparse constant");
    } else if (sn_node_attr(n, "value_string") || sn_node_attr(n, "value_strings")) {
        sn_node_unsupported(n, "a constant of strings");
    } else {
        sn_node_fail(n, NULL, "it has no value");
    }
    sn_node_out(n, 0, value);
}

void sn_handle_constant_of_shape(sn_node *n) {
    int rank;
    const int64_t *dims = sn_node_known_ints(n, 0, &rank);
    const Onnx__AttributeProto *attr = sn_node_attr(n, "value");
    if (!attr || !attr->t) {
        sn_node_out(n, 0, sn_emit_splat(n, sn_node_type(n, SN_F32, rank, dims), 0));
        return;
    }
    sn_value *value = sn_import_tensor(n->import, attr->t, n->name);
    if (!value) return; // diagnosed
    if (sn_type_count(value->type) != 1) sn_node_fail(n, NULL, "its value has more than one element");
    sn_type type = sn_node_type(n, value->type.dtype, rank, dims);
    const sn_tensor *number = sn_node_known(n, value);
    if (!number) sn_node_fail(n, "give the model its external data", "its value is not there");
    if (sn_dtype_is_float(type.dtype)) {
        sn_node_out(n, 0, sn_emit_splat(n, type, sn_load_f64(type.dtype, number->data, 0)));
        return;
    }
    sn_attr bits = sn_attr_int("bits", sn_load_i64(type.dtype, number->data, 0));
    sn_node_out(n, 0, sn_emit(n, SN_OP_CONSTANT, 0, NULL, 1, &bits, &type)->results[0]);
}

void sn_handle_shape(sn_node *n) {
    sn_type type = sn_node_in(n, 0)->type;
    int64_t start = sn_node_int(n, "start", 0), end = sn_node_int(n, "end", type.rank);
    start = start < 0 ? start + type.rank : start;
    end = end < 0 ? end + type.rank : end;
    start = start < 0 ? 0 : start > type.rank ? type.rank : start;
    end = end < start ? start : end > type.rank ? type.rank : end;
    int64_t count = end - start;
    sn_node_out(n, 0, sn_node_constant_ints(n, 1, &count, type.dim + start));
}

void sn_handle_size(sn_node *n) {
    int64_t count = sn_type_count(sn_node_in(n, 0)->type);
    sn_node_out(n, 0, sn_node_constant_ints(n, 0, NULL, &count));
}

void sn_handle_range(sn_node *n) {
    sn_dtype dtype = sn_node_in(n, 0)->type.dtype;
    double start = sn_node_known_number(n, 0, 0), limit = sn_node_known_number(n, 1, 0);
    double delta = sn_node_known_number(n, 2, 1);
    if (delta == 0 || !isfinite(start) || !isfinite(limit) || !isfinite(delta))
        sn_node_fail(n, NULL, "a range from %g to %g by %g does not end", start, limit, delta);
    double steps = ceil((limit - start) / delta);
    if (steps > SN_LARGEST_TABLE) sn_node_unsupported(n, "a range of %g elements", steps);
    int64_t count = steps > 0 ? (int64_t)steps : 0;
    sn_type type = sn_node_type(n, dtype, 1, &count);
    void *data = sn_node_table(n, type);
    bool real = sn_dtype_is_float(dtype);
    uint64_t first = real ? 0 : (uint64_t)sn_node_known_int(n, 0, 0);
    uint64_t step = real ? 0 : (uint64_t)sn_node_known_int(n, 2, 1);
    for (int64_t i = 0; i < count; i++) {
        if (real)
            sn_store_f64(dtype, data, i, start + (double)i * delta);
        else
            sn_store_i64(dtype, data, i, (int64_t)(first + (uint64_t)i * step));
    }
    sn_node_out(n, 0, sn_node_constant(n, type, data));
}

void sn_handle_eye_like(sn_node *n) {
    sn_type type = sn_node_in(n, 0)->type;
    int64_t k = sn_node_int(n, "k", 0);
    sn_dtype dtype = sn_node_dtype(n, "dtype", type.dtype);
    sn_type index = sn_type_with_dtype(type, SN_I64);
    sn_value *rows = sn_emit_iota(n, index, 0, k, 1), *columns = sn_emit_iota(n, index, 1, 0, 1);
    sn_node_out(n, 0, sn_emit_cast(n, sn_emit_binary(n, SN_OP_EQUAL, rows, columns), dtype));
}

// Indices out of range give a row of off values; negative ones count from the end.
void sn_handle_one_hot(sn_node *n) {
    sn_value *indices = sn_emit_cast(n, sn_node_in(n, 0), SN_I64), *values = sn_node_in(n, 2);
    int64_t depth = sn_node_known_int(n, 1, 0);
    int rank = indices->type.rank + 1;
    int axis = sn_node_axis(n, sn_node_int(n, "axis", -1), rank);
    int64_t dims[SN_MAX_RANK];
    if (rank > SN_MAX_RANK) sn_node_unsupported(n, "rank %d", rank);
    for (int i = 0; i < rank; i++) dims[i] = i == axis ? 1 : indices->type.dim[i < axis ? i : i - 1];
    sn_value *column = sn_emit_reshape(n, indices, rank, dims);
    dims[axis] = depth;
    sn_type type = sn_node_type(n, SN_I64, rank, dims);
    sn_value *wrapped = sn_emit_where(n, sn_emit_number(n, SN_OP_LESS, column, 0),
                                      sn_emit_number(n, SN_OP_ADD, column, (double)depth), column);
    sn_value *hot = sn_emit_binary(n, SN_OP_EQUAL, sn_emit_iota(n, type, axis, 0, 1), wrapped);
    sn_value *off = sn_emit_reshape(n, sn_emit_part(n, values, 0, 0, 1), 0, NULL);
    sn_value *on = sn_emit_reshape(n, sn_emit_part(n, values, 0, 1, 1), 0, NULL);
    sn_node_out(n, 0, sn_emit_where(n, hot, on, off));
}
