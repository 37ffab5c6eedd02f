// One rule per operator, in a table indexed by the enum. A rule creates factors and gives them to dims.
#include "ir/factors.h"

#include <string.h>

typedef struct space {
    const sn_op *op;
    sn_factors *out;
} space;

static sn_type operand_type(const space *s, int i) {
    return s->op->operands[i]->type;
}

static sn_type result_type(const space *s, int i) {
    return s->op->results[i]->type;
}

static int add_factor(space *s, sn_factor_kind kind, int64_t size) {
    SN_CHECK(s->out->n < SN_MAX_FACTORS);
    s->out->factor[s->out->n] = (sn_factor){.kind = kind, .size = size};
    return s->out->n++;
}

// Dims of size 1 have no factors: there is nothing to cut.
static void give(space *s, bool result, int which, int dim, int factor) {
    sn_dim_factors *dims = result ? &s->out->result[which][dim] : &s->out->operand[which][dim];
    if (s->out->factor[factor].size == 1) return;
    SN_CHECK(dims->n < SN_MAX_DIM_FACTORS);
    dims->factor[dims->n++] = (int8_t)factor;
}

static void give_operand(space *s, int which, int dim, int factor) {
    if (operand_type(s, which).dim[dim] != 1) give(s, false, which, dim, factor);
}

static void give_result(space *s, int which, int dim, int factor) {
    give(s, true, which, dim, factor);
}

// Dims that no rule has spoken of must not be cut.
static void close_open_dims(space *s) {
    const sn_op *op = s->op;
    for (int i = 0; i < op->n_operands; i++)
        for (int d = 0; d < op->operands[i]->type.rank; d++)
            if (!s->out->operand[i][d].n && op->operands[i]->type.dim[d] != 1 && s->out->n < SN_MAX_FACTORS)
                give_operand(s, i, d, add_factor(s, SN_FACTOR_WHOLE, op->operands[i]->type.dim[d]));
}

static void factors_pointwise(space *s) {
    sn_type y = result_type(s, 0);
    for (int d = 0; d < y.rank; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, y.dim[d]);
        give_result(s, 0, d, f);
        for (int i = 0; i < s->op->n_operands; i++) {
            int at = d - (y.rank - operand_type(s, i).rank);
            if (at >= 0) give_operand(s, i, at, f);
        }
    }
}

// Every result dim is its own factor and no operand has it: constants, iota, random numbers.
static void factors_generator(space *s) {
    sn_type y = result_type(s, 0);
    for (int d = 0; d < y.rank; d++) give_result(s, 0, d, add_factor(s, SN_FACTOR_PARALLEL, y.dim[d]));
}

static void whole_group(space *s, int from, int n_from, int to, int n_to) {
    for (int i = 0; i < n_from; i++)
        give_operand(s, 0, from + i, add_factor(s, SN_FACTOR_WHOLE, operand_type(s, 0).dim[from + i]));
    for (int i = 0; i < n_to; i++)
        give_result(s, 0, to + i, add_factor(s, SN_FACTOR_WHOLE, result_type(s, 0).dim[to + i]));
}

// A group of dims with equal products: cut both sides at the union of their cumulative products (major first). Where a
// product does not divide the next one there is no common factor, and the group stays whole.
static void reshape_group(space *s, int from, int n_from, int to, int n_to) {
    const int64_t *a = &s->op->operands[0]->type.dim[from], *b = &s->op->results[0]->type.dim[to];
    int64_t done = 1, end_a = n_from ? a[0] : 1, end_b = n_to ? b[0] : 1;
    struct {
        int64_t size;
        int i, j;
    } piece[2 * SN_MAX_RANK];
    int n = 0;
    for (int i = 0, j = 0; i < n_from && j < n_to;) {
        int64_t end = end_a < end_b ? end_a : end_b;
        if (end % done) {
            whole_group(s, from, n_from, to, n_to);
            return;
        }
        if (end > done) {
            piece[n].size = end / done, piece[n].i = i, piece[n].j = j;
            n++;
        }
        done = end;
        if (end_a == end && ++i < n_from) end_a *= a[i];
        if (end_b == end && ++j < n_to) end_b *= b[j];
    }
    for (int p = 0; p < n; p++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, piece[p].size);
        give_operand(s, 0, from + piece[p].i, f);
        give_result(s, 0, to + piece[p].j, f);
    }
}

static void factors_reshape(space *s) {
    sn_type x = operand_type(s, 0), y = result_type(s, 0);
    if (sn_type_count(x) == 0) return;
    int i = 0, j = 0;
    while (i < x.rank || j < y.rank) {
        int from = i, to = j;
        int64_t a = i < x.rank ? x.dim[i++] : 1, b = j < y.rank ? y.dim[j++] : 1;
        while (a != b) {
            if (a < b)
                a *= x.dim[i++];
            else
                b *= y.dim[j++];
        }
        reshape_group(s, from, i - from, to, j - to);
    }
}

static void factors_transpose(space *s) {
    sn_type y = result_type(s, 0);
    const int64_t *perm = sn_op_ints(s->op, "perm", NULL);
    for (int d = 0; d < y.rank; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, y.dim[d]);
        give_result(s, 0, d, f);
        give_operand(s, 0, (int)perm[d], f);
    }
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b ? common_divisor(b, a % b) : a;
}

// A dim of whole blocks of `block` elements, of which a block's inside may be cut: it is the same in all blocks.
static void give_blocks(space *s, bool result, int which, int dim, int64_t block, int inside) {
    int64_t size = result ? result_type(s, which).dim[dim] : operand_type(s, which).dim[dim];
    if (size != block) give(s, result, which, dim, add_factor(s, SN_FACTOR_WHOLE, size / block));
    give(s, result, which, dim, inside);
}

// Dims that pass unchanged are parallel. Where a slice or a pad begins and ends between blocks (q, k and v in a fused
// dim of 3 h), the blocks' inside is parallel; the rest is whole.
static void factors_blocks(space *s) {
    sn_type x = operand_type(s, 0), y = result_type(s, 0);
    bool slice = s->op->kind == SN_OP_SLICE;
    const int64_t *steps = slice ? sn_op_ints(s->op, "steps", NULL) : NULL;
    const int64_t *low = sn_op_ints(s->op, slice ? "starts" : "low", NULL);
    for (int d = 0; d < y.rank; d++) {
        if (steps && steps[d] != 1) continue;
        int64_t block = common_divisor(common_divisor(x.dim[d], y.dim[d]), low[d]);
        if (block <= 1) continue;
        int f = add_factor(s, SN_FACTOR_PARALLEL, block);
        give_blocks(s, false, 0, d, block, f);
        give_blocks(s, true, 0, d, block, f);
    }
}

// The dims beside the axis are parallel, and along it the inside of blocks that divide all parts.
static void factors_concat(space *s) {
    sn_type y = result_type(s, 0);
    int axis = (int)sn_op_int(s->op, "axis"), n = s->op->n_operands;
    int64_t block = y.dim[axis];
    for (int i = 0; i < n; i++) block = common_divisor(block, operand_type(s, i).dim[axis]);
    for (int d = 0; d < y.rank; d++) {
        if (d == axis && block <= 1) continue;
        if (d == axis && s->out->n + n + 2 >= SN_MAX_FACTORS) continue; // one factor for each part
        int f = add_factor(s, SN_FACTOR_PARALLEL, d == axis ? block : y.dim[d]);
        for (int i = 0; i < n; i++) {
            if (d == axis)
                give_blocks(s, false, i, d, block, f);
            else
                give_operand(s, i, d, f);
        }
        if (d == axis)
            give_blocks(s, true, 0, d, block, f);
        else
            give_result(s, 0, d, f);
    }
}

// All operands and results share their dims, but for `axis`, which is whole: scans, softmax, top_k.
static void factors_along_axis(space *s) {
    sn_type x = operand_type(s, 0);
    int axis = (int)sn_op_int(s->op, "axis");
    for (int d = 0; d < x.rank; d++) {
        if (d == axis) continue;
        int f = add_factor(s, SN_FACTOR_PARALLEL, x.dim[d]);
        for (int i = 0; i < s->op->n_operands; i++) give_operand(s, i, d, f);
        for (int i = 0; i < s->op->n_results; i++) give_result(s, i, d, f);
    }
}

static void factors_reduction(space *s) {
    static const sn_factor_kind kinds[SN_OP_COUNT] = {
        [SN_OP_REDUCE_SUM] = SN_FACTOR_SUM, [SN_OP_REDUCE_PROD] = SN_FACTOR_WHOLE, [SN_OP_REDUCE_MAX] = SN_FACTOR_MAX,
        [SN_OP_REDUCE_MIN] = SN_FACTOR_MIN, [SN_OP_ARG_MAX] = SN_FACTOR_WHOLE,     [SN_OP_ARG_MIN] = SN_FACTOR_WHOLE,
    };
    sn_type x = operand_type(s, 0);
    unsigned reduced = 0;
    if (sn_op_has(s->op->kind, SN_TRAIT_REDUCTION)) {
        int count;
        const int64_t *axes = sn_op_ints(s->op, "axes", &count);
        for (int i = 0; i < count; i++) reduced |= 1u << axes[i];
    } else {
        reduced = 1u << sn_op_int(s->op, "axis");
    }
    bool keep = sn_op_int(s->op, "keepdims") != 0;
    for (int d = 0, at = 0; d < x.rank; d++) {
        bool cut = reduced >> d & 1;
        int f = add_factor(s, cut ? kinds[s->op->kind] : SN_FACTOR_PARALLEL, x.dim[d]);
        give_operand(s, 0, d, f);
        if (!cut) give_result(s, 0, at, f);
        if (!cut || keep) at++;
    }
}

// One dims of the table, then those of the indices in place of axis. `table` and `rows` tell operand or result apart so
// that gather and its gradient share the rule.
static void gather_dims(space *s, bool grad) {
    sn_type table = grad ? result_type(s, 0) : operand_type(s, 0);
    sn_type indices = operand_type(s, grad ? 0 : 1), rows = grad ? operand_type(s, 1) : result_type(s, 0);
    int axis = (int)sn_op_int(s->op, "axis");
    int at = 0;
    for (int d = 0; d < table.rank; d++) {
        if (d == axis) {
            int cut = add_factor(s, grad ? SN_FACTOR_PARALLEL : SN_FACTOR_SUM, table.dim[d]);
            s->out->factor[cut].masked = true;
            if (grad)
                give_result(s, 0, d, cut);
            else
                give_operand(s, 0, d, cut);
            for (int i = 0; i < indices.rank; i++, at++) {
                int f = add_factor(s, grad ? SN_FACTOR_SUM : SN_FACTOR_PARALLEL, indices.dim[i]);
                give_operand(s, grad ? 0 : 1, i, f);
                if (grad)
                    give_operand(s, 1, at, f);
                else
                    give_result(s, 0, at, f);
            }
            continue;
        }
        int f = add_factor(s, SN_FACTOR_PARALLEL, table.dim[d]);
        if (grad) {
            give_result(s, 0, d, f);
            give_operand(s, 1, at, f);
        } else {
            give_operand(s, 0, d, f);
            give_result(s, 0, at, f);
        }
        at++;
    }
    SN_CHECK(at == rows.rank);
}

static void factors_gather(space *s) {
    gather_dims(s, false);
}

static void factors_gather_grad(space *s) {
    gather_dims(s, true);
}

static void factors_elements(space *s) {
    sn_type x = operand_type(s, 0), indices = operand_type(s, 1);
    int axis = (int)sn_op_int(s->op, "axis");
    for (int d = 0; d < x.rank; d++) {
        if (d == axis || indices.dim[d] != x.dim[d]) continue;
        int f = add_factor(s, SN_FACTOR_PARALLEL, x.dim[d]);
        for (int i = 0; i < s->op->n_operands; i++) give_operand(s, i, d, f);
        give_result(s, 0, d, f);
    }
}

static void factors_gather_nd(space *s) {
    sn_type x = operand_type(s, 0), indices = operand_type(s, 1), y = result_type(s, 0);
    int batch = (int)sn_op_int(s->op, "batch_dims"), tuple = (int)indices.dim[indices.rank - 1];
    for (int d = 0; d < indices.rank - 1; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, y.dim[d]);
        if (d < batch) give_operand(s, 0, d, f);
        give_operand(s, 1, d, f);
        give_result(s, 0, d, f);
    }
    for (int d = batch + tuple; d < x.rank; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, x.dim[d]);
        give_operand(s, 0, d, f);
        give_result(s, 0, indices.rank - 1 + d - batch - tuple, f);
    }
}

static void factors_scatter_nd(space *s) {
    sn_type x = operand_type(s, 0), indices = operand_type(s, 1);
    int tuple = (int)indices.dim[indices.rank - 1];
    for (int d = tuple; d < x.rank; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, x.dim[d]);
        give_operand(s, 0, d, f);
        give_operand(s, 2, indices.rank - 1 + d - tuple, f);
        give_result(s, 0, d, f);
    }
}

static void factors_matmul(space *s) {
    sn_type a = operand_type(s, 0), b = operand_type(s, 1), y = result_type(s, 0);
    int ta = sn_op_int(s->op, "transpose_a") != 0, tb = sn_op_int(s->op, "transpose_b") != 0;
    for (int d = 0; d < y.rank - 2; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, y.dim[d]);
        int at_a = d - (y.rank - a.rank), at_b = d - (y.rank - b.rank);
        give_result(s, 0, d, f);
        if (at_a >= 0) give_operand(s, 0, at_a, f);
        if (at_b >= 0) give_operand(s, 1, at_b, f);
    }
    int m = add_factor(s, SN_FACTOR_PARALLEL, y.dim[y.rank - 2]),
        n = add_factor(s, SN_FACTOR_PARALLEL, y.dim[y.rank - 1]);
    int k = add_factor(s, SN_FACTOR_SUM, a.dim[a.rank - 1 - ta]);
    give_operand(s, 0, a.rank - 2 + ta, m);
    give_operand(s, 0, a.rank - 1 - ta, k);
    give_operand(s, 1, b.rank - 2 + tb, k);
    give_operand(s, 1, b.rank - 1 - tb, n);
    give_result(s, 0, y.rank - 2, m);
    give_result(s, 0, y.rank - 1, n);
}

// Batch n, output channels m and input channels c; spatial dims and groups stay whole.
static void factors_conv(space *s) {
    bool plain = sn_op_int(s->op, "groups") == 1;
    int x = 0, w = 1, y = -1; // operand numbers; -1 is the result
    if (s->op->kind == SN_OP_CONV_INPUT_GRAD) x = -1, w = 1, y = 0;
    if (s->op->kind == SN_OP_CONV_WEIGHT_GRAD) x = 0, w = -1, y = 1;
    sn_type tx = x < 0 ? result_type(s, 0) : operand_type(s, x), tw = w < 0 ? result_type(s, 0) : operand_type(s, w);
    const struct {
        int tensor[2], dim[2]; // where the factor stands
        int64_t size;
        bool cut;
        int reduced_for; // the tensor that lacks it
    } rows[] = {
        {{x, y}, {0, 0}, tx.dim[0], true, w},
        {{w, y}, {0, 1}, tw.dim[0], plain, x},
        {{x, w}, {1, 1}, tx.dim[1], plain, y},
    };
    for (int r = 0; r < 3; r++) {
        if (!rows[r].cut) continue;
        int f = add_factor(s, rows[r].reduced_for == -1 ? SN_FACTOR_SUM : SN_FACTOR_PARALLEL, rows[r].size);
        for (int t = 0; t < 2; t++) {
            if (rows[r].tensor[t] < 0)
                give_result(s, 0, rows[r].dim[t], f);
            else
                give_operand(s, rows[r].tensor[t], rows[r].dim[t], f);
        }
    }
}

static void factors_pool(space *s) {
    for (int d = 0; d < 2; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, result_type(s, 0).dim[d]);
        for (int i = 0; i < s->op->n_operands; i++) give_operand(s, i, d, f);
        for (int i = 0; i < s->op->n_results; i++) give_result(s, i, d, f);
    }
}

// The leading dims are parallel, those from axis on whole.
static void factors_norm(space *s) {
    sn_type x = operand_type(s, 0);
    int axis = (int)sn_op_int(s->op, "axis");
    for (int d = 0; d < axis; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, x.dim[d]);
        for (int i = 0; i < s->op->n_operands; i++) {
            int at = d - (x.rank - operand_type(s, i).rank);
            if (at >= 0) give_operand(s, i, at, f);
        }
        for (int i = 0; i < s->op->n_results; i++) give_result(s, i, d, f);
    }
    for (int d = axis; d < x.rank; d++) {
        int f = add_factor(s, SN_FACTOR_WHOLE, x.dim[d]);
        give_operand(s, 0, d, f);
        give_result(s, 0, d, f);
    }
}

static void factors_cross_entropy(space *s) {
    sn_type logits = operand_type(s, 0);
    int axis = (int)sn_op_int(s->op, "axis"), at = 0;
    for (int d = 0; d < logits.rank; d++) {
        if (d == axis) continue;
        int f = add_factor(s, SN_FACTOR_PARALLEL, logits.dim[d]);
        give_operand(s, 0, d, f);
        give_operand(s, 1, at, f);
        for (int i = 0; i < s->op->n_results; i++) give_result(s, i, at, f);
        at++;
    }
}

// Batch, key heads, the query heads that share one, and queries are parallel: each query sees all keys, and the
// gradients of keys and values are sums over the queries of all heads that share them. Keys and head size stay whole.
static void factors_attention(space *s) {
    bool grad = s->op->kind == SN_OP_ATTENTION_GRAD;
    sn_type q = operand_type(s, 0), k = operand_type(s, 1);
    int mask = grad ? 6 : 3, has_mask = s->op->n_operands > mask;
    int b = add_factor(s, SN_FACTOR_PARALLEL, q.dim[0]), g = add_factor(s, SN_FACTOR_PARALLEL, k.dim[1]);
    sn_factor_kind of_queries = grad ? SN_FACTOR_SUM : SN_FACTOR_PARALLEL;
    int r = add_factor(s, of_queries, q.dim[1] / k.dim[1]), queries = add_factor(s, of_queries, q.dim[2]);
    // Which operands and results have the query's heads and rows; the others have the key's.
    static const bool query_operand[] = {true, false, false, true, true, true}, query_result[] = {true, false, false};
    for (int i = 0; i < (grad ? 6 : 3); i++) {
        give_operand(s, i, 0, b);
        give_operand(s, i, 1, g);
        if (query_operand[i]) give_operand(s, i, 1, r), give_operand(s, i, 2, queries);
    }
    for (int i = 0; i < s->op->n_results; i++) {
        bool query = !grad || query_result[i];
        give_result(s, i, 0, b);
        give_result(s, i, 1, g);
        if (query) give_result(s, i, 1, r), give_result(s, i, 2, queries);
    }
    if (!has_mask) return;
    int lead = 4 - operand_type(s, mask).rank;
    if (lead < 1) give_operand(s, mask, 0, b);
    if (lead < 2) {
        give_operand(s, mask, 1 - lead, g);
        give_operand(s, mask, 1 - lead, r);
    }
    if (lead < 3) give_operand(s, mask, 2 - lead, queries);
}

// Parameter, gradient and moments share every dim; rates and steps are scalars.
static void factors_update(space *s) {
    sn_type p = operand_type(s, 0);
    for (int d = 0; d < p.rank; d++) {
        int f = add_factor(s, SN_FACTOR_PARALLEL, p.dim[d]);
        for (int i = 0; i < s->op->n_operands; i++)
            if (operand_type(s, i).rank == p.rank) give_operand(s, i, d, f);
        for (int i = 0; i < s->op->n_results; i++) give_result(s, i, d, f);
    }
}

static void factors_whole(space *s) {
    (void)s; // close_open_dims does it
}

static void (*const rules[SN_OP_COUNT])(space *) = {
    [SN_OP_CONSTANT] = factors_generator,
    [SN_OP_IOTA] = factors_generator,
    [SN_OP_RANDOM_UNIFORM] = factors_generator,
    [SN_OP_RESHAPE] = factors_reshape,
    [SN_OP_TRANSPOSE] = factors_transpose,
    [SN_OP_BROADCAST] = factors_pointwise,
    [SN_OP_SLICE] = factors_blocks,
    [SN_OP_PAD] = factors_blocks,
    [SN_OP_CONCAT] = factors_concat,
    [SN_OP_GATHER] = factors_gather,
    [SN_OP_GATHER_GRAD] = factors_gather_grad,
    [SN_OP_GATHER_ELEMENTS] = factors_elements,
    [SN_OP_GATHER_ND] = factors_gather_nd,
    [SN_OP_SCATTER_ELEMENTS] = factors_elements,
    [SN_OP_SCATTER_ND] = factors_scatter_nd,
    [SN_OP_REDUCE_SUM] = factors_reduction,
    [SN_OP_REDUCE_PROD] = factors_reduction,
    [SN_OP_REDUCE_MAX] = factors_reduction,
    [SN_OP_REDUCE_MIN] = factors_reduction,
    [SN_OP_ARG_MAX] = factors_reduction,
    [SN_OP_ARG_MIN] = factors_reduction,
    [SN_OP_CUM_SUM] = factors_along_axis,
    [SN_OP_CUM_PROD] = factors_along_axis,
    [SN_OP_TOP_K] = factors_along_axis,
    [SN_OP_MATMUL] = factors_matmul,
    [SN_OP_CONV] = factors_conv,
    [SN_OP_CONV_INPUT_GRAD] = factors_conv,
    [SN_OP_CONV_WEIGHT_GRAD] = factors_conv,
    [SN_OP_MAX_POOL] = factors_pool,
    [SN_OP_MAX_POOL_GRAD] = factors_pool,
    [SN_OP_AVG_POOL] = factors_pool,
    [SN_OP_AVG_POOL_GRAD] = factors_pool,
    [SN_OP_SOFTMAX] = factors_along_axis,
    [SN_OP_LOG_SOFTMAX] = factors_along_axis,
    [SN_OP_LAYER_NORM] = factors_norm,
    [SN_OP_RMS_NORM] = factors_norm,
    [SN_OP_CROSS_ENTROPY] = factors_cross_entropy,
    [SN_OP_ATTENTION] = factors_attention,
    [SN_OP_ATTENTION_GRAD] = factors_attention,
    [SN_OP_SGD] = factors_update,
    [SN_OP_ADAM] = factors_update,
    [SN_OP_ASSIGN] = factors_whole,
    [SN_OP_ALL_REDUCE] = factors_whole,
    [SN_OP_ALL_GATHER] = factors_whole,
    [SN_OP_REDUCE_SCATTER] = factors_whole,
    [SN_OP_ALL_TO_ALL] = factors_whole,
    [SN_OP_SHARD] = factors_whole,
    [SN_OP_SEND] = factors_whole,
    [SN_OP_RECV] = factors_whole,
    [SN_OP_AXIS_INDEX] = factors_whole,
    [SN_OP_KERNEL] = factors_whole,
    [SN_OP_RECORD] = factors_whole,
    [SN_OP_WAIT] = factors_whole,
};

void sn_factors_of(const sn_op *op, sn_arena *arena, sn_factors *out) {
    *out = (sn_factors){0};
    out->operand = sn_arena_alloc(arena, sizeof *out->operand * (size_t)op->n_operands);
    out->result = sn_arena_alloc(arena, sizeof *out->result * (size_t)op->n_results);
    space s = {op, out};
    if (rules[op->kind]) {
        rules[op->kind](&s);
    } else {
        SN_CHECK(sn_op_has(op->kind, SN_TRAIT_POINTWISE));
        factors_pointwise(&s);
    }
    close_open_dims(&s);
}

// Operands in which an op is linear, by bit: each with the others held fixed, or all of them jointly.
enum { FIRST = 1, SECOND = 2, BUT_FIRST = ~1 & 0xff, EVERY = 0xff };
static const struct {
    uint8_t linear, additive;
} linear_in[SN_OP_COUNT] = {
    [SN_OP_CAST] = {FIRST},
    [SN_OP_COPY] = {FIRST},
    [SN_OP_NEG] = {FIRST},
    [SN_OP_RESHAPE] = {FIRST},
    [SN_OP_TRANSPOSE] = {FIRST},
    [SN_OP_BROADCAST] = {FIRST},
    [SN_OP_SLICE] = {FIRST},
    [SN_OP_PAD] = {FIRST},
    [SN_OP_REDUCE_SUM] = {FIRST},
    [SN_OP_CUM_SUM] = {FIRST},
    [SN_OP_AVG_POOL] = {FIRST},
    [SN_OP_AVG_POOL_GRAD] = {FIRST},
    [SN_OP_MAX_POOL_GRAD] = {FIRST},
    [SN_OP_GATHER] = {FIRST},
    [SN_OP_GATHER_ELEMENTS] = {FIRST},
    [SN_OP_GATHER_ND] = {FIRST},
    [SN_OP_GATHER_GRAD] = {SECOND},
    [SN_OP_MUL] = {EVERY},
    [SN_OP_DIV] = {FIRST},
    [SN_OP_MATMUL] = {EVERY},
    [SN_OP_CONV] = {EVERY},
    [SN_OP_CONV_INPUT_GRAD] = {EVERY},
    [SN_OP_CONV_WEIGHT_GRAD] = {EVERY},
    [SN_OP_ADD] = {.additive = EVERY},
    [SN_OP_SUB] = {.additive = EVERY},
    [SN_OP_CONCAT] = {.additive = EVERY},
    [SN_OP_WHERE] = {.additive = BUT_FIRST},
    [SN_OP_SHARD] = {FIRST},
    [SN_OP_ALL_REDUCE] = {FIRST},
    [SN_OP_REDUCE_SCATTER] = {FIRST},
    [SN_OP_ALL_GATHER] = {FIRST},
    [SN_OP_ALL_TO_ALL] = {FIRST},
};

sn_linearity sn_op_linearity(const sn_op *op, int operand) {
    if (operand < op->n_operands && !sn_dtype_is_float(op->operands[operand]->type.dtype)) {
        // sums of integers pass only through what keeps them exact
        if (op->kind != SN_OP_CAST && op->kind != SN_OP_RESHAPE && op->kind != SN_OP_REDUCE_SUM) return SN_NOT_LINEAR;
    }
    if (op->kind == SN_OP_CAST && !sn_dtype_is_float(op->results[0]->type.dtype)) return SN_NOT_LINEAR;
    if (op->kind == SN_OP_PAD && sn_op_float(op, "value") != 0) return SN_NOT_LINEAR;
    const sn_attr *reduction = sn_op_has(op->kind, SN_TRAIT_COLLECTIVE) ? sn_op_attr(op, "reduction") : NULL;
    if (reduction && strcmp(reduction->s, "sum") != 0) return SN_NOT_LINEAR;
    unsigned bit = operand < 7 ? 1u << operand : 1u << 7;
    if (linear_in[op->kind].additive & bit) return SN_ADDITIVE;
    return linear_in[op->kind].linear & bit ? SN_LINEAR : SN_NOT_LINEAR;
}

static void print_dims(sn_str *out, sn_type type, const sn_dim_factors *dims) {
    sn_str_putc(out, '(');
    for (int d = 0; d < type.rank; d++) {
        const char *separator = d ? " " : "";
        if (dims[d].n == 0) sn_str_printf(out, "%s1", separator);
        if (dims[d].n > 1) sn_str_printf(out, "%s(", separator);
        for (int i = 0; i < dims[d].n; i++)
            sn_str_printf(out, "%s%c", i ? " " : dims[d].n > 1 ? "" : separator, 'a' + dims[d].factor[i] % 26);
        if (dims[d].n > 1) sn_str_putc(out, ')');
    }
    sn_str_putc(out, ')');
}

void sn_factors_print(sn_str *out, const sn_op *op, const sn_factors *factors) {
    static const char *const word[] = {[SN_FACTOR_SUM] = "reduce(sum)",
                                       [SN_FACTOR_MAX] = "reduce(max)",
                                       [SN_FACTOR_MIN] = "reduce(min)",
                                       [SN_FACTOR_WHOLE] = "whole"};
    sn_str_puts(out, sn_op_name(op->kind));
    for (int i = 0; i < op->n_operands; i++) {
        sn_str_puts(out, i ? ", " : " ");
        print_dims(out, op->operands[i]->type, factors->operand[i]);
    }
    sn_str_puts(out, " ->");
    for (int i = 0; i < op->n_results; i++) {
        sn_str_puts(out, i ? ", " : " ");
        print_dims(out, op->results[i]->type, factors->result[i]);
    }
    for (int f = 0; f < factors->n; f++)
        if (factors->factor[f].kind != SN_FACTOR_PARALLEL && factors->factor[f].size != 1)
            sn_str_printf(out, "  %c: %s", 'a' + f % 26, word[factors->factor[f].kind]);
}
