#include "backend/cuda/cuda.h"

#include "backend/cuda/printer.h"
#include "backend/kernel/build.h"
#include "backend/kernel/scalar.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#define SHARED_MAX (47 * 1024) // of the 48 KiB a block always has; block reductions take the rest

void sn_cuda_line(sn_cuda_printer *p, const char *format, ...) {
    va_list args;
    sn_str_printf(p->out, "%*s", p->indent, "");
    va_start(args, format);
    sn_str_vprintf(p->out, format, args);
    va_end(args);
    sn_str_putc(p->out, '\n');
}

static bool is_reserved(const char *name) {
    static const char *const words[] = {
        "auto",     "bool",   "break",  "case",   "char",      "const",    "default", "do",   "double",  "else",
        "enum",     "extern", "float",  "for",    "goto",      "if",       "int",     "long", "new",     "register",
        "return",   "short",  "signed", "sizeof", "static",    "struct",   "switch",  "this", "typedef", "union",
        "unsigned", "void",   "while",  "block",  "workspace", "template", "operator"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(name, words[i])) return true;
    if (!strchr("vinru", name[0])) return isdigit((unsigned char)name[0]) != 0; // v12, i3, r1: ours; u8: types
    return strspn(name + 1, "0123456789") == strlen(name + 1);
}

const char *sn_cuda_identifier(sn_cuda_printer *p, const char *name) {
    char *clean = sn_arena_printf(&p->memory, "%s%s", is_reserved(name) ? "p_" : "", name);
    for (char *c = clean; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') *c = '_';
    return clean;
}

static bool same_name(const sn_kir_buffer *b, const sn_kir_buffer *other) {
    return b != other && !strcmp(b->name, other->name);
}

const char *sn_cuda_buffer(sn_cuda_printer *p, const sn_kir_buffer *b) {
    bool scratch = b->access == SN_KIR_SCRATCH, twice = false;
    for (int i = 0; i < p->k->n_params; i++) twice = twice || same_name(b, p->k->params[i]);
    for (int i = 0; i < p->k->n_scratch; i++) twice = twice || same_name(b, p->k->scratch[i]);
    const char *name = sn_cuda_identifier(p, b->name);
    return twice ? sn_cuda_format(p, "%s_%c%d", name, scratch ? 's' : 'p', b->index) : name;
}

// Uses by what is printed, so that dead values are not, and where the last one lies.
static void count(sn_cuda_printer *p, const sn_kir_node *node, int depth) {
    if (!node) return;
    p->user_depth[node->id] = depth;
    bool value = node->op >= SN_KIR_CAST || node->op == SN_KIR_LOAD;
    if (p->uses[node->id]++ || !value) return;
    for (int i = 0; i < 4; i++) count(p, node->in[i], node->depth);
}

static void count_region(sn_cuda_printer *p, const sn_kir_region *region) {
    for (const sn_kir_node *node = region->first; node; node = node->next) {
        if (node->op != SN_KIR_STORE && node->op != SN_KIR_ATOMIC_ADD && node->op != SN_KIR_FOR &&
            node->op != SN_KIR_IF)
            continue;
        for (int i = 0; i < 4; i++) count(p, node->in[i], node->depth);
        if (node->op != SN_KIR_FOR && node->op != SN_KIR_IF) continue;
        for (const sn_kir_acc *acc = node->acc; acc; acc = acc->link) {
            count(p, acc->init, node->depth);
            count(p, acc->next, node->depth + 1);
        }
        count_region(p, &node->body);
        count_region(p, &node->orelse);
    }
}

static const char *new_name(sn_cuda_printer *p, const sn_kir_node *node) {
    if (node->name) return sn_cuda_format(p, "%s_%d", sn_cuda_identifier(p, node->name), p->n_values++);
    return sn_cuda_format(p, "v%d", p->n_values++);
}

static void print_value(sn_cuda_printer *p, const sn_kir_node *node) {
    if (!p->uses[node->id]) return;
    sn_cuda_text text = sn_cuda_expression(p, node);
    bool movable = node->op != SN_KIR_LOAD || node->buffer->access == SN_KIR_READ;
    bool once = p->uses[node->id] == 1 && p->user_depth[node->id] == node->depth;
    if (movable && once && !node->name && strlen(text.text) <= 56) {
        p->texts[node->id] = text;
        return;
    }
    const char *name = new_name(p, node);
    sn_cuda_line(p, "const %s %s = %s;", sn_cuda_value_type(node), name, text.text);
    p->texts[node->id] = (sn_cuda_text){name, true};
}

static void print_write(sn_cuda_printer *p, const sn_kir_node *node) {
    const sn_kir_buffer *b = node->buffer;
    const char *index = sn_cuda_argument(p, node->in[0]);
    const char *value = sn_cuda_argument(p, node->in[1]), *name = sn_cuda_buffer(p, b);
    const char *once = p->in_lanes ? "" : "if (threadIdx.x == 0) ";
    p->f16 = p->f16 || b->dtype == SN_F16;
    p->bf16 = p->bf16 || b->dtype == SN_BF16;
    if (node->op == SN_KIR_ATOMIC_ADD) {
        bool wide = b->dtype == SN_I64;
        sn_cuda_line(p, "%satomicAdd(%s&%s[%s], %s%s);", once, wide ? "(u64 *)" : "", name, index, wide ? "(u64)" : "",
                     value);
    } else if (b->dtype == SN_F16 || b->dtype == SN_BF16) {
        sn_cuda_line(p, "%s%s[%s] = sn_%s_from_float(%s);", once, name, index, sn_dtype_name(b->dtype), value);
    } else {
        sn_cuda_line(p, "%s%s[%s] = %s;", once, name, index, value);
    }
}

static void print_region(sn_cuda_printer *p, const sn_kir_region *region);

static const char *identity(sn_cuda_printer *p, const sn_kir_acc *acc) {
    sn_kir_scalar value = sn_kir_scalar_identity(acc->op, acc->result->dtype);
    sn_kir_node constant = {.op = SN_KIR_CONST, .dtype = acc->result->dtype};
    if (sn_dtype_is_float(constant.dtype)) {
        constant.f64 = value.f64;
    } else {
        constant.i64 = value.i64;
    }
    return sn_cuda_constant(p, &constant);
}

static void declare_accs(sn_cuda_printer *p, const sn_kir_node *loop) {
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) {
        const char *name = sn_cuda_format(p, "r%d", p->n_values++);
        const char *start = acc->reduce ? identity(p, acc) : sn_cuda_operand(p, acc->init);
        p->texts[acc->result->id] = (sn_cuda_text){name, true};
        if (acc->carry) p->texts[acc->carry->id] = (sn_cuda_text){name, true};
        sn_cuda_line(p, "%s %s = %s;", sn_cuda_type(acc->result->dtype), name, start);
    }
}

// All the next values are computed before any accumulator changes: they may read each other's.
static void update_accs(sn_cuda_printer *p, const sn_kir_node *loop) {
    bool several = loop->acc && loop->acc->link, carries = false;
    int n = 0;
    const char *nexts[64];
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) carries = carries || !acc->reduce;
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) {
        SN_CHECK(n < 64);
        nexts[n] = carries ? sn_cuda_argument(p, acc->next) : sn_cuda_operand(p, acc->next);
        if (several && carries) {
            const char *name = sn_cuda_format(p, "n%d", p->n_values++);
            sn_cuda_line(p, "const %s %s = %s;", sn_cuda_type(acc->result->dtype), name, nexts[n]);
            nexts[n] = name;
        }
        n++;
    }
    n = 0;
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link, n++) {
        const char *name = p->texts[acc->result->id].text;
        sn_cuda_line(p, "%s = %s;", name,
                     acc->reduce ? sn_cuda_combine(p, acc->op, acc->result->dtype, nexts[n], name) : nexts[n]);
    }
}

static void print_loop(sn_cuda_printer *p, const sn_kir_node *loop) {
    const sn_kir_node *index = loop->loop;
    bool lanes = loop->mapping == SN_KIR_LANES;
    const char *name = index->name ? sn_cuda_format(p, "%s_%d", sn_cuda_identifier(p, index->name), p->n_indices++)
                                   : sn_cuda_format(p, "i%d", p->n_indices++);
    const char *type = sn_cuda_is_int(index) && loop->step < 1 << 19 ? "int" : "i64";
    const char *low = sn_cuda_operand(p, loop->in[0]), *high = sn_cuda_operand(p, loop->in[1]);
    const char *times = loop->step == 1 ? "" : sn_cuda_format(p, " * %lld", (long long)loop->step);
    p->texts[index->id] = (sn_cuda_text){name, true};
    declare_accs(p, loop);
    if (lanes) {
        bool zero = loop->in[0]->op == SN_KIR_CONST && loop->in[0]->i64 == 0;
        const char *start = zero ? "" : sn_cuda_format(p, "%s + ", low);
        sn_cuda_line(p, "for (%s %s = %s(int)threadIdx.x%s; %s < %s; %s += (int)blockDim.x%s) {", type, name, start,
                     times, name, high, name, times);
    } else {
        sn_cuda_line(p, "for (%s %s = %s; %s < %s; %s += %lld) {", type, name, low, name, high, name,
                     (long long)loop->step);
    }
    p->indent += 4;
    p->in_lanes = p->in_lanes || lanes;
    print_region(p, &loop->body);
    update_accs(p, loop);
    p->in_lanes = p->in_lanes && !lanes;
    p->indent -= 4;
    sn_cuda_line(p, "}");
    for (const sn_kir_acc *acc = lanes ? loop->acc : NULL; acc; acc = acc->link) {
        const char *result = p->texts[acc->result->id].text;
        sn_dtype dtype = acc->result->dtype;
        p->block[acc->op][dtype] = true;
        sn_cuda_line(p, "%s = sn_block_%s_%s(%s);", result, sn_kir_op_name(acc->op), sn_dtype_name(dtype), result);
    }
}

static void print_if(sn_cuda_printer *p, const sn_kir_node *node) {
    sn_cuda_line(p, "if (%s) {", sn_cuda_argument(p, node->in[0]));
    p->indent += 4;
    print_region(p, &node->body);
    p->indent -= 4;
    if (node->orelse.first) {
        sn_cuda_line(p, "} else {");
        p->indent += 4;
        print_region(p, &node->orelse);
        p->indent -= 4;
    }
    sn_cuda_line(p, "}");
}

static void print_region(sn_cuda_printer *p, const sn_kir_region *region) {
    for (const sn_kir_node *node = region->first; node; node = node->next) {
        switch (node->op) {
        case SN_KIR_CONST:
        case SN_KIR_PREFETCH: // a GPU hides latency by having many threads
            break;
        case SN_KIR_STORE:
        case SN_KIR_ATOMIC_ADD:
            print_write(p, node);
            break;
        case SN_KIR_FOR:
            print_loop(p, node);
            break;
        case SN_KIR_IF:
            print_if(p, node);
            break;
        case SN_KIR_BARRIER:
            sn_cuda_line(p, "__syncthreads();");
            break;
        default:
            print_value(p, node);
        }
    }
}

static int64_t scratch_bytes(const sn_kir *k) {
    int64_t total = 0;
    for (int i = 0; i < k->n_scratch; i++)
        total += (k->scratch[i]->count * (int64_t)sn_dtype_bytes(k->scratch[i]->dtype) + 15) / 16 * 16;
    return total;
}

int64_t sn_cuda_workspace(const sn_kir *k) {
    int64_t bytes = scratch_bytes(k);
    return bytes > SHARED_MAX ? bytes : 0;
}

static void print_origin(sn_cuda_printer *p) {
    for (const char *line = p->k->origin; *line;) {
        size_t length = strcspn(line, "\n");
        while (length && line[length - 1] == '\\') length--; // would continue the comment
        sn_cuda_line(p, "// %.*s", (int)length, line);
        line += strcspn(line, "\n");
        if (*line) line++;
    }
    sn_cuda_line(p, "// %lld blocks of %d threads", (long long)p->k->grid, p->k->threads);
}

static void print_signature(sn_cuda_printer *p) {
    const sn_kir *k = p->k;
    bool workspace = sn_cuda_workspace(k) > 0;
    sn_str_printf(p->out, "SN_KERNEL void __launch_bounds__(%d) %s(", k->threads, k->name);
    for (int i = 0; i < k->n_params; i++) {
        const sn_kir_buffer *b = k->params[i];
        sn_str_printf(p->out, "%s\n    %s%s *__restrict__ %s /* %s[%lld] */", i ? "," : "",
                      b->access == SN_KIR_READ ? "const " : "", sn_cuda_memory_type(b->dtype), sn_cuda_buffer(p, b),
                      sn_dtype_name(b->dtype), (long long)b->count);
    }
    if (workspace) sn_str_printf(p->out, "%s\n    u8 *__restrict__ workspace", k->n_params ? "," : "");
    sn_str_puts(p->out, ") {\n");
}

static void print_scratch(sn_cuda_printer *p) {
    int64_t per_block = sn_cuda_workspace(p->k), offset = 0;
    for (int i = 0; i < p->k->n_scratch; i++) {
        const sn_kir_buffer *b = p->k->scratch[i];
        const char *type = sn_cuda_memory_type(b->dtype), *name = sn_cuda_buffer(p, b);
        if (per_block) {
            sn_cuda_line(p, "%s *%s = (%s *)(workspace + (i64)block * %lld + %lld); // beyond shared memory", type,
                         name, type, (long long)per_block, (long long)offset);
        } else {
            sn_cuda_line(p, "__shared__ %s %s[%lld];", type, name, (long long)b->count);
        }
        offset += (b->count * (int64_t)sn_dtype_bytes(b->dtype) + 15) / 16 * 16;
    }
}

static void begin(sn_cuda_printer *p, const sn_kir *k) {
    p->k = k;
    p->n_values = p->n_indices = 0;
    p->in_lanes = false;
    p->texts = SN_NEW_N(&p->memory, sn_cuda_text, k->n_nodes + 1);
    p->uses = SN_NEW_N(&p->memory, int, k->n_nodes + 1);
    p->user_depth = SN_NEW_N(&p->memory, int, k->n_nodes + 1);
}

static void print_kernel(sn_cuda_printer *p, const sn_kir *k) {
    begin(p, k);
    count_region(p, &k->body);
    sn_str_putc(p->out, '\n');
    print_origin(p);
    print_signature(p);
    p->indent = 4;
    bool block = k->build->block && p->uses[k->build->block->id];
    if (block || sn_cuda_workspace(k)) sn_cuda_line(p, "const int block = blockIdx.x;");
    print_scratch(p);
    print_region(p, &k->body);
    p->indent = 0;
    sn_str_puts(p->out, "}\n");
}

void sn_cuda_print_function(sn_cuda_printer *p, sn_kir_op op, sn_dtype dtype, const sn_kir_function *f) {
    begin(p, f->body);
    count(p, f->result, 0);
    sn_str_printf(p->out, "\nSN_DEVICE %s sn_%s_%s(", sn_cuda_type(f->result->dtype), sn_kir_op_name(op),
                  sn_dtype_name(dtype));
    for (int i = 0; i < f->n_args; i++) {
        const char *name = sn_cuda_format(p, "x%d", i);
        p->texts[f->args[i]->id] = (sn_cuda_text){name, true};
        sn_str_printf(p->out, "%s%s %s", i ? ", " : "", sn_cuda_type(f->args[i]->dtype), name);
    }
    sn_str_puts(p->out, ") {\n");
    p->indent = 4;
    print_region(p, &f->body->body);
    sn_cuda_line(p, "return %s;", sn_cuda_argument(p, f->result));
    p->indent = 0;
    sn_str_puts(p->out, "}\n");
}

void sn_cuda_print(sn_kir *const *kernels, size_t n, sn_str *out) {
    sn_kir_math math = {0};
    sn_str bodies = {0};
    sn_cuda_printer p = {.out = &bodies, .math = &math};
    for (size_t i = 0; i < n; i++) print_kernel(&p, kernels[i]);
    p.out = out;
    sn_str_puts(
        out,
        "// CUDA C written by sennit. Compile without contraction (--fmad=false): fused operations are explicit.\n\n");
    sn_cuda_print_prelude(&p);
    sn_str_puts(out, sn_str_text(&bodies));
    sn_str_free(&bodies);
    sn_arena_free(&p.memory);
    sn_kir_math_free(&math);
}
