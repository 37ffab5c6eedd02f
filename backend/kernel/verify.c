#include "backend/kernel/kir.h"

#include "backend/kernel/build.h"

// Who touches a buffer between two barriers, as one of its threads sees it: the lanes of one loop (its node), the one
// thread that stores outside lanes loops and loads what only it needs (`one`), or all threads alike (`all`). Lanes and
// that thread see their own accesses in order; anything else needs a barrier.
typedef struct touch {
    const sn_kir_node *reader, *writer;
    int64_t read_min, read_max, write_min, write_max; // elements; none when min > max
} touch;

typedef struct verifier {
    sn_kir *k;
    const char *problem;
    bool *defined; // by node id: computed, and in scope
    bool *varies;  // by node id: differs between lanes
    bool *escapes; // by node id: more depends on it than stores outside lanes loops
    const sn_kir_node *lanes;
    sn_kir_node one, all;
    int guards;             // enclosing `if`s
    touch *params, *arrays; // by index of the buffer
} verifier;

static void fail(verifier *v, const sn_kir_node *node, const char *what) {
    if (v->problem) return;
    v->problem =
        sn_arena_printf(&v->k->arena, "kernel %s, %%%d = %s: %s", v->k->name, node->id, sn_kir_op_name(node->op), what);
}

static bool is_defined(const verifier *v, const sn_kir_node *node) {
    return node->op == SN_KIR_CONST || node->op == SN_KIR_BLOCK || v->defined[node->id];
}

static void check_operands(verifier *v, const sn_kir_node *node) {
    for (int i = 0; i < 4; i++) {
        if (!node->in[i]) continue;
        if (!is_defined(v, node->in[i]))
            fail(v, node, "an operand is used before it is computed, or outside its region");
        if (v->varies[node->in[i]->id]) v->varies[node->id] = true;
    }
    v->defined[node->id] = true;
}

static touch *touch_of(verifier *v, const sn_kir_buffer *b) {
    return b->access == SN_KIR_SCRATCH ? &v->arrays[b->index] : &v->params[b->index];
}

static bool overlap(const sn_kir_node *index, int64_t min, int64_t max) {
    return min <= max && index->min <= max && index->max >= min;
}

static void widen(const sn_kir_node *index, int64_t *min, int64_t *max) {
    if (index->min < *min) *min = index->min;
    if (index->max > *max) *max = index->max;
}

static const sn_kir_node *who(const verifier *v, const sn_kir_node *node) {
    if (v->lanes) return v->lanes;
    return node->op == SN_KIR_STORE || !v->escapes[node->id] ? &v->one : &v->all;
}

static void check_order(verifier *v, const sn_kir_node *node) {
    if (node->buffer->access == SN_KIR_READ || node->op == SN_KIR_ATOMIC_ADD) return;
    touch *t = touch_of(v, node->buffer);
    const sn_kir_node *index = node->in[0], *self = who(v, node);
    bool write = node->op == SN_KIR_STORE;
    if (overlap(index, t->write_min, t->write_max) && t->writer != self)
        fail(v, node, "no barrier after another loop's store to this buffer");
    if (write && overlap(index, t->read_min, t->read_max) && t->reader != self)
        fail(v, node, "no barrier after another loop's load of this buffer");
    // Several who do not meet here: none of them may go on, which a node that stands for nobody says.
    if (write) {
        t->writer = t->write_min <= t->write_max && t->writer != self ? node : self;
        widen(index, &t->write_min, &t->write_max);
    } else {
        t->reader = t->read_min <= t->read_max && t->reader != self ? node : self;
        widen(index, &t->read_min, &t->read_max);
    }
}

static void escape(verifier *v, const sn_kir_node *node) {
    if (!node || v->escapes[node->id]) return;
    v->escapes[node->id] = true;
    for (int i = 0; i < 4; i++) escape(v, node->in[i]);
    if (node->op == SN_KIR_RESULT || node->op == SN_KIR_CARRY) {
        escape(v, node->acc->init);
        escape(v, node->acc->next);
    }
}

static void find_escapes(verifier *v, const sn_kir_region *region, bool in_lanes) {
    for (const sn_kir_node *node = region->first; node; node = node->next) {
        bool control = node->op == SN_KIR_FOR || node->op == SN_KIR_IF;
        if (in_lanes || control)
            for (int i = 0; i < 4; i++) escape(v, node->in[i]);
        bool lanes = in_lanes || (node->op == SN_KIR_FOR && node->mapping == SN_KIR_LANES);
        if (!control) continue;
        for (const sn_kir_acc *acc = lanes ? node->acc : NULL; acc; acc = acc->link) escape(v, acc->next);
        find_escapes(v, &node->body, lanes);
        find_escapes(v, &node->orelse, lanes);
    }
}

static void check_access(verifier *v, const sn_kir_node *node) {
    const sn_kir_node *index = node->in[0];
    bool guarded = v->guards > 0 || (node->op == SN_KIR_LOAD && node->in[1]);
    if (!guarded && (index->min < 0 || index->max >= node->buffer->count))
        fail(v, node,
             sn_arena_printf(&v->k->arena, "index in [%lld, %lld] may leave %s[%lld]", (long long)index->min,
                             (long long)index->max, node->buffer->name, (long long)node->buffer->count));
    bool one_lane = v->lanes && v->lanes->loop->min == v->lanes->loop->max;
    if (node->op == SN_KIR_STORE && v->lanes && !one_lane && !v->varies[index->id])
        fail(v, node, "all lanes store to one element");
    check_order(v, node);
}

static void walk(verifier *v, const sn_kir_region *region, const sn_kir_node *loop);

static void walk_loop(verifier *v, const sn_kir_node *loop) {
    bool lanes = loop->mapping == SN_KIR_LANES, outer = v->lanes != NULL;
    if (lanes && outer) fail(v, loop, "a lanes loop inside a lanes loop");
    if (v->varies[loop->in[0]->id] || v->varies[loop->in[1]->id]) fail(v, loop, "bounds differ between lanes");
    if (lanes && !outer) v->lanes = loop;
    v->defined[loop->loop->id] = true;
    v->varies[loop->loop->id] = lanes;
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) {
        if (acc->carry) v->defined[acc->carry->id] = true;
        if (acc->init && !is_defined(v, acc->init)) fail(v, loop, "a carried value starts undefined");
        if (acc->carry) v->varies[acc->carry->id] = outer;
    }
    walk(v, &loop->body, loop);
    if (!lanes) walk(v, &loop->body, loop); // what one iteration leaves, the next one meets
    if (lanes && !outer) v->lanes = NULL;
    v->defined[loop->loop->id] = false;
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) {
        if (acc->carry) v->defined[acc->carry->id] = false;
        v->defined[acc->result->id] = true;
        v->varies[acc->result->id] = outer;
    }
}

static void walk_if(verifier *v, const sn_kir_node *node) {
    v->guards++;
    walk(v, &node->body, NULL);
    walk(v, &node->orelse, NULL);
    v->guards--;
}

static void forget_touches(verifier *v) {
    const touch none = {NULL, NULL, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN};
    for (int i = 0; i < v->k->n_params; i++) v->params[i] = none;
    for (int i = 0; i < v->k->n_scratch; i++) v->arrays[i] = none;
}

static void check_barrier(verifier *v, const sn_kir_node *node) {
    if (v->lanes) fail(v, node, "inside a lanes loop");
    forget_touches(v);
}

static void walk_statement(verifier *v, const sn_kir_node *node) {
    check_operands(v, node);
    switch (node->op) {
    case SN_KIR_LOAD:
    case SN_KIR_STORE:
    case SN_KIR_ATOMIC_ADD:
        check_access(v, node);
        break;
    case SN_KIR_FOR:
        walk_loop(v, node);
        break;
    case SN_KIR_IF:
        walk_if(v, node);
        break;
    case SN_KIR_BARRIER:
        check_barrier(v, node);
        break;
    default:
        break;
    }
}

// `loop` is the loop whose body this is, or NULL: what it accumulates must be there when an iteration ends.
static void walk(verifier *v, const sn_kir_region *region, const sn_kir_node *loop) {
    for (const sn_kir_node *node = region->first; node; node = node->next) walk_statement(v, node);
    for (const sn_kir_acc *acc = loop ? loop->acc : NULL; acc; acc = acc->link)
        if (!is_defined(v, acc->next)) fail(v, loop, "an accumulated value is not computed in the loop");
    for (const sn_kir_node *node = region->first; node; node = node->next) {
        v->defined[node->id] = false;
        for (const sn_kir_acc *acc = node->acc; node->op == SN_KIR_FOR && acc; acc = acc->link)
            v->defined[acc->result->id] = false;
    }
}

const char *sn_kir_verify(sn_kir *k) {
    if (k->build->depth) return "a loop or `if` is still open";
    int64_t scratch = 0;
    for (int i = 0; i < k->n_scratch; i++)
        scratch += k->scratch[i]->count * (int64_t)sn_dtype_bytes(k->scratch[i]->dtype);
    if (scratch > SN_KIR_SCRATCH_MAX) return "more scratch than a block may have";
    sn_arena memory = {0};
    verifier v = {.k = k};
    v.defined = SN_NEW_N(&memory, bool, k->n_nodes + 1);
    v.varies = SN_NEW_N(&memory, bool, k->n_nodes + 1);
    v.params = SN_NEW_N(&memory, touch, k->n_params + 1);
    v.arrays = SN_NEW_N(&memory, touch, k->n_scratch + 1);
    v.escapes = SN_NEW_N(&memory, bool, k->n_nodes + 1);
    find_escapes(&v, &k->body, false);
    forget_touches(&v);
    walk(&v, &k->body, NULL);
    sn_arena_free(&memory);
    return v.problem;
}
