#include "backend/kernel/kir.h"

#include <math.h>

static void print_region(const sn_kir_region *region, sn_str *out, int indent);

static void print_constant(const sn_kir_node *node, sn_str *out) {
    if (sn_dtype_is_float(node->dtype)) {
        sn_str_number(out, node->f64, node->dtype == SN_F32);
    } else if (node->dtype == SN_BOOL) {
        sn_str_puts(out, node->i64 ? "true" : "false");
    } else if (node->dtype == SN_U64) {
        sn_str_printf(out, "%llu", (unsigned long long)node->i64);
    } else {
        sn_str_printf(out, "%lld", (long long)node->i64);
    }
}

static void print_value(const sn_kir_node *node, sn_str *out) {
    if (!node) {
        sn_str_puts(out, "?");
    } else if (node->op == SN_KIR_CONST) {
        print_constant(node, out);
    } else if (node->op == SN_KIR_BLOCK) {
        sn_str_puts(out, "block");
    } else if (node->name) {
        sn_str_printf(out, "%%%s.%d", node->name, node->id);
    } else {
        sn_str_printf(out, "%%%d", node->id);
    }
}

static void print_operands(const sn_kir_node *node, sn_str *out, int first, int n) {
    for (int i = first; i < n && node->in[i]; i++) {
        sn_str_puts(out, i > first ? ", " : " ");
        print_value(node->in[i], out);
    }
}

static void print_accs(const sn_kir_node *loop, sn_str *out, int indent) {
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) {
        sn_str_printf(out, "%*s", indent + 2, "");
        print_value(acc->result, out);
        if (acc->reduce) {
            sn_str_printf(out, " = reduce %s ", sn_kir_op_name(acc->op));
        } else {
            sn_str_puts(out, " = carry ");
            print_value(acc->carry, out);
            sn_str_puts(out, " from ");
            print_value(acc->init, out);
            sn_str_puts(out, " to ");
        }
        print_value(acc->next, out);
        sn_str_printf(out, " : %s\n", sn_dtype_name(acc->result->dtype));
    }
}

static void print_loop(const sn_kir_node *loop, sn_str *out, int indent) {
    sn_str_printf(out, "for.%s ", loop->mapping == SN_KIR_LANES ? "lanes" : "serial");
    print_value(loop->loop, out);
    sn_str_puts(out, " in [");
    print_value(loop->in[0], out);
    sn_str_puts(out, ", ");
    print_value(loop->in[1], out);
    sn_str_puts(out, ")");
    if (loop->step != 1) sn_str_printf(out, " by %lld", (long long)loop->step);
    sn_str_puts(out, " {\n");
    print_region(&loop->body, out, indent + 2);
    print_accs(loop, out, indent);
    sn_str_printf(out, "%*s}\n", indent, "");
}

static void print_if(const sn_kir_node *node, sn_str *out, int indent) {
    sn_str_puts(out, "if");
    print_operands(node, out, 0, 1);
    sn_str_puts(out, " {\n");
    print_region(&node->body, out, indent + 2);
    if (node->orelse.first) {
        sn_str_printf(out, "%*s} else {\n", indent, "");
        print_region(&node->orelse, out, indent + 2);
    }
    sn_str_printf(out, "%*s}\n", indent, "");
}

static void print_statement(const sn_kir_node *node, sn_str *out) {
    if (node->op == SN_KIR_STORE || node->op == SN_KIR_ATOMIC_ADD) {
        sn_str_printf(out, "%s %s[", sn_kir_op_name(node->op), node->buffer->name);
        print_value(node->in[0], out);
        sn_str_puts(out, "],");
        print_operands(node, out, 1, 2);
    } else if (node->op == SN_KIR_PREFETCH) {
        sn_str_printf(out, "prefetch %s[", node->buffer->name);
        print_value(node->in[0], out);
        sn_str_puts(out, "]");
    } else if (node->op == SN_KIR_BARRIER) {
        sn_str_puts(out, "barrier");
    } else {
        print_value(node, out);
        sn_str_printf(out, " = %s", sn_kir_op_name(node->op));
        if (node->op == SN_KIR_LOAD) {
            sn_str_printf(out, " %s[", node->buffer->name);
            print_value(node->in[0], out);
            sn_str_puts(out, node->in[1] ? "] if" : "]");
            print_operands(node, out, 1, 3);
        } else {
            print_operands(node, out, 0, 4);
        }
        sn_str_printf(out, " : %s", sn_dtype_name(node->dtype));
    }
    sn_str_putc(out, '\n');
}

static void print_region(const sn_kir_region *region, sn_str *out, int indent) {
    for (const sn_kir_node *node = region->first; node; node = node->next) {
        if (node->op == SN_KIR_CONST) continue;
        sn_str_printf(out, "%*s", indent, "");
        if (node->op == SN_KIR_FOR) {
            print_loop(node, out, indent);
        } else if (node->op == SN_KIR_IF) {
            print_if(node, out, indent);
        } else {
            print_statement(node, out);
        }
    }
}

static void print_buffer(const sn_kir_buffer *b, sn_str *out) {
    static const char *const names[] = {"read", "write", "update", "scratch"};
    sn_str_printf(out, "%s: %s %s[%lld]", b->name, names[b->access], sn_dtype_name(b->dtype), (long long)b->count);
}

void sn_kir_print(const sn_kir *k, sn_str *out) {
    for (const char *line = k->origin; *line;) {
        const char *end = line;
        while (*end && *end != '\n') end++;
        sn_str_printf(out, "// %.*s\n", (int)(end - line), line);
        line = *end ? end + 1 : end;
    }
    sn_str_printf(out, "kernel %s(", k->name);
    for (int i = 0; i < k->n_params; i++) {
        if (i) sn_str_puts(out, ", ");
        print_buffer(k->params[i], out);
    }
    sn_str_printf(out, ") grid %lld threads %d {\n", (long long)k->grid, k->threads);
    for (int i = 0; i < k->n_scratch; i++) {
        sn_str_puts(out, "  ");
        print_buffer(k->scratch[i], out);
        sn_str_putc(out, '\n');
    }
    print_region(&k->body, out, 2);
    sn_str_puts(out, "}\n");
}
