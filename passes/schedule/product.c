#include "passes/schedule/product.h"

static bool is_matrix(sn_type type, int64_t rows, int64_t columns) {
    return type.rank == 2 && type.dim[0] == rows && type.dim[1] == columns;
}

int64_t sn_product_strip(int64_t n) {
    for (int vectors = 3; vectors > 0; vectors--)
        if (n % (vectors * SN_PRODUCT_LANES) == 0) return vectors * SN_PRODUCT_LANES;
    return 0;
}

static const sn_op *definition(const sn_value *value, sn_op_kind kind) {
    return value->kind == SN_VALUE_RESULT && value->def->kind == kind ? value->def : NULL;
}

// The argument whose strips make up `matrix`.
static const sn_value *strips_of(const sn_value *matrix) {
    const sn_op *reshape = definition(matrix, SN_OP_RESHAPE);
    const sn_op *transpose = reshape ? definition(reshape->operands[0], SN_OP_TRANSPOSE) : NULL;
    if (!transpose || transpose->operands[0]->kind != SN_VALUE_ARG || transpose->operands[0]->type.rank != 3)
        return NULL;
    int rank;
    const int64_t *perm = sn_op_ints(transpose, "perm", &rank);
    return perm[0] == 1 && perm[1] == 0 ? transpose->operands[0] : NULL;
}

static bool read_product(const sn_op *op, sn_product *out) {
    const sn_value *a = op->operands[0], *b = strips_of(op->operands[1]);
    if (a->kind != SN_VALUE_ARG || !b || a == b || a->type.rank != 2 || op->operands[1]->type.rank != 2) return false;
    if (a->type.dtype != SN_F32 || !sn_op_int(op, "transpose_a") || sn_op_int(op, "transpose_b")) return false;
    *out = (sn_product){.matmul = op,
                        .a = a,
                        .b = b,
                        .m = a->type.dim[1],
                        .n = op->operands[1]->type.dim[1],
                        .k = a->type.dim[0],
                        .strip = b->type.dim[2]};
    return b->type.dim[1] == out->k && out->strip == sn_product_strip(out->n) && out->strip;
}

// Over the columns of a value of the product's shape.
static bool is_row_sum(const sn_op *op, const sn_product *product) {
    int n;
    const int64_t *axes = sn_op_ints(op, "axes", &n);
    return op->kind == SN_OP_REDUCE_SUM && op->operands[0]->type.dtype == SN_F32 && n == 1 && axes[0] == 1 &&
           is_matrix(op->operands[0]->type, product->m, product->n);
}

// Gradients of slices of c's rows, as an embedding has them.
static bool adds_rows(const sn_op *op, const sn_product *product) {
    if (op->kind != SN_OP_GATHER_GRAD || !is_matrix(op->results[0]->type, product->m, product->n)) return false;
    bool floats = op->results[0]->type.dtype == SN_F32 && op->operands[1]->type.dtype == SN_F32;
    int64_t indices = sn_type_count(op->operands[0]->type);
    return floats && sn_op_int(op, "axis") == 0 && op->operands[0]->kind == SN_VALUE_ARG &&
           op->operands[1]->kind == SN_VALUE_ARG && indices > 0 && indices <= SN_PRODUCT_DEPTH_MAX;
}

static bool reads_sum(const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT) return false;
    const sn_op *op = value->def;
    if (op->kind == SN_OP_REDUCE_SUM) return true;
    for (int i = 0; i < op->n_operands; i++)
        if (reads_sum(op->operands[i])) return true;
    return false;
}

static bool op_fits(const sn_op *op, const sn_product *product) {
    const sn_op *reshape = product->matmul->operands[1]->def;
    if (op == product->matmul || op == reshape || op == reshape->operands[0]->def) return true;
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *x = op->operands[i];
        if (x == product->a || x == product->b || x == reshape->results[0]) return false;
    }
    if (op == product->rows) return true;
    if (op->kind == SN_OP_REDUCE_SUM) return is_row_sum(op, product) && !reads_sum(op->operands[0]);
    return sn_op_has(op->kind, SN_TRAIT_POINTWISE) || op->kind == SN_OP_CONSTANT;
}

static bool result_fits(const sn_value *result, const sn_product *product) {
    if (definition(result, SN_OP_REDUCE_SUM)) return true;
    return is_matrix(result->type, product->m, product->n) && !reads_sum(result);
}

bool sn_product_of_body(const sn_func *body, sn_product *out) {
    sn_product product = {0};
    SN_FOR_OPS(op, body)
    if (op->kind == SN_OP_MATMUL && (product.matmul || !read_product(op, &product))) return false;
    if (!product.matmul || product.m < SN_PRODUCT_LANES || product.k > SN_PRODUCT_DEPTH_MAX) return false;
    SN_FOR_OPS(op, body) if (!product.rows && adds_rows(op, &product)) product.rows = op;
    SN_FOR_OPS(op, body) if (!op_fits(op, &product)) return false;
    for (size_t i = 0; i < body->results.count; i++)
        if (!result_fits(body->results.data[i], &product)) return false;
    *out = product;
    return true;
}
