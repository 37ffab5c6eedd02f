// Operators that move elements or only rename dims.
#include "frontend/handlers.h"

#include <string.h>

enum { MOST_PARTS = 1 << 20 };

void sn_handle_reshape(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int rank, open = -1;
    const int64_t *wanted = sn_node_known_ints(n, 1, &rank);
    bool allow_zero = sn_node_int(n, "allowzero", 0);
    int64_t dims[SN_MAX_RANK], rest = 1;
    if (rank > SN_MAX_RANK) sn_node_unsupported(n, "rank %d, where %d is the most", rank, SN_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        dims[i] = wanted[i];
        if (dims[i] == 0 && !allow_zero) {
            if (i >= x->type.rank)
                sn_node_fail(n, NULL, "dim %d is to be kept, but the input has rank %d", i, x->type.rank);
            dims[i] = x->type.dim[i];
        }
        if (dims[i] < -1 || (dims[i] == -1 && open >= 0)) sn_node_fail(n, NULL, "the shape has more than one open dim");
        if (dims[i] == -1)
            open = i;
        else if (__builtin_mul_overflow(rest, dims[i], &rest))
            sn_node_fail(n, NULL, "the shape is larger than an address space");
    }
    if (open >= 0) dims[open] = rest ? sn_type_count(x->type) / rest : 0;
    if (sn_type_count(sn_type_make(x->type.dtype, rank, dims)) != sn_type_count(x->type))
        sn_node_fail(n, NULL, "%lld elements do not fill the shape", (long long)sn_type_count(x->type));
    sn_node_out(n, 0, sn_emit_reshape(n, x, rank, dims));
}

void sn_handle_flatten(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t axis = sn_node_int(n, "axis", 1), dims[2] = {1, 1};
    int rank = x->type.rank, at = axis == rank ? rank : sn_node_axis(n, axis, rank ? rank : 1);
    for (int i = 0; i < rank; i++) dims[i >= at] *= x->type.dim[i];
    sn_node_out(n, 0, sn_emit_reshape(n, x, 2, dims));
}

void sn_handle_squeeze(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int count, rank = 0;
    const int64_t *axes = sn_node_ints_or_input(n, "axes", 1, &count);
    bool gone[SN_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) gone[sn_node_axis(n, axes[i], x->type.rank)] = true;
    int64_t dims[SN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        if (!axes && x->type.dim[i] == 1) continue;
        if (gone[i] && x->type.dim[i] != 1) sn_node_fail(n, NULL, "dim %d is not 1", i);
        if (!gone[i]) dims[rank++] = x->type.dim[i];
    }
    sn_node_out(n, 0, sn_emit_reshape(n, x, rank, dims));
}

void sn_handle_unsqueeze(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int count, from = 0;
    const int64_t *axes = sn_node_ints_or_input(n, "axes", 1, &count);
    if (count > SN_MAX_RANK - x->type.rank)
        sn_node_unsupported(n, "%d dims more than %d, where %d is the most", count, x->type.rank, SN_MAX_RANK);
    int rank = x->type.rank + count;
    bool added[SN_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) {
        int axis = sn_node_axis(n, axes[i], rank);
        if (added[axis]) sn_node_fail(n, NULL, "axis %d is given twice", axis);
        added[axis] = true;
    }
    int64_t dims[SN_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = added[i] ? 1 : x->type.dim[from++];
    sn_node_out(n, 0, sn_emit_reshape(n, x, rank, dims));
}

void sn_handle_transpose(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int count, rank = x->type.rank;
    const int64_t *given = sn_node_ints(n, "perm", &count);
    int64_t perm[SN_MAX_RANK];
    if (given && count != rank) sn_node_fail(n, NULL, "perm has %d numbers for rank %d", count, rank);
    for (int i = 0; i < rank; i++) perm[i] = given ? sn_node_axis(n, given[i], rank) : rank - 1 - i;
    sn_node_out(n, 0, sn_emit_transpose(n, x, perm));
}

void sn_handle_concat(sn_node *n) {
    int count = sn_node_inputs(n), kept = 0;
    if (!count) sn_node_fail(n, NULL, "it has no input");
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), sn_node_in(n, 0)->type.rank);
    sn_value **parts = SN_NEW_N(sn_node_arena(n), sn_value *, count);
    for (int i = 0; i < count; i++) {
        sn_value *part = sn_node_in(n, i);
        bool empty = axis < part->type.rank && part->type.dim[axis] == 0;
        if (!empty || (i + 1 == count && !kept)) parts[kept++] = part;
    }
    sn_node_out(n, 0, sn_emit_concat(n, kept, parts, axis));
}

// Sizes as given, else `parts` equal ones of which the last may be smaller.
void sn_handle_split(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), x->type.rank), count;
    const int64_t *sizes = sn_node_ints_or_input(n, "split", 1, &count);
    int parts = sizes ? count : (int)sn_node_int_within(n, "num_outputs", sn_node_outputs(n), 1, MOST_PARTS);
    if (parts < 1 || parts < sn_node_outputs(n)) sn_node_fail(n, NULL, "it has more outputs than parts");
    int64_t size = x->type.dim[axis], chunk = (size + parts - 1) / parts, start = 0;
    for (int i = 0; i < parts; i++) {
        int64_t left = size - start, part = sizes ? sizes[i] : chunk < left ? chunk : left;
        if (part < 0 || part > left)
            sn_node_fail(n, NULL, "the parts do not sum to the dim's size %lld", (long long)size);
        if (sn_node_wants(n, i)) sn_node_out(n, i, sn_emit_part(n, x, axis, start, part));
        start += part;
    }
    if (start != size) sn_node_fail(n, NULL, "the parts do not sum to the dim's size %lld", (long long)size);
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

// One dim of a slice: numpy's start:end:step.
static void slice_dim(sn_node *n, int64_t size, int64_t start, int64_t end, int64_t step, int64_t *from,
                      int64_t *count) {
    if (step == 0) sn_node_fail(n, NULL, "a step is 0");
    if (step == INT64_MIN) step++;
    start = start < 0 ? start + size : start;
    end = end < 0 ? (end < -size ? -1 : end + size) : end;
    if (step > 0) {
        *from = clamp(start, 0, size);
        end = clamp(end, 0, size);
        *count = end > *from ? (end - *from - 1) / step + 1 : 0;
    } else {
        *from = clamp(start, 0, size ? size - 1 : 0);
        end = clamp(end, -1, size);
        *count = size && *from > end ? (*from - end - 1) / -step + 1 : 0;
    }
    if (*count == 0) *from = 0;
}

void sn_handle_slice(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int n_starts, n_ends, n_axes, n_steps = 0, rank = x->type.rank;
    const int64_t *starts = sn_node_ints_or_input(n, "starts", 1, &n_starts);
    const int64_t *ends = sn_node_ints_or_input(n, "ends", 2, &n_ends);
    const int64_t *axes = sn_node_ints_or_input(n, "axes", 3, &n_axes);
    const int64_t *steps = sn_node_has(n, 4) ? sn_node_known_ints(n, 4, &n_steps) : NULL;
    if (!starts || !ends || n_starts != n_ends || (axes && n_axes != n_starts) || (steps && n_steps != n_starts))
        sn_node_fail(n, NULL, "starts, ends, axes and steps have different lengths");
    if (n_starts > rank) sn_node_fail(n, NULL, "it slices %d dims of rank %d", n_starts, rank);
    int64_t from[SN_MAX_RANK] = {0}, by[SN_MAX_RANK], sizes[SN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        by[i] = 1;
        sizes[i] = x->type.dim[i];
    }
    for (int i = 0; i < n_starts; i++) {
        int axis = axes ? sn_node_axis(n, axes[i], rank) : i;
        by[axis] = steps ? steps[i] : 1;
        slice_dim(n, x->type.dim[axis], starts[i], ends[i], by[axis], &from[axis], &sizes[axis]);
        if (sizes[axis] <= 1) by[axis] = 1; // not taken, and may be anything
    }
    sn_node_out(n, 0, sn_emit_slice(n, x, from, by, sizes));
}

void sn_handle_expand(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int rank;
    const int64_t *dims = sn_node_known_ints(n, 1, &rank);
    sn_type out;
    if (rank > SN_MAX_RANK) sn_node_unsupported(n, "rank %d, where %d is the most", rank, SN_MAX_RANK);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0) sn_node_fail(n, NULL, "a dim is negative");
    if (!sn_type_broadcast(x->type, sn_type_make(x->type.dtype, rank, dims), &out))
        sn_node_fail(n, NULL, "its input does not broadcast to the shape");
    sn_node_out(n, 0, sn_emit_broadcast(n, x, out.rank, out.dim));
}

void sn_handle_tile(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int count, rank = x->type.rank;
    const int64_t *repeats = sn_node_known_ints(n, 1, &count);
    if (count != rank) sn_node_fail(n, NULL, "repeats has %d numbers for rank %d", count, rank);
    for (int i = 0; i < rank; i++) {
        if (repeats[i] < 0 || repeats[i] > 1 << 20) sn_node_fail(n, NULL, "a repeat is out of range");
        if (repeats[i] == 0) {
            x = sn_emit_part(n, x, i, 0, 0);
            continue;
        }
        sn_value **parts = SN_NEW_N(sn_node_arena(n), sn_value *, repeats[i]);
        for (int64_t p = 0; p < repeats[i]; p++) parts[p] = x;
        x = sn_emit_concat(n, (int)repeats[i], parts, i);
    }
    sn_node_out(n, 0, x);
}

// The part of x reached by walking outwards from an edge: a mirror image (reflect), a copy of the edge, or the far
// side.
static sn_value *padding_part(sn_node *n, sn_value *x, const char *mode, int axis, int64_t width, bool low) {
    int64_t size = x->type.dim[axis];
    sn_type type = sn_type_make(SN_I64, 1, &width);
    int64_t start, step, *index = sn_node_table(n, type);
    if (strcmp(mode, "edge") == 0) {
        start = low ? 0 : size - 1;
        step = 0;
    } else if (strcmp(mode, "wrap") == 0) {
        start = low ? size - width % size : 0;
        step = 1;
    } else {
        start = low ? width : size - 2;
        step = -1;
    }
    for (int64_t i = 0; i < width; i++) {
        int64_t at = start + i * step;
        int64_t period = strcmp(mode, "reflect") == 0 ? 2 * (size - 1) : size;
        if (step && period > 0) at = ((at % period) + period) % period;
        if (strcmp(mode, "reflect") == 0) at = size == 1 ? 0 : at >= size ? period - at : at;
        index[i] = at;
    }
    return sn_emit_gather(n, x, sn_node_constant(n, type, index), axis);
}

static sn_value *pad_axis(sn_node *n, sn_value *x, const char *mode, int axis, int64_t low, int64_t high) {
    sn_value *parts[3];
    int count = 0;
    if (x->type.dim[axis] == 0) sn_node_fail(n, NULL, "an empty dim cannot be padded in mode %s", mode);
    if (low > 0) parts[count++] = padding_part(n, x, mode, axis, low, true);
    parts[count++] = x;
    if (high > 0) parts[count++] = padding_part(n, x, mode, axis, high, false);
    return sn_emit_concat(n, count, parts, axis);
}

// Padding by a number that is known only at run time: padding with 0 and a mask.
static sn_value *pad_value(sn_node *n, sn_value *x, const int64_t *low, const int64_t *high) {
    sn_value *number = sn_node_optional(n, 2);
    if (!number || sn_node_known(n, number))
        return sn_emit_pad(n, x, low, high, sn_node_known_number(n, 2, sn_node_float(n, "value", 0)));
    sn_value *inside = sn_emit_pad(n, sn_emit_splat(n, sn_type_with_dtype(x->type, SN_F32), 1), low, high, 0);
    sn_value *scalar = sn_emit_reshape(n, number, 0, NULL);
    return sn_emit_where(n, sn_emit_number(n, SN_OP_GREATER, inside, 0), sn_emit_pad(n, x, low, high, 0), scalar);
}

// Negative pads cut.
static sn_value *cut(sn_node *n, sn_value *x, int64_t *low, int64_t *high) {
    for (int i = 0; i < x->type.rank; i++) {
        int64_t before = low[i] < 0 ? -low[i] : 0, after = high[i] < 0 ? -high[i] : 0;
        if (before + after > x->type.dim[i]) sn_node_fail(n, NULL, "it cuts more than there is");
        if (before || after) x = sn_emit_part(n, x, i, before, x->type.dim[i] - before - after);
        low[i] += before;
        high[i] += after;
    }
    return x;
}

void sn_handle_pad(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int count, n_axes = 0, rank = x->type.rank;
    const int64_t *pads = sn_node_ints_or_input(n, "pads", 1, &count);
    const int64_t *axes = sn_node_has(n, 3) ? sn_node_known_ints(n, 3, &n_axes) : NULL;
    const char *mode = sn_node_string(n, "mode", "constant");
    int covered = axes ? n_axes : rank;
    if (!pads || count != 2 * covered)
        sn_node_fail(n, NULL, "pads has %d numbers where %d are expected", count, 2 * covered);
    int64_t low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    for (int i = 0; i < covered; i++) {
        int axis = axes ? sn_node_axis(n, axes[i], rank) : i;
        low[axis] = pads[i];
        high[axis] = pads[covered + i];
        if (pads[i] < -SN_MAX_ELEMENTS || pads[i] > SN_MAX_ELEMENTS || pads[covered + i] < -SN_MAX_ELEMENTS ||
            pads[covered + i] > SN_MAX_ELEMENTS)
            sn_node_fail(n, NULL, "a pad is out of range");
    }
    x = cut(n, x, low, high);
    if (strcmp(mode, "constant") == 0) {
        x = pad_value(n, x, low, high);
    } else if (strcmp(mode, "edge") == 0 || strcmp(mode, "reflect") == 0 || strcmp(mode, "wrap") == 0) {
        for (int i = 0; i < rank; i++)
            if (low[i] || high[i]) x = pad_axis(n, x, mode, i, low[i], high[i]);
    } else {
        sn_node_fail(n, NULL, "the mode '%s' is unknown", mode);
    }
    sn_node_out(n, 0, x);
}

void sn_handle_trilu(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int rank = x->type.rank;
    bool upper = sn_node_int(n, "upper", 1);
    int64_t k = sn_node_known_int(n, 1, 0);
    sn_type plane = sn_type_make(SN_I64, 2, x->type.dim + rank - 2);
    sn_value *rows = sn_emit_iota(n, plane, 0, k, 1), *columns = sn_emit_iota(n, plane, 1, 0, 1);
    sn_value *kept = sn_emit_binary(n, upper ? SN_OP_GREATER_EQUAL : SN_OP_LESS_EQUAL, columns, rows);
    sn_node_out(n, 0, sn_emit_where(n, kept, x, sn_emit_scalar(n, x->type.dtype, 0)));
}

static int64_t block_size(sn_node *n, const sn_value *x, int64_t *dims) {
    int64_t block = sn_node_int_within(n, "blocksize", 0, 1, 1 << 20);
    memcpy(dims, x->type.dim, 4 * sizeof *dims);
    return block;
}

void sn_handle_depth_to_space(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t d[4], b = block_size(n, x, d);
    bool crd = sn_node_string_is(n, "mode", "DCR", "CRD");
    if (d[1] % (b * b)) sn_node_fail(n, NULL, "the channels do not divide by the block's size");
    int64_t c = d[1] / (b * b);
    const int64_t depth_first[] = {d[0], b, b, c, d[2], d[3]}, column_first[] = {d[0], c, b, b, d[2], d[3]};
    static const int64_t depth_perm[] = {0, 3, 4, 1, 5, 2}, column_perm[] = {0, 1, 4, 2, 5, 3};
    sn_value *cut_up = sn_emit_reshape(n, x, 6, crd ? column_first : depth_first);
    sn_value *moved = sn_emit_transpose(n, cut_up, crd ? column_perm : depth_perm);
    sn_node_out(
        n, 0, sn_emit_reshape(n, moved, 4, (int64_t[]){d[0], c, sn_node_times(n, d[2], b), sn_node_times(n, d[3], b)}));
}

void sn_handle_space_to_depth(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t d[4], b = block_size(n, x, d);
    if (d[2] % b || d[3] % b) sn_node_fail(n, NULL, "the image does not divide by the block's size");
    sn_value *cut_up = sn_emit_reshape(n, x, 6, (int64_t[]){d[0], d[1], d[2] / b, b, d[3] / b, b});
    sn_value *moved = sn_emit_transpose(n, cut_up, (int64_t[]){0, 3, 5, 1, 2, 4});
    sn_node_out(n, 0,
                sn_emit_reshape(n, moved, 4, (int64_t[]){d[0], sn_node_times(n, d[1], b * b), d[2] / b, d[3] / b}));
}

void sn_handle_center_crop_pad(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int count, n_axes, rank = x->type.rank;
    const int64_t *shape = sn_node_known_ints(n, 1, &count), *axes = sn_node_ints(n, "axes", &n_axes);
    int64_t low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    if (count != (axes ? n_axes : rank)) sn_node_fail(n, NULL, "shape and axes have different lengths");
    for (int i = 0; i < count; i++) {
        int axis = axes ? sn_node_axis(n, axes[i], rank) : i;
        if (shape[i] < 0 || shape[i] > SN_MAX_ELEMENTS) sn_node_fail(n, NULL, "a dim is out of range");
        int64_t more = shape[i] - x->type.dim[axis];
        if (more < 0) x = sn_emit_part(n, x, axis, -more / 2, shape[i]);
        if (more > 0) {
            low[axis] = more / 2;
            high[axis] = more - more / 2;
        }
    }
    sn_node_out(n, 0, sn_emit_pad(n, x, low, high, 0));
}
