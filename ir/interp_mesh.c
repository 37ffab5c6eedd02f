#include "ir/interp_mesh.h"

#include "base/alloc.h"
#include "ir/interp_reference.h"

#include <math.h>
#include <string.h>

static int64_t coordinate(const sn_mesh *mesh, int axis, int64_t rank) {
    for (int i = mesh->n_axes - 1; i > axis; i--) rank /= mesh->size[i];
    return rank % mesh->size[axis];
}

// The place of a rank along a set of axes, the lower axis being the outer one.
static int64_t place_of(const sn_mesh *mesh, sn_axes axes, int64_t rank) {
    int64_t place = 0;
    for (int i = 0; i < mesh->n_axes; i++)
        if (axes >> i & 1) place = place * mesh->size[i] + coordinate(mesh, i, rank);
    return place;
}

// Copies `length` rows along `dim`, from row `from` of one tensor to row `to` of another.
static void copy_rows(sn_tensor *out, int64_t to, const sn_tensor *in, int64_t from, int64_t length, int dim) {
    sn_axis_split a = sn_split_at(out->type, dim), b = sn_split_at(in->type, dim);
    size_t row = sn_dtype_bytes(out->type.dtype) * (size_t)a.inner, bytes = row * (size_t)length;
    if (!bytes) return;
    for (int64_t o = 0; o < a.outer; o++)
        memcpy((char *)out->data + (size_t)(o * a.length + to) * row,
               (const char *)in->data + (size_t)(o * b.length + from) * row, bytes);
}

static bool in_group(const sn_mesh *mesh, sn_axes axes, int64_t a, int64_t b) {
    for (int i = 0; i < mesh->n_axes; i++)
        if (!(axes >> i & 1) && coordinate(mesh, i, a) != coordinate(mesh, i, b)) return false;
    return true;
}

// The sum, largest or smallest over the group of a rank, rounded once.
static sn_tensor reduce_group(const sn_mesh *mesh, sn_axes axes, int64_t rank, const char *how, const sn_tensor *in) {
    int64_t ranks = sn_mesh_ranks(mesh), count = sn_type_count(in[rank].type);
    if (!axes) {
        sn_tensor same = sn_tensor_new(in[rank].type);
        memcpy(same.data, in[rank].data, (size_t)sn_type_bytes(same.type));
        return same;
    }
    double *total = sn_alloc(sizeof *total * (size_t)(count + 1));
    bool max = strcmp(how, "max") == 0, min = strcmp(how, "min") == 0;
    for (int64_t i = 0; i < count; i++) total[i] = max ? -INFINITY : min ? INFINITY : 0;
    for (int64_t r = 0; r < ranks; r++) {
        if (!in_group(mesh, axes, r, rank)) continue;
        for (int64_t i = 0; i < count; i++) {
            double x = sn_at_f64(&in[r], i), y = total[i];
            if (!max && !min)
                total[i] = x + y;
            else if (!isnan(y) && (isnan(x) || (max ? x > y : x < y)))
                total[i] = x;
        }
    }
    sn_tensor sum = sn_tensor_new(in[rank].type);
    sn_tensor_store_doubles(&sum, total);
    sn_free(total);
    return sum;
}

// For each element of a rank's part, where it is in the whole tensor.
typedef struct part {
    sn_walk walk;                // over the part
    int64_t *whole[SN_MAX_RANK]; // per dim and local index: the whole's index times its stride
} part;

static part part_begin(const sn_mesh *mesh, sn_layout layout, int64_t rank, sn_type whole, sn_type local) {
    part p = {.walk = sn_walk_over(local)};
    int64_t stride[SN_MAX_RANK] = {0}, at[SN_MAX_AXES];
    sn_type_strides(whole, stride);
    for (int a = 0; a < mesh->n_axes; a++) at[a] = coordinate(mesh, a, rank);
    for (int d = 0; d < whole.rank; d++) {
        p.whole[d] = sn_alloc(sizeof(int64_t) * (size_t)(local.dim[d] + 1));
        for (int64_t i = 0; i < local.dim[d]; i++)
            p.whole[d][i] = sn_layout_index(mesh, layout, d, whole.dim[d], at, i) * stride[d];
    }
    return p;
}

static int64_t part_index(const part *p) {
    int64_t index = 0;
    for (int d = 0; d < p->walk.rank; d++) index += p->whole[d][p->walk.at[d]];
    return index;
}

static void part_end(part *p) {
    for (int d = 0; d < SN_MAX_RANK; d++) sn_free(p->whole[d]);
}

// Of a partial sum, the first rank holds the value and the others hold zeros.
sn_tensor sn_mesh_cut(const sn_mesh *mesh, sn_layout layout, int64_t rank, const sn_tensor *whole, sn_type local) {
    sn_tensor out = sn_tensor_new(local);
    if (place_of(mesh, layout.partial, rank) != 0 && layout.partial_kind == SN_PARTIAL_SUM) return out;
    part p = part_begin(mesh, layout, rank, whole->type, local);
    for (; p.walk.left; sn_walk_next(&p.walk)) sn_copy_element(&out, p.walk.index, whole, part_index(&p));
    part_end(&p);
    return out;
}

const char *sn_mesh_join(const sn_mesh *mesh, sn_layout layout, const sn_tensor *parts, sn_type whole, sn_tensor *out) {
    static const char *const reductions[] = {
        [SN_PARTIAL_SUM] = "sum", [SN_PARTIAL_MAX] = "max", [SN_PARTIAL_MIN] = "min"};
    int64_t ranks = sn_mesh_ranks(mesh);
    const char *problem = NULL;
    sn_tensor joined = sn_tensor_new(whole), *sums = sn_alloc(sizeof *sums * (size_t)ranks);
    for (int64_t r = 0; r < ranks; r++) {
        sums[r] = reduce_group(mesh, layout.partial, r, reductions[layout.partial_kind], parts);
        part p = part_begin(mesh, layout, r, whole, parts[r].type);
        for (; p.walk.left; sn_walk_next(&p.walk)) sn_copy_element(&joined, part_index(&p), &sums[r], p.walk.index);
        part_end(&p);
    }
    layout.partial = 0;
    for (int64_t r = 0; r < ranks; r++) { // the last copy was kept; the others must be the same
        sn_tensor again = sn_mesh_cut(mesh, layout, r, &joined, parts[r].type);
        if (memcmp(again.data, sums[r].data, (size_t)sn_type_bytes(again.type)) != 0)
            problem = "ranks disagree about a value that they all hold";
        sn_tensor_free(&again);
        sn_tensor_free(&sums[r]);
    }
    sn_free(sums);
    if (problem)
        sn_tensor_free(&joined);
    else
        *out = joined;
    return problem;
}

static void collective_of_rank(const sn_mesh *mesh, const sn_op *op, sn_axes axes, int64_t rank, const sn_tensor *in,
                               sn_tensor *out) {
    int64_t ranks = sn_mesh_ranks(mesh), place = place_of(mesh, axes, rank);
    if (op->kind == SN_OP_AXIS_INDEX) {
        sn_put_i64(out, 0, place);
    } else if (op->kind == SN_OP_SHARD) {
        int dim = (int)sn_op_int(op, "dim");
        int64_t length = out->type.dim[dim];
        copy_rows(out, 0, &in[rank], place * length, length, dim);
    } else if (op->kind == SN_OP_ALL_REDUCE || op->kind == SN_OP_REDUCE_SCATTER) {
        bool scatter = op->kind == SN_OP_REDUCE_SCATTER;
        sn_tensor sum = reduce_group(mesh, axes, rank, scatter ? "sum" : sn_op_string(op, "reduction"), in);
        int dim = scatter ? (int)sn_op_int(op, "dim") : 0;
        int64_t length = scatter ? out->type.dim[dim] : 0;
        if (scatter)
            copy_rows(out, 0, &sum, place * length, length, dim);
        else
            memcpy(out->data, sum.data, (size_t)sn_type_bytes(sum.type));
        sn_tensor_free(&sum);
    } else { // every member's rows come one after the other
        bool exchange = op->kind == SN_OP_ALL_TO_ALL;
        int dim = (int)sn_op_int(op, exchange ? "from" : "dim");
        for (int64_t r = 0; r < ranks; r++) {
            if (!in_group(mesh, axes, r, rank)) continue;
            int64_t length = in[r].type.dim[dim], at = place_of(mesh, axes, r) * length;
            if (!exchange) {
                copy_rows(out, at, &in[r], 0, length, dim);
                continue;
            }
            int cut = (int)sn_op_int(op, "to");
            sn_type piece_type = in[r].type;
            piece_type.dim[cut] = out->type.dim[cut];
            sn_tensor piece = sn_tensor_new(piece_type);
            copy_rows(&piece, 0, &in[r], place * piece_type.dim[cut], piece_type.dim[cut], cut);
            copy_rows(out, at, &piece, 0, length, dim);
            sn_tensor_free(&piece);
        }
    }
}

// The local index of a whole one where the rank holds it, else -1.
static int64_t local_index(const sn_mesh *mesh, sn_layout layout, int64_t rank, int dim, int64_t size, int64_t index) {
    int64_t outer[SN_MAX_AXES];
    int order[SN_MAX_AXES], n = sn_layout_order(mesh, layout, dim, order);
    sn_layout_outers(mesh, layout, dim, outer);
    for (int i = 0; i < n; i++) { // the major digit goes first: those behind it keep their weights
        int64_t parts = mesh->size[order[i]], after = size / (outer[order[i]] * parts);
        if (index / after % parts != coordinate(mesh, order[i], rank)) return -1;
        for (int j = i + 1; j < n; j++) outer[order[j]] /= parts;
        size /= parts;
        index = index / (after * parts) * after + index % after;
    }
    return index;
}

// Element `at` (of the whole) as rank holds it; false when it does not.
static bool held_at(const sn_mesh *mesh, sn_layout layout, int64_t rank, sn_type whole, sn_type local,
                    const int64_t *at, int64_t *out) {
    int64_t index = 0;
    for (int d = 0; d < whole.rank; d++) {
        int64_t l = local_index(mesh, layout, rank, d, whole.dim[d], at[d]);
        if (l < 0) return false;
        index = index * local.dim[d] + l;
    }
    *out = index;
    return true;
}

// In dist form the layouts of operand and result say what moves: each element of the result is the one element of the
// operand that a rank of the group holds, or the sum of all.
void sn_mesh_relayout(const sn_mesh *mesh, const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    const sn_value *from = op->operands[0], *to = op->results[0];
    sn_axes summed = from->layout.partial & (sn_axes)~to->layout.partial;
    static const char *const reductions[] = {
        [SN_PARTIAL_SUM] = "sum", [SN_PARTIAL_MAX] = "max", [SN_PARTIAL_MIN] = "min"};
    sn_axes moved = sn_mesh_axes_named(mesh, sn_op_string(op, "axes"));
    for (int64_t r = 0; r < sn_mesh_ranks(mesh); r++) {
        int64_t coordinates[SN_MAX_AXES];
        for (int a = 0; a < mesh->n_axes; a++) coordinates[a] = coordinate(mesh, a, r);
        sn_tensor *sums = sn_alloc(sizeof *sums * (size_t)sn_mesh_ranks(mesh));
        for (int64_t s = 0; s < sn_mesh_ranks(mesh); s++)
            if (in_group(mesh, moved, s, r))
                sums[s] = reduce_group(mesh, summed, s, reductions[from->layout.partial_kind], in);
        for (sn_walk w = sn_walk_over(out[r].type); w.left; sn_walk_next(&w)) {
            int64_t at[SN_MAX_RANK], index;
            for (int d = 0; d < to->type.rank; d++)
                at[d] = sn_layout_index(mesh, to->layout, d, to->type.dim[d], coordinates, w.at[d]);
            for (int64_t s = 0; s < sn_mesh_ranks(mesh); s++)
                if (sums[s].data && held_at(mesh, from->layout, s, to->type, in[s].type, at, &index))
                    sn_copy_element(&out[r], w.index, &sums[s], index);
        }
        for (int64_t s = 0; s < sn_mesh_ranks(mesh); s++) sn_tensor_free(&sums[s]);
        sn_free(sums);
    }
}

void sn_mesh_collective(const sn_mesh *mesh, const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axes axes = sn_mesh_axes_named(mesh, sn_op_string(op, "axes"));
    int64_t ranks = sn_mesh_ranks(mesh);
    for (int64_t r = 0; r < ranks; r++) collective_of_rank(mesh, op, axes, r, in, &out[r]);
}
