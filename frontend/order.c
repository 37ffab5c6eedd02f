// The order of nodes. ONNX asks for topologically sorted graphs; files that are not are sorted here, cycles are errors.
#include "frontend/import.h"

#include <string.h>

typedef struct sorter {
    sn_import *import;
    sn_scope *scope;
    size_t n_nodes;
    Onnx__NodeProto *const *nodes;
    sn_map makers;  // output name -> index + 1 of its node
    uint8_t *state; // 0 new, 1 on the stack, 2 done
    size_t *order;
    size_t n_done;
    SN_VEC(size_t) stack;
    size_t errors;
} sorter;

static const char *label(const sorter *s, size_t node) {
    const Onnx__NodeProto *proto = s->nodes[node];
    if (proto->name && *proto->name) return proto->name;
    return sn_arena_printf(&s->import->arena, "%s:%s", proto->op_type ? proto->op_type : "?",
                           proto->n_output ? proto->output[0] : "");
}

static void find_makers(sorter *s) {
    for (size_t i = 0; i < s->n_nodes; i++)
        for (size_t o = 0; o < s->nodes[i]->n_output; o++) {
            const char *name = s->nodes[i]->output[o];
            if (!*name) continue;
            if (sn_map_has(&s->makers, name) || sn_map_has(&s->scope->names, name))
                sn_error(s->import->diags, "E0204", label(s, i), "the model is invalid; ONNX's checker says more",
                         "the name '%s' is defined twice", name);
            sn_map_put(&s->makers, name, (void *)(uintptr_t)(i + 1));
        }
}

static void report_cycle(sorter *s, size_t node) {
    sn_str path = {0};
    size_t start = s->stack.count;
    while (start > 0 && s->stack.data[start - 1] != node) start--;
    for (size_t i = start ? start - 1 : 0; i < s->stack.count; i++) {
        if (path.length > 400) {
            sn_str_puts(&path, " -> …");
            break;
        }
        sn_str_printf(&path, "%s%s", path.length ? " -> " : "", label(s, s->stack.data[i]));
    }
    sn_error(s->import->diags, "E0205", label(s, node), "the model is invalid; ONNX's checker says more",
             "the graph has a cycle: %s -> %s", sn_str_text(&path), label(s, node));
    sn_str_free(&path);
}

static bool reads_name(sorter *s, size_t node, const char *name, size_t *next) {
    if (!*name) return false;
    size_t maker = (uintptr_t)sn_map_get(&s->makers, name);
    if (!maker) {
        if (!sn_scope_find(s->import, s->scope, name))
            sn_error(s->import->diags, "E0203", label(s, node), "the model is invalid; ONNX's checker says more",
                     "it reads '%s', which nothing defines", name);
        return false;
    }
    if (s->state[maker - 1] == 2) return false;
    *next = maker - 1;
    return true;
}

// A name that a subgraph reads from outside. Names that the subgraph defines itself are no concern here.
static bool subgraph_reads(sorter *s, const Onnx__GraphProto *graph, size_t *next) {
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        for (size_t j = 0; j < node->n_input; j++) {
            size_t maker = (uintptr_t)sn_map_get(&s->makers, node->input[j]);
            if (!maker || s->state[maker - 1] == 2) continue;
            *next = maker - 1;
            return true;
        }
        for (size_t j = 0; j < node->n_attribute; j++)
            if (node->attribute[j]->g && subgraph_reads(s, node->attribute[j]->g, next)) return true;
    }
    for (size_t i = 0; i < graph->n_output; i++) {
        size_t maker = graph->output[i]->name ? (uintptr_t)sn_map_get(&s->makers, graph->output[i]->name) : 0;
        if (!maker || s->state[maker - 1] == 2) continue;
        *next = maker - 1;
        return true;
    }
    return false;
}

// A node that must come before `node` and has not; false when there is none.
static bool pending(sorter *s, size_t node, size_t *next) {
    const Onnx__NodeProto *proto = s->nodes[node];
    for (size_t i = 0; i < proto->n_input; i++)
        if (reads_name(s, node, proto->input[i], next)) return true;
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (proto->attribute[i]->g && subgraph_reads(s, proto->attribute[i]->g, next)) return true;
    return false;
}

static bool visit(sorter *s, size_t root) {
    sn_vec_push(&s->stack, root);
    s->state[root] = 1;
    while (s->stack.count) {
        size_t node = sn_vec_last(&s->stack), next;
        if (!pending(s, node, &next)) {
            s->state[node] = 2;
            s->order[s->n_done++] = node;
            s->stack.count--;
        } else if (s->state[next] == 1) {
            report_cycle(s, next);
            return false;
        } else {
            s->state[next] = 1;
            sn_vec_push(&s->stack, next);
        }
    }
    return true;
}

bool sn_import_order(sn_import *import, sn_scope *scope, size_t n_nodes, Onnx__NodeProto *const *nodes, size_t *order) {
    sorter s = {.import = import, .scope = scope, .n_nodes = n_nodes, .nodes = nodes, .order = order};
    size_t errors = import->diags->errors;
    s.state = SN_NEW_N(&import->arena, uint8_t, n_nodes + 1);
    find_makers(&s);
    for (size_t i = 0; i < n_nodes && import->diags->errors == errors; i++)
        if (s.state[i] == 0 && !visit(&s, i)) break;
    sn_map_free(&s.makers);
    sn_vec_free(&s.stack);
    return import->diags->errors == errors;
}
