// Values: their types, their three shapes, and the operators whose shape is better than "a vector".
#include "backend/llvm/emit.h"

#include "backend/kernel/build.h"

LLVMTypeRef sn_codegen_type(sn_emitter *e, sn_dtype dtype, bool vector) {
    LLVMTypeRef type;
    if (dtype == SN_F32) {
        type = LLVMFloatTypeInContext(e->context);
    } else if (dtype == SN_F64) {
        type = LLVMDoubleTypeInContext(e->context);
    } else {
        type = LLVMIntTypeInContext(e->context, dtype == SN_BOOL ? 1 : 8 * (unsigned)sn_dtype_bytes(dtype));
    }
    return vector ? LLVMVectorType(type, (unsigned)e->width) : type;
}

static LLVMValueRef splat_constant(LLVMTypeRef type, LLVMValueRef scalar) {
    LLVMValueRef items[64];
    unsigned n = LLVMGetVectorSize(type);
    SN_CHECK(n <= 64);
    for (unsigned i = 0; i < n; i++) items[i] = scalar;
    return LLVMConstVector(items, n);
}

LLVMValueRef sn_codegen_int(LLVMTypeRef type, int64_t value) {
    bool vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
    LLVMValueRef scalar = LLVMConstInt(vector ? LLVMGetElementType(type) : type, (unsigned long long)value, true);
    return vector ? splat_constant(type, scalar) : scalar;
}

LLVMValueRef sn_codegen_float(LLVMTypeRef type, double value) {
    bool vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
    LLVMValueRef scalar = LLVMConstReal(vector ? LLVMGetElementType(type) : type, value);
    return vector ? splat_constant(type, scalar) : scalar;
}

LLVMValueRef sn_codegen_constant(sn_emitter *e, const sn_kir_node *node, bool vector) {
    LLVMTypeRef type = sn_codegen_type(e, node->dtype, vector);
    return sn_dtype_is_float(node->dtype) ? sn_codegen_float(type, node->f64) : sn_codegen_int(type, node->i64);
}

LLVMValueRef sn_codegen_splat(sn_emitter *e, LLVMValueRef scalar) {
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)e->width);
    if (LLVMIsConstant(scalar) && !LLVMIsPoison(scalar)) return splat_constant(type, scalar);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef poison = LLVMGetPoison(type);
    LLVMValueRef first = LLVMBuildInsertElement(e->builder, poison, scalar, LLVMConstInt(i32, 0, false), "");
    LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(i32, (unsigned)e->width));
    return LLVMBuildShuffleVector(e->builder, first, poison, zeros, "");
}

bool sn_codegen_fits_i32(const sn_kir_node *node) {
    return node->dtype == SN_I64 && node->min >= INT32_MIN && node->max <= INT32_MAX;
}

sn_emitted sn_codegen_get(sn_emitter *e, const sn_kir_node *node) {
    if (node->op == SN_KIR_CONST) return (sn_emitted){.value = sn_codegen_constant(e, node, false)};
    if (node->op == SN_KIR_BLOCK) return (sn_emitted){.value = e->block};
    SN_CHECK(e->values[node->id].value);
    return e->values[node->id];
}

LLVMValueRef sn_codegen_scalar(sn_emitter *e, const sn_kir_node *node) {
    sn_emitted x = sn_codegen_get(e, node);
    SN_CHECK(x.shape == SN_EMIT_UNIFORM);
    return x.value;
}

// start + (0, stride, 2 stride, …)
static LLVMValueRef ramp(sn_emitter *e, LLVMValueRef start, int64_t stride) {
    LLVMValueRef items[64];
    for (int i = 0; i < e->width; i++)
        items[i] = LLVMConstInt(LLVMTypeOf(start), (unsigned long long)(i * stride), true);
    return LLVMBuildAdd(e->builder, sn_codegen_splat(e, start), LLVMConstVector(items, (unsigned)e->width), "");
}

LLVMValueRef sn_codegen_vector(sn_emitter *e, const sn_kir_node *node) {
    sn_emitted x = sn_codegen_get(e, node);
    if (x.shape == SN_EMIT_UNIFORM) return sn_codegen_splat(e, x.value);
    if (x.shape == SN_EMIT_LINEAR) return ramp(e, x.value, x.stride);
    if (x.narrow) return LLVMBuildSExt(e->builder, x.value, sn_codegen_type(e, SN_I64, true), "");
    return x.value;
}

LLVMValueRef sn_codegen_narrow(sn_emitter *e, const sn_kir_node *node) {
    sn_emitted x = sn_codegen_get(e, node);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    if (x.shape == SN_EMIT_UNIFORM) return sn_codegen_splat(e, LLVMBuildTrunc(e->builder, x.value, i32, ""));
    if (x.shape == SN_EMIT_LINEAR) return ramp(e, LLVMBuildTrunc(e->builder, x.value, i32, ""), x.stride);
    return x.narrow ? x.value : LLVMBuildTrunc(e->builder, x.value, sn_codegen_type(e, SN_I32, true), "");
}

static sn_emitted linear_sum(sn_emitter *e, bool subtract, sn_emitted a, sn_emitted b, int64_t ma, int64_t mb) {
    sn_emitted sum = {.shape = SN_EMIT_LINEAR, .multiple = sn_kir_gcd(ma, mb)};
    sum.stride = subtract ? a.stride - b.stride : a.stride + b.stride;
    if (sum.stride == 0) sum.shape = SN_EMIT_UNIFORM;
    sum.value =
        subtract ? LLVMBuildSub(e->builder, a.value, b.value, "") : LLVMBuildAdd(e->builder, a.value, b.value, "");
    return sum;
}

// The lanes of one vector start at a multiple of its width and step by 1: dividing by a multiple of the width, they
// have one quotient, and consecutive remainders.
static bool aligned_division(const sn_emitter *e, const sn_kir_node *node, sn_emitted a) {
    const sn_kir_node *divisor = node->in[1];
    return divisor->op == SN_KIR_CONST && divisor->i64 > 0 && divisor->i64 % e->width == 0 && node->in[0]->min >= 0 &&
           a.shape == SN_EMIT_LINEAR && a.stride == 1 && a.multiple % e->width == 0;
}

// Index arithmetic that keeps lanes in a line.
static bool emit_linear(sn_emitter *e, const sn_kir_node *node, sn_emitted *out) {
    if (node->dtype != SN_I64 || sn_kir_op_operands(node->op) != 2) return false;
    sn_emitted a = sn_codegen_get(e, node->in[0]), b = sn_codegen_get(e, node->in[1]);
    int64_t ma = a.shape == SN_EMIT_LINEAR ? a.multiple : node->in[0]->multiple;
    int64_t mb = b.shape == SN_EMIT_LINEAR ? b.multiple : node->in[1]->multiple;
    if (a.shape == SN_EMIT_VECTOR || b.shape == SN_EMIT_VECTOR) return false;
    switch (node->op) {
    case SN_KIR_ADD:
    case SN_KIR_SUB:
        *out = linear_sum(e, node->op == SN_KIR_SUB, a, b, ma, mb);
        return true;
    case SN_KIR_MUL: {
        const sn_kir_node *factor = node->in[1];
        int64_t stride, multiple;
        if (factor->op != SN_KIR_CONST || __builtin_mul_overflow(a.stride, factor->i64, &stride)) return false;
        if (__builtin_mul_overflow(ma, factor->i64, &multiple)) multiple = 1;
        *out = (sn_emitted){.shape = SN_EMIT_LINEAR, .stride = stride, .multiple = multiple < 0 ? -multiple : multiple};
        out->value = LLVMBuildMul(e->builder, a.value, b.value, "");
        return true;
    }
    case SN_KIR_FLOOR_DIV:
        if (!aligned_division(e, node, a)) return false;
        *out = (sn_emitted){.value = LLVMBuildUDiv(e->builder, a.value, b.value, "")};
        return true;
    case SN_KIR_FLOOR_MOD:
        if (!aligned_division(e, node, a)) return false;
        *out = (sn_emitted){.shape = SN_EMIT_LINEAR, .stride = 1, .multiple = sn_kir_gcd(ma, mb)};
        out->value = LLVMBuildURem(e->builder, a.value, b.value, "");
        return true;
    default:
        return false;
    }
}

// i64 operands and result are computed in 32 bits where their ranges allow: twice the lanes per register, and x86 has
// no vector multiplication of 64 bits to divide with.
static bool narrows(const sn_kir_node *node) {
    bool any = node->dtype == SN_I64;
    if (any && !sn_codegen_fits_i32(node)) return false;
    for (int i = 0; i < sn_kir_op_operands(node->op); i++) {
        if (node->in[i]->dtype != SN_I64) continue;
        if (!sn_codegen_fits_i32(node->in[i])) return false;
        any = true;
    }
    return any && node->op != SN_KIR_BITCAST;
}

static sn_emitted emit_vector(sn_emitter *e, const sn_kir_node *node) {
    LLVMValueRef in[4] = {0};
    bool narrow = narrows(node);
    bool from_narrow_to_wide =
        narrow && node->op == SN_KIR_CAST && sn_dtype_class(node->dtype) == 'u' && sn_dtype_bytes(node->dtype) == 8;
    if (from_narrow_to_wide) narrow = false; // a sign extension from i64's low half is one from i64
    for (int i = 0; i < sn_kir_op_operands(node->op); i++)
        in[i] = narrow && node->in[i]->dtype == SN_I64 ? sn_codegen_narrow(e, node->in[i])
                                                       : sn_codegen_vector(e, node->in[i]);
    LLVMValueRef value = sn_codegen_compute(e, node, in, true, narrow);
    return (sn_emitted){.value = value, .shape = SN_EMIT_VECTOR, .narrow = narrow && node->dtype == SN_I64};
}

void sn_codegen_value(sn_emitter *e, const sn_kir_node *node) {
    LLVMValueRef in[4] = {0};
    bool uniform = true;
    for (int i = 0; i < sn_kir_op_operands(node->op); i++) {
        sn_emitted x = sn_codegen_get(e, node->in[i]);
        uniform = uniform && x.shape == SN_EMIT_UNIFORM;
        in[i] = x.value;
    }
    sn_emitted *out = &e->values[node->id];
    if (uniform) {
        *out = (sn_emitted){.value = sn_codegen_compute(e, node, in, false, false)};
    } else if (!emit_linear(e, node, out)) {
        *out = emit_vector(e, node);
    }
}
