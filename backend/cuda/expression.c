// Values as C expressions.
#include "backend/cuda/printer.h"

#include "backend/kernel/scalar.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

const char *sn_cuda_type(sn_dtype dtype) {
    switch (dtype) {
    case SN_F32:
        return "float";
    case SN_F64:
        return "double";
    default:
        return sn_dtype_name(dtype); // typedefs of the prelude; bool
    }
}

const char *sn_cuda_memory_type(sn_dtype dtype) {
    if (dtype == SN_F16 || dtype == SN_BF16) return "u16";
    return dtype == SN_BOOL ? "u8" : sn_cuda_type(dtype);
}

// With room for a loop's increment.
bool sn_cuda_is_int(const sn_kir_node *node) {
    return node->dtype == SN_I64 && node->min > INT32_MIN / 2 && node->max < INT32_MAX / 2;
}

const char *sn_cuda_value_type(const sn_kir_node *node) {
    return sn_cuda_is_int(node) ? "int" : sn_cuda_type(node->dtype);
}

const char *sn_cuda_format(sn_cuda_printer *p, const char *format, ...) {
    va_list args;
    sn_str s = {0};
    va_start(args, format);
    sn_str_vprintf(&s, format, args);
    va_end(args);
    const char *text = sn_arena_strdup(&p->memory, sn_str_text(&s));
    sn_str_free(&s);
    return text;
}

static const char *float_constant(sn_cuda_printer *p, double value, bool single) {
    if (isnan(value)) return single ? "SN_NAN" : "(double)SN_NAN";
    if (isinf(value)) return sn_cuda_format(p, "(%s%sSN_INF)", value < 0 ? "-" : "", single ? "" : "(double)");
    sn_str s = {0};
    sn_str_number(&s, value, single);
    if (!strpbrk(sn_str_text(&s), ".e")) sn_str_puts(&s, ".0");
    if (single) sn_str_putc(&s, 'f');
    const char *text = sn_cuda_format(p, signbit(value) ? "(%s)" : "%s", sn_str_text(&s));
    sn_str_free(&s);
    return text;
}

const char *sn_cuda_constant(sn_cuda_printer *p, const sn_kir_node *node) {
    if (sn_dtype_is_float(node->dtype)) return float_constant(p, node->f64, node->dtype == SN_F32);
    if (node->dtype == SN_BOOL) return node->i64 ? "true" : "false";
    if (node->dtype == SN_U64) return sn_cuda_format(p, "%lluull", (unsigned long long)node->i64);
    if (node->dtype == SN_U32) return sn_cuda_format(p, "%lluu", (unsigned long long)node->i64);
    if (node->i64 == INT64_MIN) return "(-9223372036854775807ll - 1)";
    bool wide = node->i64 > INT32_MAX || node->i64 < -INT32_MAX;
    return sn_cuda_format(p, node->i64 < 0 ? "(%lld%s)" : "%lld%s", (long long)node->i64, wide ? "ll" : "");
}

const char *sn_cuda_operand(sn_cuda_printer *p, const sn_kir_node *node) {
    if (node->op == SN_KIR_CONST) return sn_cuda_constant(p, node);
    if (node->op == SN_KIR_BLOCK) return "block";
    sn_cuda_text t = p->texts[node->id];
    SN_CHECK(t.text);
    return t.atom ? t.text : sn_cuda_format(p, "(%s)", t.text);
}

const char *sn_cuda_argument(sn_cuda_printer *p, const sn_kir_node *node) {
    if (node->op == SN_KIR_CONST || node->op == SN_KIR_BLOCK) return sn_cuda_operand(p, node);
    SN_CHECK(p->texts[node->id].text);
    return p->texts[node->id].text;
}

static sn_cuda_text atom(const char *text) {
    return (sn_cuda_text){text, true};
}

static const char *libm_suffix(sn_dtype dtype) {
    return dtype == SN_F32 ? "f" : "";
}

// Integers as wide as a register wrap through unsigned, narrower ones in the cast back. Indices of known range do not
// wrap.
static sn_cuda_text integer_sum(sn_cuda_printer *p, const sn_kir_node *node, const char *sign) {
    const char *a = sn_cuda_operand(p, node->in[0]), *b = sn_cuda_operand(p, node->in[1]);
    bool bounded = node->dtype == SN_I64 && node->min > INT64_MIN && node->max < INT64_MAX;
    if (sn_cuda_is_int(node) || node->dtype == SN_U32 || node->dtype == SN_U64)
        return (sn_cuda_text){sn_cuda_format(p, "%s %s %s", a, sign, b), false};
    if (bounded) return (sn_cuda_text){sn_cuda_format(p, "(i64)%s %s %s", a, sign, b), false};
    const char *through = node->dtype == SN_I64 ? "u64" : "u32";
    return (sn_cuda_text){
        sn_cuda_format(p, "(%s)((%s)%s %s (%s)%s)", sn_cuda_type(node->dtype), through, a, sign, through, b), false};
}

const char *sn_cuda_combine(sn_cuda_printer *p, sn_kir_op op, sn_dtype dtype, const char *a, const char *b) {
    bool is_float = sn_dtype_is_float(dtype);
    if (op == SN_KIR_MIN || op == SN_KIR_MAX) {
        p->ops[op][dtype] = true;
        return sn_cuda_format(p, "sn_%s_%s(%s, %s)", sn_kir_op_name(op), sn_dtype_name(dtype), a, b);
    }
    const char *sign = op == SN_KIR_ADD ? "+" : op == SN_KIR_MUL ? "*" : op == SN_KIR_AND ? "&" : "|";
    if (is_float) return sn_cuda_format(p, "%s %s %s", a, sign, b);
    const char *through = sn_dtype_bytes(dtype) == 8 ? "u64" : "u32";
    return sn_cuda_format(p, "(%s)((%s)%s %s (%s)%s)", sn_cuda_type(dtype), through, a, sign, through, b);
}

static sn_cuda_text helper(sn_cuda_printer *p, const sn_kir_node *node, sn_dtype dtype) {
    const char *name = sn_kir_op_name(node->op), *type = sn_dtype_name(dtype);
    const char *a = sn_cuda_argument(p, node->in[0]);
    p->ops[node->op][dtype] = true;
    if (sn_kir_op_operands(node->op) == 1) return atom(sn_cuda_format(p, "sn_%s_%s(%s)", name, type, a));
    return atom(sn_cuda_format(p, "sn_%s_%s(%s, %s)", name, type, a, sn_cuda_argument(p, node->in[1])));
}

static sn_cuda_text division(sn_cuda_printer *p, const sn_kir_node *node) {
    const sn_kir_node *a = node->in[0], *b = node->in[1];
    bool quotient = node->op == SN_KIR_DIV || node->op == SN_KIR_FLOOR_DIV;
    bool plain = b->op == SN_KIR_CONST && b->i64 > 0 && a->min >= 0 && sn_dtype_bytes(node->dtype) >= 4;
    if (!plain) return helper(p, node, node->dtype);
    return (sn_cuda_text){
        sn_cuda_format(p, "%s %s %s", sn_cuda_operand(p, a), quotient ? "/" : "%", sn_cuda_operand(p, b)), false};
}

static sn_cuda_text cast(sn_cuda_printer *p, const sn_kir_node *node) {
    sn_dtype from = node->in[0]->dtype;
    const char *a = sn_cuda_operand(p, node->in[0]);
    if (sn_dtype_is_float(from) && sn_kir_is_integer(node->dtype)) {
        p->casts[from][node->dtype] = true;
        return atom(sn_cuda_format(p, "sn_%s_to_%s(%s)", sn_dtype_name(from), sn_dtype_name(node->dtype), a));
    }
    return (sn_cuda_text){sn_cuda_format(p, "(%s)%s", sn_cuda_value_type(node), a), false};
}

static sn_cuda_text bitcast(sn_cuda_printer *p, const sn_kir_node *node) {
    static const char *const reads[SN_DTYPE_COUNT] = {
        [SN_I32] = "__float_as_int", [SN_U32] = "__float_as_uint", [SN_I64] = "__double_as_longlong"};
    static const char *const writes[SN_DTYPE_COUNT] = {
        [SN_I32] = "__int_as_float", [SN_U32] = "__uint_as_float", [SN_I64] = "__longlong_as_double"};
    sn_dtype from = node->in[0]->dtype;
    const char *a = sn_cuda_operand(p, node->in[0]);
    if (sn_dtype_is_float(from) && node->dtype == SN_U64)
        return (sn_cuda_text){sn_cuda_format(p, "(u64)__double_as_longlong(%s)", a), false};
    if (sn_dtype_is_float(from)) return atom(sn_cuda_format(p, "%s(%s)", reads[node->dtype], a));
    if (!sn_dtype_is_float(node->dtype))
        return (sn_cuda_text){sn_cuda_format(p, "(%s)%s", sn_cuda_type(node->dtype), a), false};
    if (from == SN_U64) return atom(sn_cuda_format(p, "__longlong_as_double((i64)%s)", a));
    return atom(sn_cuda_format(p, "%s(%s)", writes[from], a));
}

static sn_cuda_text math_call(sn_cuda_printer *p, const sn_kir_node *node) {
    sn_dtype dtype = node->in[0]->dtype;
    if (sn_kir_math_get(p->math, node->op, dtype)) {
        if (node->op != SN_KIR_RANDOM_BITS) return helper(p, node, dtype);
        p->ops[node->op][SN_U32] = true;
        return atom(sn_cuda_format(p, "sn_random_bits_u32(%s, %s, %s, %s)", sn_cuda_argument(p, node->in[0]),
                                   sn_cuda_argument(p, node->in[1]), sn_cuda_argument(p, node->in[2]),
                                   sn_cuda_argument(p, node->in[3])));
    }
    const char *name = sn_kir_op_name(node->op), *suffix = libm_suffix(node->dtype);
    const char *a = sn_cuda_argument(p, node->in[0]);
    if (sn_kir_op_operands(node->op) == 1) return atom(sn_cuda_format(p, "%s%s(%s)", name, suffix, a));
    return atom(sn_cuda_format(p, "%s%s(%s, %s)", name, suffix, a, sn_cuda_argument(p, node->in[1])));
}

static sn_cuda_text unary(sn_cuda_printer *p, const sn_kir_node *node) {
    static const char *const calls[SN_KIR_OP_COUNT] = {
        [SN_KIR_FLOOR] = "floor", [SN_KIR_CEIL] = "ceil", [SN_KIR_ROUND] = "rint",
        [SN_KIR_TRUNC] = "trunc", [SN_KIR_SQRT] = "sqrt", [SN_KIR_ABS] = "fabs"};
    const char *a = sn_cuda_operand(p, node->in[0]), *inside = sn_cuda_argument(p, node->in[0]);
    bool is_float = sn_dtype_is_float(node->in[0]->dtype);
    switch (node->op) {
    case SN_KIR_NEG:
        if (is_float) return (sn_cuda_text){sn_cuda_format(p, "-%s", a), false};
        return (sn_cuda_text){sn_cuda_format(p, "(%s)(0 - (%s)%s)", sn_cuda_type(node->dtype),
                                             sn_dtype_bytes(node->dtype) == 8 ? "u64" : "u32", a),
                              false};
    case SN_KIR_NOT:
        if (node->dtype == SN_BOOL) return (sn_cuda_text){sn_cuda_format(p, "!%s", a), false};
        return (sn_cuda_text){sn_cuda_format(p, "(%s)~%s", sn_cuda_type(node->dtype), a), false};
    case SN_KIR_ISNAN:
        return atom(sn_cuda_format(p, "isnan(%s)", inside));
    case SN_KIR_ISINF:
        return atom(sn_cuda_format(p, "isinf(%s)", inside));
    case SN_KIR_ROUND_F16:
        p->f16 = true;
        return atom(sn_cuda_format(p, "sn_f16_to_float(sn_f16_from_float(%s))", inside));
    case SN_KIR_ROUND_BF16:
        p->bf16 = true;
        return atom(sn_cuda_format(p, "sn_bf16_to_float(sn_bf16_from_float(%s))", inside));
    default:
        break;
    }
    if (!is_float || !calls[node->op]) return helper(p, node, node->dtype);
    return atom(sn_cuda_format(p, "%s%s(%s)", calls[node->op], libm_suffix(node->dtype), inside));
}

static sn_cuda_text shift(sn_cuda_printer *p, const sn_kir_node *node) {
    const sn_kir_node *amount = node->in[1];
    int bits = 8 * (int)sn_dtype_bytes(node->dtype);
    if (amount->op != SN_KIR_CONST || amount->i64 < 0 || amount->i64 >= bits) return helper(p, node, node->dtype);
    const char *type = sn_cuda_type(node->dtype), *a = sn_cuda_operand(p, node->in[0]);
    if (node->op == SN_KIR_SHR) return (sn_cuda_text){sn_cuda_format(p, "%s >> %d", a, (int)amount->i64), false};
    return (sn_cuda_text){
        sn_cuda_format(p, "(%s)((%s)%s << %d)", type, bits == 64 ? "u64" : "u32", a, (int)amount->i64), false};
}

static sn_cuda_text infix(sn_cuda_printer *p, const sn_kir_node *node, const char *sign) {
    return (sn_cuda_text){
        sn_cuda_format(p, "%s %s %s", sn_cuda_operand(p, node->in[0]), sign, sn_cuda_operand(p, node->in[1])), false};
}

static sn_cuda_text binary(sn_cuda_printer *p, const sn_kir_node *node) {
    static const char *const signs[SN_KIR_OP_COUNT] = {
        [SN_KIR_ADD] = "+", [SN_KIR_SUB] = "-", [SN_KIR_MUL] = "*", [SN_KIR_DIV] = "/", [SN_KIR_AND] = "&",
        [SN_KIR_OR] = "|",  [SN_KIR_XOR] = "^", [SN_KIR_EQ] = "==", [SN_KIR_NE] = "!=", [SN_KIR_LT] = "<",
        [SN_KIR_LE] = "<=", [SN_KIR_GT] = ">",  [SN_KIR_GE] = ">="};
    bool is_float = sn_dtype_is_float(node->dtype), is_bool = node->dtype == SN_BOOL;
    const char *sign = signs[node->op];
    switch (node->op) {
    case SN_KIR_ADD:
    case SN_KIR_SUB:
    case SN_KIR_MUL:
        return is_float ? infix(p, node, sign) : integer_sum(p, node, sign);
    case SN_KIR_DIV:
    case SN_KIR_REM:
    case SN_KIR_FLOOR_DIV:
    case SN_KIR_FLOOR_MOD:
        if (!is_float) return division(p, node);
        if (node->op == SN_KIR_DIV) return infix(p, node, sign);
        return atom(sn_cuda_format(p, "fmod%s(%s, %s)", libm_suffix(node->dtype), sn_cuda_argument(p, node->in[0]),
                                   sn_cuda_argument(p, node->in[1])));
    case SN_KIR_AND:
    case SN_KIR_OR:
        return infix(p, node, !is_bool ? sign : node->op == SN_KIR_AND ? "&&" : "||");
    case SN_KIR_XOR:
        return infix(p, node, is_bool ? "!=" : sign);
    case SN_KIR_MIN:
    case SN_KIR_MAX:
        return helper(p, node, node->dtype);
    case SN_KIR_SHL:
    case SN_KIR_SHR:
        return shift(p, node);
    case SN_KIR_MUL_HIGH:
        return atom(
            sn_cuda_format(p, "__umulhi(%s, %s)", sn_cuda_argument(p, node->in[0]), sn_cuda_argument(p, node->in[1])));
    default:
        return infix(p, node, sign);
    }
}

static sn_cuda_text load(sn_cuda_printer *p, const sn_kir_node *node) {
    sn_dtype dtype = node->buffer->dtype;
    const char *index = sn_cuda_argument(p, node->in[0]), *name = sn_cuda_buffer(p, node->buffer);
    const char *text = sn_cuda_format(p, "%s[%s]", name, index);
    p->f16 = p->f16 || dtype == SN_F16;
    p->bf16 = p->bf16 || dtype == SN_BF16;
    if (dtype == SN_F16) text = sn_cuda_format(p, "sn_f16_to_float(%s)", text);
    if (dtype == SN_BF16) text = sn_cuda_format(p, "sn_bf16_to_float(%s)", text);
    if (dtype == SN_BOOL) text = sn_cuda_format(p, "(%s != 0)", text);
    if (!node->in[1]) return atom(text);
    return (sn_cuda_text){
        sn_cuda_format(p, "%s ? %s : %s", sn_cuda_operand(p, node->in[1]), text, sn_cuda_operand(p, node->in[2])),
        false};
}

sn_cuda_text sn_cuda_expression(sn_cuda_printer *p, const sn_kir_node *node) {
    switch (node->op) {
    case SN_KIR_LOAD:
        return load(p, node);
    case SN_KIR_CAST:
        return cast(p, node);
    case SN_KIR_BITCAST:
        return bitcast(p, node);
    case SN_KIR_SELECT:
        return (sn_cuda_text){sn_cuda_format(p, "%s ? %s : %s", sn_cuda_operand(p, node->in[0]),
                                             sn_cuda_operand(p, node->in[1]), sn_cuda_operand(p, node->in[2])),
                              false};
    case SN_KIR_FMA:
        return atom(sn_cuda_format(p, "fma%s(%s, %s, %s)", libm_suffix(node->dtype), sn_cuda_argument(p, node->in[0]),
                                   sn_cuda_argument(p, node->in[1]), sn_cuda_argument(p, node->in[2])));
    default:
        break;
    }
    if ((node->op >= SN_KIR_EXP && node->op <= SN_KIR_ATAN2) || node->op == SN_KIR_RANDOM_BITS)
        return math_call(p, node);
    return sn_kir_op_operands(node->op) == 1 ? unary(p, node) : binary(p, node);
}
