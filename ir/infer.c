// Result types of operators: one rule per operator in a table indexed by the enum. A rule reads the operands' types and
// the attributes, and returns NULL or a phrase that says what is wrong.
#include "ir/build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct query {
    sn_module *module;
    sn_op_kind kind;
    int n_operands;
    sn_value *const *operands;
    int n_attrs;
    const sn_attr *attrs;
    int n_results;
    sn_type *out;
} query;

#define FAIL(q, ...) return sn_arena_printf(&(q)->module->arena, __VA_ARGS__)
#define REQUIRE(q, condition, ...)                                                                                     \
    do {                                                                                                               \
        if (!(condition)) FAIL(q, __VA_ARGS__);                                                                        \
    } while (0)

static sn_type type_of(const query *q, int operand) {
    return q->operands[operand]->type;
}

static const sn_attr *find_attr(const query *q, const char *name) {
    for (int i = 0; i < q->n_attrs; i++)
        if (strcmp(q->attrs[i].name, name) == 0) return &q->attrs[i];
    return NULL;
}

static int64_t int_attr(const query *q, const char *name) {
    const sn_attr *attr = find_attr(q, name);
    if (attr) return attr->i;
    sn_attr_spec spec;
    SN_CHECK(sn_op_find_attr(q->kind, name, &spec) && !spec.required);
    return strtoll(spec.default_text, NULL, 10);
}

static const int64_t *ints_attr(const query *q, const char *name, int *count) {
    const sn_attr *attr = find_attr(q, name);
    *count = attr ? attr->ints.count : 0;
    return attr ? attr->ints.data : NULL;
}

static const char *check_attrs(const query *q) {
    int count = sn_op_attr_count(q->kind);
    for (int i = 0; i < count; i++) {
        sn_attr_spec spec = sn_op_attr_spec(q->kind, i);
        const sn_attr *attr = find_attr(q, spec.name);
        REQUIRE(q, attr || !spec.required, "attribute %s is missing", spec.name);
        REQUIRE(q, !attr || attr->type == spec.type, "attribute %s has the wrong type", spec.name);
    }
    for (int i = 0; i < q->n_attrs; i++) {
        sn_attr_spec spec;
        REQUIRE(q, sn_op_find_attr(q->kind, q->attrs[i].name, &spec), "there is no attribute %s", q->attrs[i].name);
    }
    return NULL;
}

static const char *axis_attr(const query *q, const char *name, int rank, int *out) {
    *out = 0; // gcc does not see that TRY leaves when this fails
    int64_t axis = int_attr(q, name);
    *out = 0; // the compiler cannot know that a phrase is never NULL
    REQUIRE(q, axis >= 0 && axis < rank, "%s %" PRId64 " is outside of rank %d", name, axis, rank);
    *out = (int)axis;
    return NULL;
}

#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        const char *wrong_ = (expression);                                                                             \
        if (wrong_) return wrong_;                                                                                     \
    } while (0)

static const char *infer_pointwise(const query *q) {
    int first = q->kind == SN_OP_WHERE ? 1 : 0;
    sn_type result = type_of(q, first);
    if (first) REQUIRE(q, type_of(q, 0).dtype == SN_BOOL, "the condition is not bool");
    for (int i = 0; i < q->n_operands; i++) {
        sn_type operand = type_of(q, i);
        REQUIRE(q, i < first || operand.dtype == result.dtype, "operands have the element types %s and %s",
                sn_dtype_name(result.dtype), sn_dtype_name(operand.dtype));
        REQUIRE(q, sn_type_broadcast(result, operand, &result), "operand shapes do not broadcast together");
    }
    if (sn_op_has(q->kind, SN_TRAIT_PREDICATE)) result.dtype = SN_BOOL;
    q->out[0] = result;
    return NULL;
}

static const char *infer_cast(const query *q) {
    REQUIRE(q, sn_shape_equal(q->out[0], type_of(q, 0)), "a cast keeps the shape");
    return NULL;
}

static const char *infer_same(const query *q) {
    q->out[0] = type_of(q, 0);
    return NULL;
}

static const char *infer_stated(const query *q) {
    (void)q;
    return NULL;
}

static const char *infer_iota(const query *q) {
    int axis = 0;
    return axis_attr(q, "axis", q->out[0].rank, &axis);
}

static const char *infer_random(const query *q) {
    int n;
    const int64_t *dims = ints_attr(q, "dims", &n);
    REQUIRE(q, q->n_operands == 2 + n, "a random part needs a start for each dim that is cut");
    for (int i = 0; i < n; i++) REQUIRE(q, dims[i] >= 0 && dims[i] < q->out[0].rank, "there is no such dim");
    return NULL;
}

static const char *infer_reshape(const query *q) {
    sn_type from = type_of(q, 0), to = q->out[0];
    REQUIRE(q, from.dtype == to.dtype, "a reshape keeps the element type");
    REQUIRE(q, sn_type_count(from) == sn_type_count(to), "%" PRId64 " elements do not reshape to %" PRId64,
            sn_type_count(from), sn_type_count(to));
    return NULL;
}

static const char *infer_transpose(const query *q) {
    sn_type x = type_of(q, 0);
    int count;
    const int64_t *perm = ints_attr(q, "perm", &count);
    REQUIRE(q, count == x.rank, "perm has %d dims, the operand %d", count, x.rank);
    unsigned seen = 0;
    q->out[0] = x;
    for (int i = 0; i < count; i++) {
        REQUIRE(q, perm[i] >= 0 && perm[i] < count && !(seen >> perm[i] & 1), "perm is not a permutation");
        seen |= 1u << perm[i];
        q->out[0].dim[i] = x.dim[perm[i]];
    }
    return NULL;
}

static const char *infer_broadcast(const query *q) {
    sn_type x = type_of(q, 0), both;
    REQUIRE(q, x.dtype == q->out[0].dtype && sn_type_broadcast(x, q->out[0], &both) && sn_shape_equal(both, q->out[0]),
            "the operand does not broadcast to the result's shape");
    return NULL;
}

static const char *infer_slice(const query *q) {
    sn_type x = type_of(q, 0), y = q->out[0];
    int n_starts, n_steps;
    const int64_t *starts = ints_attr(q, "starts", &n_starts), *steps = ints_attr(q, "steps", &n_steps);
    REQUIRE(q, n_starts == x.rank && n_steps == x.rank && y.rank == x.rank && y.dtype == x.dtype,
            "starts, steps and the result must have the operand's rank");
    for (int i = 0; i < x.rank; i++) {
        if (y.dim[i] == 0) continue;
        int64_t last;
        bool fits = starts[i] >= 0 && starts[i] < x.dim[i] && !__builtin_mul_overflow(y.dim[i] - 1, steps[i], &last) &&
                    !__builtin_add_overflow(last, starts[i], &last) && last >= 0 && last < x.dim[i];
        REQUIRE(q, fits, "dim %d is cut out of range", i);
    }
    return NULL;
}

static const char *infer_pad(const query *q) {
    sn_type x = type_of(q, 0);
    int n_low, n_high;
    const int64_t *low = ints_attr(q, "low", &n_low), *high = ints_attr(q, "high", &n_high);
    REQUIRE(q, n_low == x.rank && n_high == x.rank, "low and high must have the operand's rank");
    for (int i = 0; i < x.rank; i++) {
        REQUIRE(q, low[i] >= 0 && high[i] >= 0, "padding must not be negative");
        REQUIRE(q, low[i] <= SN_MAX_ELEMENTS && high[i] <= SN_MAX_ELEMENTS, "padding is larger than any tensor");
        x.dim[i] += low[i] + high[i];
    }
    q->out[0] = x;
    return NULL;
}

static const char *infer_concat(const query *q) {
    sn_type result = type_of(q, 0);
    int axis = 0;
    TRY(axis_attr(q, "axis", result.rank, &axis));
    for (int i = 1; i < q->n_operands; i++) {
        sn_type part = type_of(q, i);
        int64_t size = part.dim[axis];
        part.dim[axis] = result.dim[axis];
        REQUIRE(q, sn_type_equal(part, result), "operand %d differs outside of the axis", i);
        result.dim[axis] += size;
        REQUIRE(q, result.dim[axis] <= SN_MAX_ELEMENTS, "the result is larger than any tensor");
    }
    q->out[0] = result;
    return NULL;
}

static const char *check_indices(const query *q, int operand) {
    sn_dtype dtype = type_of(q, operand).dtype;
    REQUIRE(q, dtype == SN_I64 || dtype == SN_I32, "indices are %s, not i32 or i64", sn_dtype_name(dtype));
    return NULL;
}

static const char *gather_type(const query *q, sn_type x, sn_type indices, sn_type *out) {
    int axis = 0;
    TRY(axis_attr(q, "axis", x.rank, &axis));
    REQUIRE(q, x.rank - 1 + indices.rank <= SN_MAX_RANK, "the result would have more than %d dims", SN_MAX_RANK);
    sn_type y = {.dtype = x.dtype};
    for (int i = 0; i < axis; i++) y.dim[y.rank++] = x.dim[i];
    for (int i = 0; i < indices.rank; i++) y.dim[y.rank++] = indices.dim[i];
    for (int i = axis + 1; i < x.rank; i++) y.dim[y.rank++] = x.dim[i];
    *out = y;
    return NULL;
}

static const char *infer_gather(const query *q) {
    TRY(check_indices(q, 1));
    return gather_type(q, type_of(q, 0), type_of(q, 1), &q->out[0]);
}

static const char *infer_gather_grad(const query *q) {
    sn_type expected;
    TRY(check_indices(q, 0));
    TRY(gather_type(q, q->out[0], type_of(q, 0), &expected));
    REQUIRE(q, sn_type_equal(expected, type_of(q, 1)), "the gradient does not have gather's result type");
    return NULL;
}

static const char *infer_gather_elements(const query *q) {
    sn_type x = type_of(q, 0), indices = type_of(q, 1);
    int axis = 0;
    TRY(check_indices(q, 1));
    TRY(axis_attr(q, "axis", x.rank, &axis));
    REQUIRE(q, indices.rank == x.rank, "indices have another rank than the operand");
    for (int i = 0; i < x.rank; i++)
        REQUIRE(q, i == axis || indices.dim[i] <= x.dim[i], "indices reach beyond dim %d", i);
    q->out[0] = sn_type_with_dtype(indices, x.dtype);
    return NULL;
}

static const char *nd_type(const query *q, sn_type x, sn_type indices, int batch, sn_type *out) {
    REQUIRE(q, indices.rank >= 1 && batch >= 0 && batch < indices.rank, "index tuples need a last dim");
    int64_t tuple = indices.dim[indices.rank - 1];
    REQUIRE(q, tuple >= 0 && batch + tuple <= x.rank, "index tuples are longer than the operand's rank");
    for (int i = 0; i < batch; i++) REQUIRE(q, x.dim[i] == indices.dim[i], "batch dim %d differs", i);
    sn_type y = {.dtype = x.dtype};
    REQUIRE(q, indices.rank - 1 + x.rank - batch - tuple <= SN_MAX_RANK, "the result would have more than %d dims",
            SN_MAX_RANK);
    for (int i = 0; i < indices.rank - 1; i++) y.dim[y.rank++] = indices.dim[i];
    for (int i = batch + (int)tuple; i < x.rank; i++) y.dim[y.rank++] = x.dim[i];
    *out = y;
    return NULL;
}

static const char *infer_gather_nd(const query *q) {
    TRY(check_indices(q, 1));
    int64_t batch = int_attr(q, "batch_dims");
    REQUIRE(q, batch >= 0 && batch < SN_MAX_RANK, "there are no %" PRId64 " batch dims", batch);
    return nd_type(q, type_of(q, 0), type_of(q, 1), (int)batch, &q->out[0]);
}

static const char *infer_scatter_elements(const query *q) {
    sn_type x = type_of(q, 0), indices = type_of(q, 1), updates = type_of(q, 2);
    int axis = 0;
    TRY(check_indices(q, 1));
    TRY(axis_attr(q, "axis", x.rank, &axis));
    REQUIRE(q, indices.rank == x.rank && sn_shape_equal(indices, updates) && updates.dtype == x.dtype,
            "indices and updates must have one shape of the operand's rank");
    q->out[0] = x;
    return NULL;
}

static const char *infer_scatter_nd(const query *q) {
    sn_type expected;
    TRY(check_indices(q, 1));
    TRY(nd_type(q, type_of(q, 0), type_of(q, 1), 0, &expected));
    REQUIRE(q, sn_type_equal(expected, type_of(q, 2)), "updates do not have the shape that the indices ask for");
    q->out[0] = type_of(q, 0);
    return NULL;
}

static const char *infer_reduction(const query *q) {
    sn_type x = type_of(q, 0), y = {.dtype = x.dtype};
    int count;
    const int64_t *axes = ints_attr(q, "axes", &count);
    unsigned reduced = 0;
    for (int i = 0; i < count; i++) {
        REQUIRE(q, axes[i] >= 0 && axes[i] < x.rank && !(reduced >> axes[i] & 1), "axes are repeated or out of range");
        reduced |= 1u << axes[i];
    }
    for (int i = 0; i < x.rank; i++) {
        if (!(reduced >> i & 1))
            y.dim[y.rank++] = x.dim[i];
        else if (int_attr(q, "keepdims"))
            y.dim[y.rank++] = 1;
    }
    q->out[0] = y;
    return NULL;
}

static const char *infer_arg(const query *q) {
    sn_type x = type_of(q, 0), y = {.dtype = SN_I64};
    int axis = 0;
    TRY(axis_attr(q, "axis", x.rank, &axis));
    REQUIRE(q, x.dim[axis] > 0, "there is nothing along the axis");
    for (int i = 0; i < x.rank; i++) {
        if (i != axis)
            y.dim[y.rank++] = x.dim[i];
        else if (int_attr(q, "keepdims"))
            y.dim[y.rank++] = 1;
    }
    q->out[0] = y;
    return NULL;
}

static const char *infer_scan(const query *q) {
    int axis = 0;
    TRY(axis_attr(q, "axis", type_of(q, 0).rank, &axis));
    return infer_same(q);
}

static const char *infer_top_k(const query *q) {
    sn_type x = type_of(q, 0);
    int axis = 0;
    TRY(axis_attr(q, "axis", x.rank, &axis));
    int64_t k = int_attr(q, "k");
    REQUIRE(q, k >= 0 && k <= x.dim[axis], "k is %" PRId64 " of %" PRId64 " elements", k, x.dim[axis]);
    x.dim[axis] = k;
    q->out[0] = x;
    q->out[1] = sn_type_with_dtype(x, SN_I64);
    return NULL;
}

static const char *infer_matmul(const query *q) {
    sn_type a = type_of(q, 0), b = type_of(q, 1);
    REQUIRE(q, a.rank >= 2 && b.rank >= 2, "operands need two dims at least");
    REQUIRE(q, a.dtype == b.dtype, "operands have the element types %s and %s", sn_dtype_name(a.dtype),
            sn_dtype_name(b.dtype));
    int ta = int_attr(q, "transpose_a") != 0, tb = int_attr(q, "transpose_b") != 0;
    int64_t m = a.dim[a.rank - 2 + ta], k = a.dim[a.rank - 1 - ta], k2 = b.dim[b.rank - 2 + tb],
            n = b.dim[b.rank - 1 - tb];
    REQUIRE(q, k == k2, "inner dims are %" PRId64 " and %" PRId64, k, k2);
    a.rank -= 2, b.rank -= 2;
    sn_type y;
    REQUIRE(q, sn_type_broadcast(a, b, &y), "batch dims do not broadcast together");
    y.dim[y.rank++] = m;
    y.dim[y.rank++] = n;
    q->out[0] = y;
    return NULL;
}

typedef struct window {
    int rank; // spatial dims
    const int64_t *kernel, *strides, *pads, *dilations;
} window;

static const char *window_attrs(const query *q, int rank, window *w) {
    int n_strides, n_pads, n_dilations;
    w->rank = rank;
    w->strides = ints_attr(q, "strides", &n_strides);
    w->pads = ints_attr(q, "pads", &n_pads);
    w->dilations = ints_attr(q, "dilations", &n_dilations);
    REQUIRE(q, rank >= 0 && n_strides == rank && n_dilations == rank && n_pads == 2 * rank,
            "strides, dilations and pads must match %d spatial dims", rank);
    for (int i = 0; i < rank; i++)
        REQUIRE(q,
                w->strides[i] > 0 && w->dilations[i] > 0 && w->strides[i] <= INT32_MAX && w->dilations[i] <= INT32_MAX,
                "strides and dilations must be positive and below 2^31");
    for (int i = 0; i < 2 * rank; i++)
        REQUIRE(q, w->pads[i] >= -INT32_MAX && w->pads[i] <= INT32_MAX, "pads must be below 2^31");
    return NULL;
}

static int64_t window_count(const window *w, int i, int64_t size, int64_t kernel) {
    int64_t padded = size + w->pads[i] + w->pads[w->rank + i], reach; // reach: of the kernel, less 1
    if (__builtin_mul_overflow(kernel - 1, w->dilations[i], &reach)) return 0;
    int64_t room = padded - 1 - reach;
    return room < 0 ? 0 : room / w->strides[i] + 1;
}

static const char *conv_type(const query *q, sn_type x, sn_type w, sn_type *out) {
    window win;
    TRY(window_attrs(q, x.rank - 2, &win));
    int64_t groups = int_attr(q, "groups");
    REQUIRE(q, w.rank == x.rank && x.dtype == w.dtype, "input and weights differ in rank or element type");
    REQUIRE(q, groups > 0 && x.dim[1] % groups == 0 && x.dim[1] / groups == w.dim[1] && w.dim[0] % groups == 0,
            "%" PRId64 " channels do not match weights of %" PRId64 " in %" PRId64 " groups", x.dim[1], w.dim[1],
            groups);
    sn_type y = x;
    y.dim[1] = w.dim[0];
    for (int i = 0; i < win.rank; i++) y.dim[2 + i] = window_count(&win, i, x.dim[2 + i], w.dim[2 + i]);
    *out = y;
    return NULL;
}

static const char *infer_conv(const query *q) {
    return conv_type(q, type_of(q, 0), type_of(q, 1), &q->out[0]);
}

static const char *infer_conv_input_grad(const query *q) {
    sn_type expected;
    TRY(conv_type(q, q->out[0], type_of(q, 1), &expected));
    REQUIRE(q, sn_type_equal(expected, type_of(q, 0)), "the gradient does not have conv's result type");
    return NULL;
}

static const char *infer_conv_weight_grad(const query *q) {
    sn_type expected;
    TRY(conv_type(q, type_of(q, 0), q->out[0], &expected));
    REQUIRE(q, sn_type_equal(expected, type_of(q, 1)), "the gradient does not have conv's result type");
    return NULL;
}

// The number of windows is stated: ONNX's ceil_mode lets the last one begin inside and end beyond the padding.
static const char *check_pool(const query *q, sn_type x, sn_type y) {
    window w;
    int n_kernel;
    w.kernel = ints_attr(q, "kernel", &n_kernel);
    TRY(window_attrs(q, x.rank - 2, &w));
    REQUIRE(q, n_kernel == x.rank - 2 && y.rank == x.rank && y.dim[0] == x.dim[0] && y.dim[1] == x.dim[1],
            "kernel or result do not match the operand");
    for (int i = 0; i < w.rank; i++) {
        int64_t last;
        bool begins = !__builtin_mul_overflow(y.dim[2 + i] - 1, w.strides[i], &last) &&
                      last < x.dim[2 + i] + w.pads[i] + w.pads[w.rank + i];
        REQUIRE(q, y.dim[2 + i] == 0 || begins, "windows of dim %d begin beyond the padding", i);
    }
    return NULL;
}

static const char *infer_max_pool(const query *q) {
    REQUIRE(q,
            q->out[1].dtype == SN_I64 && sn_shape_equal(q->out[0], q->out[1]) && q->out[0].dtype == type_of(q, 0).dtype,
            "results are the values and their i64 indices");
    return check_pool(q, type_of(q, 0), q->out[0]);
}

static const char *infer_max_pool_grad(const query *q) {
    REQUIRE(q, type_of(q, 1).dtype == SN_I64 && sn_shape_equal(type_of(q, 0), type_of(q, 1)),
            "gradient and indices must have one shape");
    return check_pool(q, q->out[0], type_of(q, 0));
}

static const char *infer_avg_pool(const query *q) {
    REQUIRE(q, q->out[0].dtype == type_of(q, 0).dtype, "pooling keeps the element type");
    return check_pool(q, type_of(q, 0), q->out[0]);
}

static const char *infer_avg_pool_grad(const query *q) {
    return check_pool(q, q->out[0], type_of(q, 0));
}

static const char *infer_softmax(const query *q) {
    int axis = 0;
    TRY(axis_attr(q, "axis", type_of(q, 0).rank, &axis));
    return infer_same(q);
}

// Statistics are at least f32 and have size 1 along the normalised dims.
static const char *infer_norm(const query *q) {
    sn_type x = type_of(q, 0), stats = x, both;
    int axis = 0;
    TRY(axis_attr(q, "axis", x.rank, &axis));
    for (int i = axis; i < x.rank; i++) stats.dim[i] = 1;
    if (sn_dtype_bytes(x.dtype) < 4) stats.dtype = SN_F32;
    for (int i = 1; i < q->n_operands; i++)
        REQUIRE(q,
                type_of(q, i).dtype == x.dtype && sn_type_broadcast(x, type_of(q, i), &both) && sn_shape_equal(both, x),
                "scale or bias do not broadcast to the operand");
    q->out[0] = x;
    for (int i = 1; i < q->n_results; i++) q->out[i] = stats;
    return NULL;
}

static const char *infer_cross_entropy(const query *q) {
    sn_type logits = type_of(q, 0), labels = type_of(q, 1), losses = {.dtype = logits.dtype};
    int axis = 0;
    TRY(check_indices(q, 1));
    TRY(axis_attr(q, "axis", logits.rank, &axis));
    for (int i = 0; i < logits.rank; i++)
        if (i != axis) losses.dim[losses.rank++] = logits.dim[i];
    REQUIRE(q, sn_shape_equal(labels, losses), "labels must have the logits' shape without the class axis");
    if (sn_dtype_bytes(logits.dtype) < 4) losses.dtype = SN_F32;
    q->out[0] = q->out[1] = losses;
    return NULL;
}

static const char *infer_attention(const query *q) {
    sn_type x = type_of(q, 0), k = type_of(q, 1), v = type_of(q, 2);
    REQUIRE(q, x.rank == 4 && k.rank == 4 && v.rank == 4, "q, k and v need four dims");
    REQUIRE(q,
            x.dim[0] == k.dim[0] && k.dim[0] == v.dim[0] && k.dim[1] == v.dim[1] && k.dim[2] == v.dim[2] &&
                x.dim[3] == k.dim[3] && k.dim[1] > 0 && x.dim[1] % k.dim[1] == 0,
            "q, k and v do not go together");
    REQUIRE(q, x.dtype == k.dtype && k.dtype == v.dtype, "q, k and v have different element types");
    bool grad = q->kind == SN_OP_ATTENTION_GRAD;
    int mask = grad ? 6 : 3;
    sn_type scores = x, both;
    scores.dim[3] = k.dim[2];
    if (q->n_operands > mask)
        REQUIRE(q, sn_type_broadcast(scores, type_of(q, mask), &both) && sn_shape_equal(both, scores),
                "the mask does not broadcast to the scores");
    if (grad) {
        q->out[0] = x, q->out[1] = k, q->out[2] = v;
        return NULL;
    }
    q->out[0] = x;
    q->out[0].dim[3] = v.dim[3];
    q->out[1] = sn_type_make(sn_dtype_bytes(x.dtype) < 4 ? SN_F32 : x.dtype, 3, x.dim);
    return NULL;
}

static const char *infer_update(const query *q) {
    sn_type p = type_of(q, 0);
    int n_moments = q->kind == SN_OP_ADAM ? 2 : q->n_operands - 3;
    REQUIRE(q, sn_shape_equal(p, type_of(q, 1)), "the gradient does not have the parameter's shape");
    for (int i = 0; i < n_moments; i++)
        REQUIRE(q, sn_shape_equal(p, type_of(q, (q->kind == SN_OP_ADAM ? 2 : 3) + i)), "a moment has another shape");
    q->out[0] = p;
    if (q->kind == SN_OP_ADAM)
        q->out[1] = type_of(q, 2), q->out[2] = type_of(q, 3);
    else
        q->out[1] = n_moments ? type_of(q, 3) : p;
    return NULL;
}

static const char *infer_assign(const query *q) {
    REQUIRE(q, q->operands[0]->kind == SN_VALUE_GLOBAL, "only a global can be assigned");
    REQUIRE(q, sn_type_equal(type_of(q, 0), type_of(q, 1)), "the value has another type than the global");
    return NULL;
}

static const char *(*const rules[SN_OP_COUNT])(const query *) = {
    [SN_OP_CAST] = infer_cast,
    [SN_OP_CONSTANT] = infer_stated,
    [SN_OP_IOTA] = infer_iota,
    [SN_OP_RANDOM_UNIFORM] = infer_random,
    [SN_OP_RESHAPE] = infer_reshape,
    [SN_OP_TRANSPOSE] = infer_transpose,
    [SN_OP_BROADCAST] = infer_broadcast,
    [SN_OP_SLICE] = infer_slice,
    [SN_OP_PAD] = infer_pad,
    [SN_OP_CONCAT] = infer_concat,
    [SN_OP_GATHER] = infer_gather,
    [SN_OP_GATHER_GRAD] = infer_gather_grad,
    [SN_OP_GATHER_ELEMENTS] = infer_gather_elements,
    [SN_OP_GATHER_ND] = infer_gather_nd,
    [SN_OP_SCATTER_ELEMENTS] = infer_scatter_elements,
    [SN_OP_SCATTER_ND] = infer_scatter_nd,
    [SN_OP_REDUCE_SUM] = infer_reduction,
    [SN_OP_REDUCE_PROD] = infer_reduction,
    [SN_OP_REDUCE_MAX] = infer_reduction,
    [SN_OP_REDUCE_MIN] = infer_reduction,
    [SN_OP_ARG_MAX] = infer_arg,
    [SN_OP_ARG_MIN] = infer_arg,
    [SN_OP_CUM_SUM] = infer_scan,
    [SN_OP_CUM_PROD] = infer_scan,
    [SN_OP_TOP_K] = infer_top_k,
    [SN_OP_MATMUL] = infer_matmul,
    [SN_OP_CONV] = infer_conv,
    [SN_OP_CONV_INPUT_GRAD] = infer_conv_input_grad,
    [SN_OP_CONV_WEIGHT_GRAD] = infer_conv_weight_grad,
    [SN_OP_MAX_POOL] = infer_max_pool,
    [SN_OP_MAX_POOL_GRAD] = infer_max_pool_grad,
    [SN_OP_AVG_POOL] = infer_avg_pool,
    [SN_OP_AVG_POOL_GRAD] = infer_avg_pool_grad,
    [SN_OP_SOFTMAX] = infer_softmax,
    [SN_OP_LOG_SOFTMAX] = infer_softmax,
    [SN_OP_LAYER_NORM] = infer_norm,
    [SN_OP_RMS_NORM] = infer_norm,
    [SN_OP_CROSS_ENTROPY] = infer_cross_entropy,
    [SN_OP_ATTENTION] = infer_attention,
    [SN_OP_ATTENTION_GRAD] = infer_attention,
    [SN_OP_SGD] = infer_update,
    [SN_OP_ADAM] = infer_update,
    [SN_OP_ASSIGN] = infer_assign,
    // Collectives keep the global type: what changes is the layout.
    [SN_OP_ALL_REDUCE] = infer_same,
    [SN_OP_ALL_GATHER] = infer_same,
    [SN_OP_REDUCE_SCATTER] = infer_same,
    [SN_OP_ALL_TO_ALL] = infer_same,
    [SN_OP_SHARD] = infer_same,
    [SN_OP_SEND] = infer_stated,
    [SN_OP_RECV] = infer_stated,
    [SN_OP_AXIS_INDEX] = infer_stated,
    [SN_OP_KERNEL] = infer_stated,
    [SN_OP_RECORD] = infer_stated,
    [SN_OP_WAIT] = infer_stated,
};

static const char *check_shapes(const query *q) {
    for (int i = 0; i < q->n_results; i++)
        REQUIRE(q, sn_shape_is_valid(q->out[i].rank, q->out[i].dim), "the result has a negative dim or is too large");
    return NULL;
}

const char *sn_infer(sn_module *module, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                     const sn_attr *attrs, int n_results, sn_type *result_types) {
    query q = {module, kind, n_operands, operands, n_attrs, attrs, n_results, result_types};
    const sn_op_info *info = sn_op_info_of(kind);
    REQUIRE(&q, n_operands >= info->min_operands && (info->max_operands < 0 || n_operands <= info->max_operands),
            "%s does not take %d operands", info->mnemonic, n_operands);
    REQUIRE(&q, info->results < 0 || n_results == info->results, "%s does not have %d results", info->mnemonic,
            n_results);
    TRY(check_attrs(&q));
    if (sn_op_has(kind, SN_TRAIT_TYPED)) TRY(check_shapes(&q));
    SN_CHECK(rules[kind] || sn_op_has(kind, SN_TRAIT_POINTWISE));
    TRY(rules[kind] ? rules[kind](&q) : infer_pointwise(&q));
    return check_shapes(&q);
}
