#include "backend/lower/element.h"

sn_dtype sn_lower_compute_type(sn_dtype dtype) {
    return dtype == SN_F16 || dtype == SN_BF16 ? SN_F32 : dtype;
}

sn_kir_node *sn_lower_round(sn_lower *l, sn_kir_node *node, sn_dtype dtype) {
    return dtype == SN_F16 || dtype == SN_BF16 ? sn_kir_cast(l->k, node, dtype) : node;
}

sn_kir_node *sn_lower_zero(sn_lower *l, sn_dtype dtype) {
    return sn_dtype_is_float(dtype) ? sn_kir_number(l->k, dtype, 0) : sn_kir_int(l->k, dtype, 0);
}

sn_kir_node *sn_lower_convert(sn_lower *l, sn_kir_node *node, sn_dtype from, sn_dtype to) {
    if (from == to) return node;
    if (to == SN_BOOL) return sn_kir_ne(l->k, node, sn_lower_zero(l, from));
    if (to == SN_F16 || to == SN_BF16) {
        if (node->dtype != SN_F32) node = sn_kir_cast(l->k, node, SN_F32);
        return sn_kir_cast(l->k, node, to);
    }
    return node->dtype == to ? node : sn_kir_cast(l->k, node, to);
}

sn_kir_node *sn_lower_flat(sn_lower *l, sn_type type, const sn_point *point) {
    sn_kir_node *flat = sn_kir_index(l->k, 0);
    for (int i = 0; i < type.rank; i++) flat = sn_kir_add(l->k, sn_kir_muli(l->k, flat, type.dim[i]), point->at[i]);
    return flat;
}

sn_point sn_lower_unflat(sn_lower *l, sn_type type, sn_kir_node *flat) {
    sn_point point = {0};
    int64_t stride[SN_MAX_RANK];
    sn_type_strides(type, stride);
    for (int i = 0; i < type.rank; i++) {
        sn_kir_node *at = type.dim[i] <= 1 ? sn_kir_index(l->k, 0) : sn_kir_divi(l->k, flat, stride[i]);
        bool leading = i == 0 || sn_type_count(type) == type.dim[i] * stride[i];
        point.at[i] = type.dim[i] > 1 && !leading ? sn_kir_modi(l->k, at, type.dim[i]) : at;
    }
    return point;
}

static bool same_point(const sn_point *a, const sn_point *b, int rank) {
    for (int i = 0; i < rank; i++)
        if (a->at[i] != b->at[i]) return false;
    return true;
}

void sn_lower_remember(sn_lower *l, const sn_value *value, const sn_point *point, sn_kir_node *node) {
    sn_vec_push(&l->known,
                (sn_known_element){.value = value, .point = *point, .predicate = l->predicate, .node = node});
}

void sn_lower_remember_row(sn_lower *l, const sn_value *value, const sn_point *kept, sn_kir_buffer *scratch) {
    sn_vec_push(&l->known, (sn_known_element){.value = value, .point = *kept, .scratch = scratch});
}

// The element at `point` when it lies in the row that the scratch array holds.
static sn_kir_node *recall_row(sn_lower *l, const sn_known_element *known, const sn_point *point) {
    sn_type type = known->value->type;
    sn_kir_node *at = sn_kir_index(l->k, 0);
    for (int i = 0; i < type.rank; i++) {
        if (known->point.at[i] && known->point.at[i] != point->at[i]) return NULL;
        if (!known->point.at[i]) at = sn_kir_add(l->k, sn_kir_muli(l->k, at, type.dim[i]), point->at[i]);
    }
    return sn_kir_load(l->k, known->scratch, at);
}

// An unpredicated element also serves where a predicate holds: it was read safely.
static sn_kir_node *recall(sn_lower *l, const sn_value *value, const sn_point *point) {
    for (size_t i = l->known.count; i-- > 0;) {
        const sn_known_element *known = &l->known.data[i];
        if (known->value != value) continue;
        if (known->scratch) {
            sn_kir_node *node = l->predicate ? NULL : recall_row(l, known, point);
            if (node) return node;
        } else if ((known->predicate == l->predicate || !known->predicate) &&
                   same_point(&known->point, point, value->type.rank)) {
            return known->node;
        }
    }
    return NULL;
}

static sn_kir_node *load(sn_lower *l, const sn_value *arg, const sn_point *point) {
    if (sn_type_count(arg->type) == 0) return sn_lower_zero(l, arg->type.dtype);
    sn_kir_node *flat = sn_lower_flat(l, arg->type, point);
    sn_kir_buffer *buffer = l->buffers[arg->index];
    if (!l->predicate) return sn_kir_load(l->k, buffer, flat);
    return sn_kir_load_if(l->k, buffer, flat, l->predicate, sn_lower_zero(l, arg->type.dtype));
}

sn_kir_node *sn_lower_element(sn_lower *l, const sn_value *value, const sn_point *point) {
    sn_kir_node *found = recall(l, value, point);
    if (found) return found;
    if (value->kind == SN_VALUE_ARG) {
        found = load(l, value, point);
        sn_lower_remember(l, value, point, found);
        return found;
    }
    SN_CHECK(value->kind == SN_VALUE_RESULT);
    const sn_op *op = value->def;
    sn_kir_node *out[8] = {0};
    SN_CHECK(op->n_results <= 8 && sn_lower_rules[op->kind]);
    sn_lower_rules[op->kind](l, op, point, out);
    for (int i = 0; i < op->n_results; i++) sn_lower_remember(l, op->results[i], point, out[i]);
    return out[value->index];
}

sn_kir_node *sn_lower_broadcast_element(sn_lower *l, const sn_value *value, sn_type result, const sn_point *point) {
    sn_point at = {0};
    int skip = result.rank - value->type.rank;
    for (int i = 0; i < value->type.rank; i++)
        at.at[i] = value->type.dim[i] == 1 ? sn_kir_index(l->k, 0) : point->at[skip + i];
    return sn_lower_element(l, value, &at);
}

sn_kir_node *sn_lower_for(sn_lower *l, sn_kir_mapping mapping, sn_kir_node *low, sn_kir_node *high, int64_t step) {
    sn_vec_push(&l->scopes, l->known.count);
    return sn_kir_for(l->k, mapping, low, high, step);
}

sn_kir_node *sn_lower_for_count(sn_lower *l, int64_t count) {
    return sn_lower_for(l, SN_KIR_SERIAL, sn_kir_index(l->k, 0), sn_kir_index(l->k, count), 1);
}

void sn_lower_end(sn_lower *l) {
    sn_kir_end(l->k);
    l->known.count = l->scopes.data[--l->scopes.count];
}

sn_kir_node *sn_lower_guard(sn_lower *l, sn_kir_node *condition) {
    sn_kir_node *outer = l->predicate;
    l->predicate = outer ? sn_kir_and(l->k, outer, condition) : condition;
    return outer;
}

void sn_lower_unguard(sn_lower *l, sn_kir_node *outer) {
    l->predicate = outer;
}
