#include "ir/interp_mesh.h"

#include "base/alloc.h"
#include "ir/interp_reference.h"

#include <math.h>
#include <string.h>

static int64_t coordinate(const sn_mesh *mesh, int axis, int64_t rank) {
    for (int i = mesh->n_axes - 1; i > axis; i--) rank /= mesh->size[i];
    return rank % mesh->size[axis];
}

int64_t sn_mesh_place(const sn_mesh *mesh, sn_axes axes, int64_t rank) {
    int64_t place = 0;
    for (int i = 0; i < mesh->n_axes; i++)
        if (axes >> i & 1) place = place * mesh->size[i] + coordinate(mesh, i, rank);
    return place;
}

sn_axes sn_mesh_axes_named(const sn_mesh *mesh, const char *names) {
    sn_axes axes = 0;
    for (const char *name = names; *name; name += *name == ',') {
        size_t length = strcspn(name, ",");
        for (int i = 0; i < mesh->n_axes; i++)
            if (strlen(mesh->name[i]) == length && strncmp(mesh->name[i], name, length) == 0)
                axes |= (sn_axes)(1u << i);
        name += length;
    }
    return axes;
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

// Where in the whole tensor the rank's part starts, as strides and an offset for a walk over the part.
static sn_walk walk_part(const sn_mesh *mesh, sn_layout layout, int64_t rank, sn_type whole, sn_type local,
                         int64_t *start) {
    int64_t stride[SN_MAX_RANK] = {0};
    sn_type_strides(whole, stride);
    *start = 0;
    for (int d = 0; d < whole.rank; d++) *start += sn_mesh_place(mesh, layout.dim[d], rank) * local.dim[d] * stride[d];
    sn_walk w = sn_walk_over(local);
    sn_walk_add(&w, stride);
    return w;
}

sn_tensor sn_mesh_cut(const sn_mesh *mesh, sn_layout layout, int64_t rank, const sn_tensor *whole, sn_type local) {
    sn_tensor part = sn_tensor_new(local);
    int64_t start;
    sn_walk w = walk_part(mesh, layout, rank, whole->type, local, &start);
    for (; w.left; sn_walk_next(&w)) sn_copy_element(&part, w.index, whole, start + w.offset[0]);
    return part;
}

const char *sn_mesh_join(const sn_mesh *mesh, sn_layout layout, const sn_tensor *parts, sn_type whole, sn_tensor *out) {
    if (layout.partial) return "a partial sum leaves the function";
    int64_t ranks = sn_mesh_ranks(mesh), start;
    sn_tensor joined = sn_tensor_new(whole);
    for (int64_t r = 0; r < ranks; r++) {
        sn_walk w = walk_part(mesh, layout, r, whole, parts[r].type, &start);
        for (; w.left; sn_walk_next(&w)) sn_copy_element(&joined, start + w.offset[0], &parts[r], w.index);
    }
    for (int64_t r = 0; r < ranks; r++) { // the last copy was kept; the others must be the same
        sn_tensor again = sn_mesh_cut(mesh, layout, r, &joined, parts[r].type);
        bool same = memcmp(again.data, parts[r].data, (size_t)sn_type_bytes(again.type)) == 0;
        sn_tensor_free(&again);
        if (same) continue;
        sn_tensor_free(&joined);
        return "ranks disagree about a value that they all hold";
    }
    *out = joined;
    return NULL;
}

static bool in_group(const sn_mesh *mesh, sn_axes axes, int64_t a, int64_t b) {
    for (int i = 0; i < mesh->n_axes; i++)
        if (!(axes >> i & 1) && coordinate(mesh, i, a) != coordinate(mesh, i, b)) return false;
    return true;
}

// The sum, largest or smallest over the group of a rank, rounded once.
static sn_tensor reduce_group(const sn_mesh *mesh, sn_axes axes, int64_t rank, const char *how, const sn_tensor *in) {
    int64_t ranks = sn_mesh_ranks(mesh), count = sn_type_count(in[rank].type);
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

static void collective_of_rank(const sn_mesh *mesh, const sn_op *op, sn_axes axes, int64_t rank, const sn_tensor *in,
                               sn_tensor *out) {
    int64_t ranks = sn_mesh_ranks(mesh), place = sn_mesh_place(mesh, axes, rank);
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
            int64_t length = in[r].type.dim[dim], at = sn_mesh_place(mesh, axes, r) * length;
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

void sn_mesh_collective(const sn_mesh *mesh, const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axes axes = sn_mesh_axes_named(mesh, sn_op_string(op, "axes"));
    int64_t ranks = sn_mesh_ranks(mesh);
    for (int64_t r = 0; r < ranks; r++) collective_of_rank(mesh, op, axes, r, in, &out[r]);
}
