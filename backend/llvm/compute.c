// One operator of kernel IR on LLVM values. All of it works on scalars and vectors alike.
#include "backend/kernel/scalar.h"
#include "backend/llvm/emit.h"

#include <stdio.h>
#include <string.h>

static unsigned bits_of(LLVMTypeRef type) {
    if (LLVMGetTypeKind(type) == LLVMVectorTypeKind) type = LLVMGetElementType(type);
    switch (LLVMGetTypeKind(type)) {
    case LLVMFloatTypeKind:
        return 32;
    case LLVMDoubleTypeKind:
        return 64;
    default:
        return LLVMGetIntTypeWidth(type);
    }
}

LLVMValueRef sn_codegen_call(sn_emitter *e, const char *intrinsic, LLVMTypeRef *overloads, int n_overloads,
                             LLVMValueRef *args, int n_args) {
    unsigned id = LLVMLookupIntrinsicID(intrinsic, strlen(intrinsic));
    SN_CHECK(id);
    LLVMValueRef callee = LLVMGetIntrinsicDeclaration(e->module, id, overloads, (size_t)n_overloads);
    LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, overloads, (size_t)n_overloads);
    return LLVMBuildCall2(e->builder, type, callee, args, (unsigned)n_args, "");
}

static LLVMValueRef intrinsic(sn_emitter *e, const char *name, const LLVMValueRef *in, int n) {
    LLVMTypeRef type = LLVMTypeOf(in[0]);
    LLVMValueRef args[3] = {in[0], n > 1 ? in[1] : NULL, n > 2 ? in[2] : NULL};
    return sn_codegen_call(e, name, &type, 1, args, n);
}

static LLVMValueRef select_max(sn_emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMRealPredicate better) {
    LLVMValueRef best = LLVMBuildSelect(e->builder, LLVMBuildFCmp(e->builder, better, a, b, ""), a, b, "");
    return LLVMBuildSelect(e->builder, LLVMBuildFCmp(e->builder, LLVMRealUNO, a, a, ""), a, best, "");
}

static LLVMValueRef round_bf16(sn_emitter *e, LLVMValueRef x) {
    LLVMBuilderRef b = e->builder;
    bool vector = LLVMGetTypeKind(LLVMTypeOf(x)) == LLVMVectorTypeKind;
    LLVMTypeRef type = sn_codegen_type(e, SN_I32, vector);
    LLVMValueRef bits = LLVMBuildBitCast(b, x, type, ""), sixteen = sn_codegen_int(type, 16);
    LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, sixteen, ""), sn_codegen_int(type, 1), "");
    LLVMValueRef sum = LLVMBuildAdd(b, LLVMBuildAdd(b, bits, sn_codegen_int(type, 0x7fff), ""), odd, "");
    LLVMValueRef quiet = LLVMBuildOr(b, bits, sn_codegen_int(type, 0x400000), "");
    LLVMValueRef rounded = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""), quiet, sum, "");
    rounded = LLVMBuildAnd(b, rounded, sn_codegen_int(type, (int32_t)0xffff0000), "");
    return LLVMBuildBitCast(b, rounded, LLVMTypeOf(x), "");
}

static LLVMValueRef round_f16(sn_emitter *e, LLVMValueRef x) {
    LLVMTypeRef half = LLVMHalfTypeInContext(e->context);
    if (LLVMGetTypeKind(LLVMTypeOf(x)) == LLVMVectorTypeKind) half = LLVMVectorType(half, (unsigned)e->width);
    return LLVMBuildFPExt(e->builder, LLVMBuildFPTrunc(e->builder, x, half, ""), LLVMTypeOf(x), "");
}

static LLVMValueRef sign(sn_emitter *e, LLVMValueRef x, bool is_float, bool is_signed) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x);
    if (is_float) {
        LLVMValueRef zero = sn_codegen_float(type, 0), below = LLVMBuildFCmp(b, LLVMRealOLT, x, zero, "");
        LLVMValueRef rest = LLVMBuildSelect(b, below, sn_codegen_float(type, -1), x, "");
        return LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, x, zero, ""), sn_codegen_float(type, 1), rest, "");
    }
    LLVMValueRef zero = sn_codegen_int(type, 0);
    LLVMValueRef positive = LLVMBuildZExt(b, LLVMBuildICmp(b, LLVMIntNE, x, zero, ""), type, "");
    if (!is_signed) return positive;
    LLVMValueRef below = LLVMBuildICmp(b, LLVMIntSLT, x, zero, "");
    return LLVMBuildSelect(b, below, sn_codegen_int(type, -1), positive, "");
}

static LLVMValueRef magnitude(sn_emitter *e, LLVMValueRef x, bool is_signed) {
    if (!is_signed) return x;
    LLVMValueRef below = LLVMBuildICmp(e->builder, LLVMIntSLT, x, sn_codegen_int(LLVMTypeOf(x), 0), "");
    return LLVMBuildSelect(e->builder, below, LLVMBuildNeg(e->builder, x, ""), x, "");
}

static LLVMValueRef unary(sn_emitter *e, sn_kir_op op, sn_dtype dtype, LLVMValueRef x) {
    LLVMBuilderRef b = e->builder;
    bool is_float = sn_dtype_is_float(dtype), is_signed = sn_kir_is_signed(dtype);
    switch (op) {
    case SN_KIR_NEG:
        return is_float ? LLVMBuildFNeg(b, x, "") : LLVMBuildNeg(b, x, "");
    case SN_KIR_ABS:
        return is_float ? intrinsic(e, "llvm.fabs", &x, 1) : magnitude(e, x, is_signed);
    case SN_KIR_SIGN:
        return sign(e, x, is_float, is_signed);
    case SN_KIR_NOT:
        return LLVMBuildNot(b, x, "");
    case SN_KIR_FLOOR:
        return intrinsic(e, "llvm.floor", &x, 1);
    case SN_KIR_CEIL:
        return intrinsic(e, "llvm.ceil", &x, 1);
    case SN_KIR_ROUND:
        return intrinsic(e, "llvm.roundeven", &x, 1);
    case SN_KIR_TRUNC:
        return intrinsic(e, "llvm.trunc", &x, 1);
    case SN_KIR_SQRT:
        return intrinsic(e, "llvm.sqrt", &x, 1);
    case SN_KIR_ISNAN:
        return LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
    case SN_KIR_ISINF:
        return LLVMBuildFCmp(b, LLVMRealOEQ, intrinsic(e, "llvm.fabs", &x, 1),
                             sn_codegen_float(LLVMTypeOf(x), __builtin_inf()), "");
    case SN_KIR_ROUND_F16:
        return round_f16(e, x);
    case SN_KIR_ROUND_BF16:
        return round_bf16(e, x);
    default:
        SN_BUG("no code for %s", sn_kir_op_name(op));
    }
}

static LLVMValueRef cast(sn_emitter *e, const sn_kir_node *node, LLVMValueRef x, bool vector, bool narrow) {
    LLVMBuilderRef b = e->builder;
    sn_dtype from = node->in[0]->dtype;
    LLVMTypeRef type = sn_codegen_type(e, narrow && node->dtype == SN_I64 ? SN_I32 : node->dtype, vector);
    bool from_float = sn_dtype_is_float(from), to_float = sn_dtype_is_float(node->dtype);
    bool is_signed = sn_kir_is_signed(from_float ? node->dtype : from);
    if (from_float && to_float)
        return node->dtype == SN_F64 ? LLVMBuildFPExt(b, x, type, "") : LLVMBuildFPTrunc(b, x, type, "");
    if (from_float) {
        LLVMTypeRef overloads[] = {type, LLVMTypeOf(x)};
        return sn_codegen_call(e, is_signed ? "llvm.fptosi.sat" : "llvm.fptoui.sat", overloads, 2, &x, 1);
    }
    if (to_float) return is_signed ? LLVMBuildSIToFP(b, x, type, "") : LLVMBuildUIToFP(b, x, type, "");
    if (bits_of(type) <= bits_of(LLVMTypeOf(x)))
        return bits_of(type) == bits_of(LLVMTypeOf(x)) ? x : LLVMBuildTrunc(b, x, type, "");
    return is_signed ? LLVMBuildSExt(b, x, type, "") : LLVMBuildZExt(b, x, type, "");
}

// Division by zero gives 0, and by -1 must not trap: both divide by 1 instead, and are mended.
static LLVMValueRef divide_signed(sn_emitter *e, LLVMValueRef x, LLVMValueRef y, bool quotient, bool floor) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef zero = sn_codegen_int(type, 0), one = sn_codegen_int(type, 1);
    LLVMValueRef none = LLVMBuildICmp(b, LLVMIntEQ, y, zero, "");
    LLVMValueRef minus = LLVMBuildICmp(b, LLVMIntEQ, y, sn_codegen_int(type, -1), "");
    LLVMValueRef safe = LLVMBuildSelect(b, LLVMBuildOr(b, none, minus, ""), one, y, "");
    LLVMValueRef q = LLVMBuildSDiv(b, x, safe, ""), r = LLVMBuildSub(b, x, LLVMBuildMul(b, q, safe, ""), "");
    if (floor) {
        LLVMValueRef opposite = LLVMBuildICmp(b, LLVMIntSLT, LLVMBuildXor(b, r, y, ""), zero, "");
        LLVMValueRef down = LLVMBuildAnd(b, opposite, LLVMBuildICmp(b, LLVMIntNE, r, zero, ""), "");
        q = LLVMBuildSelect(b, down, LLVMBuildSub(b, q, one, ""), q, "");
        r = LLVMBuildSelect(b, down, LLVMBuildAdd(b, r, y, ""), r, "");
    }
    if (!quotient) return r;
    q = LLVMBuildSelect(b, minus, LLVMBuildNeg(b, x, ""), q, "");
    return LLVMBuildSelect(b, none, zero, q, "");
}

static LLVMValueRef divide_unsigned(sn_emitter *e, LLVMValueRef x, LLVMValueRef y, bool quotient, bool never_zero) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef zero = sn_codegen_int(type, 0);
    if (never_zero) return quotient ? LLVMBuildUDiv(b, x, y, "") : LLVMBuildURem(b, x, y, "");
    LLVMValueRef none = LLVMBuildICmp(b, LLVMIntEQ, y, zero, "");
    LLVMValueRef safe = LLVMBuildSelect(b, none, sn_codegen_int(type, 1), y, "");
    LLVMValueRef value = quotient ? LLVMBuildUDiv(b, x, safe, "") : LLVMBuildURem(b, x, safe, "");
    return LLVMBuildSelect(b, none, zero, value, "");
}

static LLVMValueRef divide(sn_emitter *e, const sn_kir_node *node, LLVMValueRef x, LLVMValueRef y) {
    const sn_kir_node *a = node->in[0], *b = node->in[1];
    bool quotient = node->op == SN_KIR_DIV || node->op == SN_KIR_FLOOR_DIV;
    bool floor = node->op == SN_KIR_FLOOR_DIV || node->op == SN_KIR_FLOOR_MOD;
    bool is_signed = sn_kir_is_signed(node->dtype);
    if (!is_signed || (a->min >= 0 && b->min >= 0))
        return divide_unsigned(e, x, y, quotient, b->min > 0 || (b->op == SN_KIR_CONST && b->i64 != 0));
    return divide_signed(e, x, y, quotient, floor);
}

static LLVMValueRef shift(sn_emitter *e, const sn_kir_node *node, LLVMValueRef x, LLVMValueRef amount) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x);
    unsigned bits = bits_of(type);
    bool left = node->op == SN_KIR_SHL, is_signed = sn_kir_is_signed(node->dtype);
    LLVMValueRef last = sn_codegen_int(type, bits - 1);
    LLVMValueRef inside = LLVMBuildICmp(b, LLVMIntULE, amount, last, "");
    LLVMValueRef safe = LLVMBuildSelect(b, inside, amount, last, "");
    if (!left && is_signed) return LLVMBuildAShr(b, x, safe, "");
    LLVMValueRef value = left ? LLVMBuildShl(b, x, safe, "") : LLVMBuildLShr(b, x, safe, "");
    return LLVMBuildSelect(b, inside, value, sn_codegen_int(type, 0), "");
}

// The upper half of 32-bit products. x86 multiplies the even lanes of 32 bits to 64; the odd ones are shifted there.
static LLVMValueRef mul_high(sn_emitter *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context), i64 = LLVMInt64TypeInContext(e->context);
    if (LLVMGetTypeKind(LLVMTypeOf(x)) != LLVMVectorTypeKind) {
        LLVMValueRef product = LLVMBuildMul(b, LLVMBuildZExt(b, x, i64, ""), LLVMBuildZExt(b, y, i64, ""), "");
        return LLVMBuildTrunc(b, LLVMBuildLShr(b, product, sn_codegen_int(i64, 32), ""), i32, "");
    }
    LLVMTypeRef pairs = LLVMVectorType(i64, (unsigned)e->width / 2);
    LLVMValueRef low = sn_codegen_int(pairs, 0xffffffff), half = sn_codegen_int(pairs, 32), order[64];
    LLVMValueRef xs = LLVMBuildBitCast(b, x, pairs, ""), ys = LLVMBuildBitCast(b, y, pairs, "");
    LLVMValueRef even = LLVMBuildMul(b, LLVMBuildAnd(b, xs, low, ""), LLVMBuildAnd(b, ys, low, ""), "");
    LLVMValueRef odd = LLVMBuildMul(b, LLVMBuildLShr(b, xs, half, ""), LLVMBuildLShr(b, ys, half, ""), "");
    for (int i = 0; i < e->width; i++) order[i] = LLVMConstInt(i32, (unsigned)(i % 2 ? e->width + i : i + 1), false);
    return LLVMBuildShuffleVector(b, LLVMBuildBitCast(b, even, LLVMTypeOf(x), ""),
                                  LLVMBuildBitCast(b, odd, LLVMTypeOf(x), ""),
                                  LLVMConstVector(order, (unsigned)e->width), "");
}

LLVMValueRef sn_codegen_combine(sn_emitter *e, sn_kir_op op, sn_dtype dtype, LLVMValueRef x, LLVMValueRef y) {
    LLVMBuilderRef b = e->builder;
    bool is_float = sn_dtype_is_float(dtype), is_signed = sn_kir_is_signed(dtype), is_max = op == SN_KIR_MAX;
    switch (op) {
    case SN_KIR_ADD:
        return is_float ? LLVMBuildFAdd(b, x, y, "") : LLVMBuildAdd(b, x, y, "");
    case SN_KIR_SUB:
        return is_float ? LLVMBuildFSub(b, x, y, "") : LLVMBuildSub(b, x, y, "");
    case SN_KIR_MUL:
        return is_float ? LLVMBuildFMul(b, x, y, "") : LLVMBuildMul(b, x, y, "");
    case SN_KIR_AND:
        return LLVMBuildAnd(b, x, y, "");
    case SN_KIR_OR:
        return LLVMBuildOr(b, x, y, "");
    case SN_KIR_XOR:
        return LLVMBuildXor(b, x, y, "");
    case SN_KIR_MIN:
    case SN_KIR_MAX: {
        if (is_float) return select_max(e, x, y, is_max ? LLVMRealOGT : LLVMRealOLT);
        LLVMIntPredicate less = is_signed ? LLVMIntSLT : LLVMIntULT, more = is_signed ? LLVMIntSGT : LLVMIntUGT;
        return LLVMBuildSelect(b, LLVMBuildICmp(b, is_max ? more : less, x, y, ""), x, y, "");
    }
    default:
        SN_BUG("no code for %s", sn_kir_op_name(op));
    }
}

static LLVMValueRef compare(sn_emitter *e, sn_kir_op op, sn_dtype dtype, LLVMValueRef x, LLVMValueRef y) {
    static const LLVMRealPredicate reals[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOLT,
                                              LLVMRealOLE, LLVMRealOGT, LLVMRealOGE};
    static const LLVMIntPredicate ints[2][6] = {{LLVMIntEQ, LLVMIntNE, LLVMIntULT, LLVMIntULE, LLVMIntUGT, LLVMIntUGE},
                                                {LLVMIntEQ, LLVMIntNE, LLVMIntSLT, LLVMIntSLE, LLVMIntSGT, LLVMIntSGE}};
    int at = (int)(op - SN_KIR_EQ);
    if (sn_dtype_is_float(dtype)) return LLVMBuildFCmp(e->builder, reals[at], x, y, "");
    return LLVMBuildICmp(e->builder, ints[sn_kir_is_signed(dtype)][at], x, y, "");
}

static LLVMValueRef libm_call(sn_emitter *e, const char *name, sn_dtype dtype, const LLVMValueRef *in, int n) {
    LLVMTypeRef type = sn_codegen_type(e, dtype, false), args[2] = {type, type};
    LLVMTypeRef signature = LLVMFunctionType(type, args, (unsigned)n, false);
    LLVMValueRef callee = LLVMGetNamedFunction(e->module, name);
    if (!callee) {
        callee = LLVMAddFunction(e->module, name, signature);
        static const char *const attributes[] = {"nounwind", "willreturn", "memory"};
        for (int i = 0; i < 3; i++) { // memory = 0: none
            unsigned kind = LLVMGetEnumAttributeKindForName(attributes[i], strlen(attributes[i]));
            LLVMAddAttributeAtIndex(callee, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                    LLVMCreateEnumAttribute(e->context, kind, 0));
        }
    }
    LLVMValueRef operands[2] = {in[0], n > 1 ? in[1] : NULL};
    return LLVMBuildCall2(e->builder, signature, callee, operands, (unsigned)n, "");
}

static LLVMValueRef libm(sn_emitter *e, const sn_kir_node *node, const LLVMValueRef *in, bool vector) {
    char name[16];
    int n = sn_kir_op_operands(node->op);
    snprintf(name, sizeof name, "%s%s", sn_kir_op_name(node->op), node->dtype == SN_F32 ? "f" : "");
    if (!vector) return libm_call(e, name, node->dtype, in, n);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef result = LLVMGetPoison(LLVMTypeOf(in[0]));
    for (int lane = 0; lane < e->width; lane++) {
        LLVMValueRef at = LLVMConstInt(i32, (unsigned)lane, false), args[2] = {0};
        for (int i = 0; i < n; i++) args[i] = LLVMBuildExtractElement(e->builder, in[i], at, "");
        LLVMValueRef value = libm_call(e, name, node->dtype, args, n);
        result = LLVMBuildInsertElement(e->builder, result, value, at, "");
    }
    return result;
}

static LLVMValueRef expand(sn_emitter *e, const sn_kir_function *f, const LLVMValueRef *in, bool vector) {
    LLVMValueRef *values = SN_NEW_N(&e->memory, LLVMValueRef, f->body->n_nodes);
    for (int i = 0; i < f->n_args; i++) values[f->args[i]->id] = in[i];
    for (const sn_kir_node *step = f->body->body.first; step; step = step->next) {
        LLVMValueRef operands[4] = {0};
        for (int i = 0; i < sn_kir_op_operands(step->op); i++) operands[i] = values[step->in[i]->id];
        values[step->id] = step->op == SN_KIR_CONST ? sn_codegen_constant(e, step, vector)
                                                    : sn_codegen_compute(e, step, operands, vector, false);
    }
    return values[f->result->id];
}

LLVMValueRef sn_codegen_compute(sn_emitter *e, const sn_kir_node *node, const LLVMValueRef in[4], bool vector,
                                bool narrow) {
    switch (node->op) {
    case SN_KIR_CAST:
        return cast(e, node, in[0], vector, narrow);
    case SN_KIR_BITCAST:
        return LLVMBuildBitCast(e->builder, in[0], sn_codegen_type(e, node->dtype, vector), "");
    case SN_KIR_SELECT:
        return LLVMBuildSelect(e->builder, in[0], in[1], in[2], "");
    case SN_KIR_FMA:
        return intrinsic(e, "llvm.fma", in, 3);
    case SN_KIR_SHL:
    case SN_KIR_SHR:
        return shift(e, node, in[0], in[1]);
    case SN_KIR_DIV:
    case SN_KIR_REM:
        if (sn_dtype_is_float(node->dtype))
            return node->op == SN_KIR_DIV ? LLVMBuildFDiv(e->builder, in[0], in[1], "")
                                          : LLVMBuildFRem(e->builder, in[0], in[1], "");
        return divide(e, node, in[0], in[1]);
    case SN_KIR_FLOOR_DIV:
    case SN_KIR_FLOOR_MOD:
        return divide(e, node, in[0], in[1]);
    case SN_KIR_MUL_HIGH:
        return mul_high(e, in[0], in[1]);
    default:
        break;
    }
    if (node->op >= SN_KIR_EQ && node->op <= SN_KIR_GE) return compare(e, node->op, node->in[0]->dtype, in[0], in[1]);
    if ((node->op >= SN_KIR_EXP && node->op <= SN_KIR_ATAN2) || node->op == SN_KIR_RANDOM_BITS) {
        const sn_kir_function *f = sn_kir_math_get(&e->math, node->op, node->in[0]->dtype);
        return f ? expand(e, f, in, vector) : libm(e, node, in, vector);
    }
    if (sn_kir_op_operands(node->op) == 1) return unary(e, node->op, node->in[0]->dtype, in[0]);
    return sn_codegen_combine(e, node->op, node->dtype, in[0], in[1]);
}
