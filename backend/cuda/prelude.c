// What stands before the kernels: types, and the helpers that the kernels call.
#include "backend/cuda/printer.h"

#include "backend/kernel/scalar.h"

#include <string.h>

static const char types[] = "typedef signed char i8;\n"
                            "typedef short i16;\n"
                            "typedef int i32;\n"
                            "typedef long long i64;\n"
                            "typedef unsigned char u8;\n"
                            "typedef unsigned short u16;\n"
                            "typedef unsigned int u32;\n"
                            "typedef unsigned long long u64;\n"
                            "\n"
                            "#ifdef __cplusplus\n"
                            "#define SN_KERNEL extern \"C\" __global__\n"
                            "#else\n"
                            "#define SN_KERNEL __global__\n"
                            "#endif\n"
                            "#define SN_DEVICE static __device__ __forceinline__\n"
                            "#define SN_INF __int_as_float(0x7f800000)\n"
                            "#define SN_NAN __int_as_float(0x7fc00000)\n";

static const char bf16[] =
    "\n"
    "SN_DEVICE float sn_bf16_to_float(u16 x) {\n"
    "    return __uint_as_float((u32)x << 16);\n"
    "}\n"
    "SN_DEVICE u16 sn_bf16_from_float(float x) { // to nearest even\n"
    "    const u32 bits = __float_as_uint(x);\n"
    "    return isnan(x) ? (u16)(bits >> 16 | 0x40) : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n"
    "}\n";

static const char f16[] = "\n"
                          "SN_DEVICE float sn_f16_to_float(u16 x) {\n"
                          "#ifdef __CUDA_ARCH__\n"
                          "    float value;\n"
                          "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(value) : \"h\"(x));\n"
                          "    return value;\n"
                          "#else\n"
                          "    return sn_host_f16_to_float(x);\n"
                          "#endif\n"
                          "}\n"
                          "SN_DEVICE u16 sn_f16_from_float(float x) { // to nearest even\n"
                          "#ifdef __CUDA_ARCH__\n"
                          "    u16 value;\n"
                          "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(value) : \"f\"(x));\n"
                          "    return value;\n"
                          "#else\n"
                          "    return sn_host_f16_from_float(x);\n"
                          "#endif\n"
                          "}\n";

// @T the type, @N its name here, @U the unsigned type to wrap in, @B its bits; NULL: not for this kind of type.
typedef struct recipe {
    int operands;
    const char *real, *with_sign, *without_sign;
} recipe;

static const recipe recipes[SN_KIR_OP_COUNT] = {
    [SN_KIR_MIN] = {2, "return a < b || isnan(a) ? a : b;", "return a < b ? a : b;", "return a < b ? a : b;"},
    [SN_KIR_MAX] = {2, "return a > b || isnan(a) ? a : b;", "return a > b ? a : b;", "return a > b ? a : b;"},
    [SN_KIR_ABS] = {1, NULL, "return a < 0 ? (@T)(0 - (@U)a) : a;", "return a;"},
    [SN_KIR_SIGN] = {1, "return a > 0 ? 1 : a < 0 ? -1 : a;", "return a > 0 ? 1 : a < 0 ? -1 : 0;", "return a != 0;"},
    [SN_KIR_DIV] = {2, NULL, "return b == 0 ? 0 : b == -1 ? (@T)(0 - (@U)a) : (@T)(a / b);",
                    "return b == 0 ? 0 : (@T)(a / b);"},
    [SN_KIR_REM] = {2, NULL, "return b == 0 || b == -1 ? 0 : (@T)(a % b);", "return b == 0 ? 0 : (@T)(a % b);"},
    [SN_KIR_FLOOR_DIV] = {2, NULL,
                          "if (b == 0) return 0;\n    if (b == -1) return (@T)(0 - (@U)a);\n"
                          "    return (@T)(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));",
                          "return b == 0 ? 0 : (@T)(a / b);"},
    [SN_KIR_FLOOR_MOD] = {2, NULL,
                          "if (b == 0 || b == -1) return 0;\n    const @T r = (@T)(a % b);\n"
                          "    return r != 0 && (r < 0) != (b < 0) ? (@T)(r + b) : r;",
                          "return b == 0 ? 0 : (@T)(a % b);"},
    [SN_KIR_SHL] = {2, NULL, "return b < 0 || b >= @B ? 0 : (@T)((@U)a << b);",
                    "return b >= @B ? 0 : (@T)((@U)a << b);"},
    [SN_KIR_SHR] = {2, NULL, "return b < 0 || b >= @B ? (@T)(a < 0 ? -1 : 0) : (@T)(a >> b);",
                    "return b >= @B ? 0 : (@T)(a >> b);"},
};

static void fill(sn_str *out, const char *text, sn_dtype dtype) {
    for (; *text; text++) {
        if (*text != '@') {
            sn_str_putc(out, *text);
            continue;
        }
        text++;
        if (*text == 'T') sn_str_puts(out, sn_cuda_type(dtype));
        if (*text == 'N') sn_str_puts(out, sn_dtype_name(dtype));
        if (*text == 'U') sn_str_puts(out, sn_dtype_bytes(dtype) == 8 ? "u64" : "u32");
        if (*text == 'B') sn_str_printf(out, "%d", 8 * (int)sn_dtype_bytes(dtype));
    }
}

static void print_recipe(sn_cuda_printer *p, sn_kir_op op, sn_dtype dtype) {
    const recipe *r = &recipes[op];
    char class = sn_dtype_class(dtype);
    const char *body = class == 'f' ? r->real : class == 'i' ? r->with_sign : r->without_sign;
    SN_CHECK(body);
    const char *type = sn_cuda_type(dtype);
    sn_str_printf(p->out, "\nSN_DEVICE %s sn_%s_%s(%s a", type, sn_kir_op_name(op), sn_dtype_name(dtype), type);
    if (r->operands == 2) sn_str_printf(p->out, ", %s b", type);
    sn_str_puts(p->out, ") {\n    ");
    fill(p->out, body, dtype);
    sn_str_puts(p->out, "\n}\n");
}

// Saturation by comparison with the type's bounds, which floats hold exactly or round up to the first value beyond.
static void print_cast(sn_cuda_printer *p, sn_dtype from, sn_dtype to) {
    bool is_signed = sn_kir_is_signed(to), single = from == SN_F32;
    int bits = 8 * (int)sn_dtype_bytes(to) - is_signed;
    const char *limits[2][2] = {{"2147483647", "9223372036854775807ll"}, {"4294967295u", "18446744073709551615ull"}};
    long long max = bits < 31 ? (1ll << bits) - 1 : 0;
    const char *limit = max ? sn_cuda_format(p, "%lld", max) : limits[!is_signed][bits > 32];
    const char *power =
        sn_cuda_format(p, "%.1f%s", (double)(bits == 64 ? 0x1p64 : (double)(1ull << bits)), single ? "f" : "");
    sn_str_printf(p->out, "\nSN_DEVICE %s sn_%s_to_%s(%s x) {\n    if (isnan(x)) return 0;\n", sn_cuda_type(to),
                  sn_dtype_name(from), sn_dtype_name(to), sn_cuda_type(from));
    sn_str_printf(p->out, "    if (x >= %s) return %s;\n", power, limit);
    if (is_signed) {
        sn_str_printf(p->out, "    if (x <= -%s) return (%s)(-%s - 1);\n", power, sn_cuda_type(to), limit);
    } else {
        sn_str_puts(p->out, "    if (x <= 0) return 0;\n");
    }
    sn_str_printf(p->out, "    return (%s)x;\n}\n", sn_cuda_type(to));
}

// The reduction of one value per thread over the block, by shuffles and one round through shared memory; all threads
// get the result.
static void print_block_reduction(sn_cuda_printer *p, sn_kir_op op, sn_dtype dtype) {
    const char *type = sn_cuda_type(dtype), *other = "__shfl_xor_sync(0xffffffffu, value, step)";
    if (sn_dtype_bytes(dtype) < 4) // shuffles move 4 or 8 bytes
        other = sn_cuda_format(p, "(%s)__shfl_xor_sync(0xffffffffu, (i32)value, step)", type);
    sn_str_printf(p->out, "\nSN_DEVICE %s sn_block_%s_%s(%s value) {\n", type, sn_kir_op_name(op), sn_dtype_name(dtype),
                  type);
    sn_str_printf(p->out, "    __shared__ %s parts[32];\n", type);
    sn_str_printf(p->out, "    for (int step = 16; step > 0; step /= 2) value = %s;\n",
                  sn_cuda_combine(p, op, dtype, "value", other));
    sn_str_puts(p->out, "    __syncthreads(); // parts may still be read for the reduction before\n"
                        "    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;\n"
                        "    __syncthreads();\n"
                        "    value = parts[0];\n");
    sn_str_printf(p->out,
                  "    for (int warp = 1; warp < (int)blockDim.x / 32; warp++) value = %s;\n    return value;\n}\n",
                  sn_cuda_combine(p, op, dtype, "value", "parts[warp]"));
}

static void print_math(sn_cuda_printer *p, sn_kir_op op, sn_dtype dtype) {
    sn_dtype key = op == SN_KIR_RANDOM_BITS ? SN_U32 : dtype;
    sn_cuda_print_function(p, op, dtype, sn_kir_math_get(p->math, op, key));
}

// Expansions call expansions that precede them in kir_ops.def (expm1 calls exp), and helpers.
static void note_nested(sn_cuda_printer *p) {
    for (int op = SN_KIR_OP_COUNT - 1; op >= 0; op--)
        for (int t = 0; t < SN_DTYPE_COUNT; t++) {
            const sn_kir_function *f =
                p->ops[op][t] && !recipes[op].operands ? sn_kir_math_get(p->math, (sn_kir_op)op, (sn_dtype)t) : NULL;
            for (const sn_kir_node *step = f ? f->body->body.first : NULL; step; step = step->next) {
                if (step->op == SN_KIR_CONST) continue;
                bool math = step->op >= SN_KIR_EXP && step->op <= SN_KIR_ATAN2;
                if (math && sn_kir_math_get(p->math, step->op, step->dtype)) p->ops[step->op][step->dtype] = true;
                if (step->op == SN_KIR_MAX) p->ops[step->op][step->dtype] = true;
            }
        }
}

void sn_cuda_print_prelude(sn_cuda_printer *p) {
    sn_str_puts(p->out, types);
    note_nested(p);
    for (int op = 0; op < SN_KIR_OP_COUNT; op++) // block reductions call min and max
        for (int t = 0; t < SN_DTYPE_COUNT; t++)
            if (p->block[op][t] && recipes[op].operands) p->ops[op][t] = true;
    if (p->bf16) sn_str_puts(p->out, bf16);
    if (p->f16) sn_str_puts(p->out, f16);
    for (int op = 0; op < SN_KIR_OP_COUNT; op++)
        for (int t = 0; t < SN_DTYPE_COUNT; t++)
            if (p->ops[op][t] && recipes[op].operands) print_recipe(p, (sn_kir_op)op, (sn_dtype)t);
    for (int from = 0; from < SN_DTYPE_COUNT; from++)
        for (int to = 0; to < SN_DTYPE_COUNT; to++)
            if (p->casts[from][to]) print_cast(p, (sn_dtype)from, (sn_dtype)to);
    for (int op = 0; op < SN_KIR_OP_COUNT; op++) // in the order of kir_ops.def, in which callees precede their callers
        for (int t = 0; t < SN_DTYPE_COUNT; t++)
            if (p->ops[op][t] && !recipes[op].operands) print_math(p, (sn_kir_op)op, (sn_dtype)t);
    for (int op = 0; op < SN_KIR_OP_COUNT; op++)
        for (int t = 0; t < SN_DTYPE_COUNT; t++)
            if (p->block[op][t]) print_block_reduction(p, (sn_kir_op)op, (sn_dtype)t);
}
