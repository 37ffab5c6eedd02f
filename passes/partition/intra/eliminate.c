// Bucket elimination (Dechter 1999): to minimise a sum of functions, take a variable, add the functions that mention
// it, minimise over its values, and put the resulting function over its neighbours back. Repeated over all variables
// this gives the minimum; going back through the variables in reverse order, each taking the value that is best beside
// those taken already, gives a choice that attains it. The cost is in the largest table, whose size depends on the
// order (min-weight: the variable whose table is smallest next).
//
// Where a table would be too large the bucket is split into mini-buckets (Dechter and Rish 2003), each minimised on its
// own: the variable may then take different values in each, so the result is a lower bound. How the variable's cost is
// divided over its mini-buckets is free; a run moves the division towards equal min-marginals ("moment matching":
// Ihler, Flerova, Dechter and Otten, "Join-graph based cost-shifting schemes", UAI 2012) and keeps it for the next run,
// so that runs under slowly changing costs tighten the bound as they go. Decoding is then a heuristic, and a good one.
//
// A table is laid out so that the variable which consumes it is contiguous: the inner loops add and minimise vectors.
#include "passes/partition/intra/eliminate.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/bug.h"
#include "base/vec.h"
#include "passes/partition/intra/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SCOPE = 48, MAX_FUNCTIONS = 4096 };

typedef SN_VEC(int) int_list;

typedef struct function {
    int n_scope;
    int *scope;                  // local nodes
    int bucket;                  // the mini-bucket that makes it; -1: an edge
    const sn_core_link *link[2]; // of an edge: from scope[0] and from scope[1]
} function;

typedef struct operand {
    const double *table;
    size_t *strides; // by scope position of the mini-bucket that reads it; 0: does not depend on that node
} operand;

typedef struct mini_bucket {
    int node, size; // what it eliminates, and its values
    int n_scope;    // ascending by time of use: the last is the node that consumes the result
    int *scope, *extent;
    int n_operands, n_fast; // the first n_fast depend on the last node of the scope
    operand *operands;
    double *result;
    double *share;         // of the node's cost, by value
    bool is_split;         // the node has several
    bool is_first;         // of its node
    SN_VEC(int) functions; // while preparing
} mini_bucket;

struct sn_elimination {
    sn_arena arena;
    int n_nodes;
    int *size;
    double **costs, **seen; // by node; seen: the cost that the shares add up to
    mini_bucket *buckets;
    int n_buckets;
    size_t cells;
    bool exact;
    int *first, *last;   // by depth: the mini-buckets of the node that is chosen there
    double *sum, *least; // scratch, one value each
};

typedef struct heap_item {
    double weight;
    int node;
} heap_item;

typedef struct preparation {
    sn_elimination *e;
    const sn_core *core;
    const int *nodes;
    size_t max_cells;
    SN_VEC(function) functions;
    SN_VEC(mini_bucket) buckets;
    int_list *of_node; // functions that mention a node, consumed ones included until it is visited
    SN_VEC(bool) consumed;
    int *position; // in the order of elimination; -1: not yet
    int *stamp, stamp_now;
    double *weight;
    SN_VEC(heap_item) heap;
} preparation;

static void heap_push(preparation *p, double weight, int node) {
    sn_vec_push(&p->heap, (heap_item){weight, node});
    size_t i = p->heap.count - 1;
    while (i && p->heap.data[(i - 1) / 2].weight > weight) {
        p->heap.data[i] = p->heap.data[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    p->heap.data[i] = (heap_item){weight, node};
}

static heap_item heap_pop(preparation *p) {
    heap_item top = p->heap.data[0], last = p->heap.data[--p->heap.count];
    size_t i = 0, count = p->heap.count;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= count) break;
        if (child + 1 < count && p->heap.data[child + 1].weight < p->heap.data[child].weight) child++;
        if (p->heap.data[child].weight >= last.weight) break;
        p->heap.data[i] = p->heap.data[child];
        i = child;
    }
    if (count) p->heap.data[i] = last;
    return top;
}

// Cells of the table over a node and its neighbours.
static double weight_of(preparation *p, int node) {
    double weight = p->e->size[node];
    p->stamp[node] = ++p->stamp_now;
    size_t left = 0;
    for (size_t n = 0; n < p->of_node[node].count; n++) {
        int f = p->of_node[node].data[n];
        if (p->consumed.data[f]) continue;
        p->of_node[node].data[left++] = f;
        const function *it = &p->functions.data[f];
        for (int s = 0; s < it->n_scope; s++)
            if (p->stamp[it->scope[s]] != p->stamp_now) {
                p->stamp[it->scope[s]] = p->stamp_now;
                weight *= p->e->size[it->scope[s]];
            }
    }
    p->of_node[node].count = left;
    return weight;
}

static void add_function(preparation *p, function f) {
    sn_vec_push(&p->functions, f);
    sn_vec_push(&p->consumed, false);
    for (int s = 0; s < f.n_scope; s++) sn_vec_push(&p->of_node[f.scope[s]], (int)p->functions.count - 1);
}

// Cells of the table over a mini-bucket's scope joined with a function's, and the nodes of that scope.
static double joint_cells(preparation *p, const mini_bucket *b, const function *f, int *n_scope) {
    double cells = b->size;
    p->stamp_now++;
    p->stamp[b->node] = p->stamp_now;
    *n_scope = 0;
    for (int s = 0; s < b->n_scope; s++) {
        p->stamp[b->scope[s]] = p->stamp_now;
        cells *= p->e->size[b->scope[s]];
        ++*n_scope;
    }
    for (int s = 0; s < f->n_scope; s++)
        if (p->stamp[f->scope[s]] != p->stamp_now) {
            p->stamp[f->scope[s]] = p->stamp_now;
            cells *= p->e->size[f->scope[s]];
            ++*n_scope;
        }
    return cells;
}

static void put_in(preparation *p, mini_bucket *b, int f) {
    const function *it = &p->functions.data[f];
    p->stamp_now++;
    p->stamp[b->node] = p->stamp_now;
    for (int s = 0; s < b->n_scope; s++) p->stamp[b->scope[s]] = p->stamp_now;
    for (int s = 0; s < it->n_scope; s++)
        if (p->stamp[it->scope[s]] != p->stamp_now) b->scope[b->n_scope++] = it->scope[s];
    sn_vec_push(&b->functions, f);
    p->consumed.data[f] = true;
}

static int new_bucket(preparation *p, int node, bool is_first) {
    sn_arena *arena = &p->e->arena;
    sn_vec_push(&p->buckets, (mini_bucket){.node = node, .size = p->e->size[node], .is_first = is_first});
    mini_bucket *b = &sn_vec_last(&p->buckets);
    b->scope = SN_NEW_N(arena, int, MAX_SCOPE + 2);
    b->share = SN_NEW_N(arena, double, b->size);
    return (int)p->buckets.count - 1;
}

static int by_scope(const void *left, const void *right, void *functions) {
    const function *sorting = functions;
    int a = *(const int *)left, b = *(const int *)right;
    if (sorting[a].n_scope != sorting[b].n_scope) return sorting[b].n_scope - sorting[a].n_scope;
    return a - b;
}

// Puts the node's functions into as few mini-buckets as the bound on tables allows, the widest first, and adds the
// functions that result.
static void eliminate(preparation *p, int node) {
    int *list = p->of_node[node].data;
    size_t count = p->of_node[node].count;
    if (count) qsort_r(list, count, sizeof *list, by_scope, p->functions.data);
    int first = new_bucket(p, node, true);
    for (size_t n = 0; n < count; n++) {
        int into = -1, n_scope;
        for (int b = first; b < (int)p->buckets.count && into < 0; b++) {
            const mini_bucket *it = &p->buckets.data[b];
            double cells = joint_cells(p, it, &p->functions.data[list[n]], &n_scope);
            if (!it->functions.count ||
                (cells <= (double)p->max_cells && n_scope <= MAX_SCOPE && it->functions.count < MAX_FUNCTIONS))
                into = b;
        }
        if (into < 0) into = new_bucket(p, node, false);
        put_in(p, &p->buckets.data[into], list[n]);
    }
    bool split = (int)p->buckets.count > first + 1;
    p->e->exact &= !split;
    for (int b = first; b < (int)p->buckets.count; b++) {
        mini_bucket *it = &p->buckets.data[b];
        it->is_split = split;
        if (it->n_scope) add_function(p, (function){it->n_scope, it->scope, b, {NULL, NULL}});
    }
}

static void update_weights(preparation *p, int first_bucket) {
    int stamp = ++p->stamp_now;
    SN_VEC(int) touched = {0};
    for (int b = first_bucket; b < (int)p->buckets.count; b++)
        for (int s = 0; s < p->buckets.data[b].n_scope; s++) {
            int node = p->buckets.data[b].scope[s];
            if (p->stamp[node] == stamp) continue;
            p->stamp[node] = stamp;
            sn_vec_push(&touched, node);
        }
    for (size_t i = 0; i < touched.count; i++) {
        int node = touched.data[i];
        p->weight[node] = weight_of(p, node);
        heap_push(p, p->weight[node], node);
    }
    sn_vec_free(&touched);
}

static void choose_order(preparation *p) {
    for (int i = 0; i < p->e->n_nodes; i++) {
        p->weight[i] = weight_of(p, i);
        heap_push(p, p->weight[i], i);
    }
    int at = 0;
    while (p->heap.count) {
        heap_item top = heap_pop(p);
        if (p->position[top.node] >= 0 || top.weight != p->weight[top.node]) continue;
        p->position[top.node] = at++;
        int first = (int)p->buckets.count;
        weight_of(p, top.node); // drops consumed functions from the list
        eliminate(p, top.node);
        update_weights(p, first);
    }
}

static int by_position_descending(const void *left, const void *right, void *positions) {
    const int *position = positions;
    return position[*(const int *)right] - position[*(const int *)left];
}

// Strides of a function's table over its own nodes, the consuming node contiguous: order[n - 1].
static operand lay_out(preparation *p, const mini_bucket *b, const function *f) {
    operand out = {.strides = SN_NEW_N(&p->e->arena, size_t, b->n_scope + 1)};
    int order[MAX_SCOPE + 2];
    memcpy(order, f->scope, sizeof *order * (size_t)f->n_scope);
    qsort_r(order, (size_t)f->n_scope, sizeof *order, by_position_descending, p->position);
    size_t stride = 1;
    for (int n = f->n_scope - 1; n >= 0; n--) {
        for (int s = 0; s < b->n_scope; s++)
            if (b->scope[s] == order[n]) out.strides[s] = stride;
        stride *= (size_t)p->e->size[order[n]];
    }
    if (f->bucket >= 0)
        out.table = p->buckets.data[f->bucket].result;
    else
        out.table = f->link[f->scope[0] == b->node ? 0 : 1]->table;
    return out;
}

static void lay_out_bucket(preparation *p, mini_bucket *b) {
    sn_arena *arena = &p->e->arena;
    qsort_r(b->scope, (size_t)b->n_scope, sizeof *b->scope, by_position_descending, p->position);
    b->extent = SN_NEW_N(arena, int, b->n_scope + 1);
    size_t cells = 1;
    for (int s = 0; s < b->n_scope; s++) {
        b->extent[s] = p->e->size[b->scope[s]];
        cells *= (size_t)b->extent[s];
    }
    b->result = SN_NEW_N(arena, double, cells);
    b->n_operands = (int)b->functions.count;
    b->operands = SN_NEW_N(arena, operand, b->n_operands + 1);
    int last = b->n_scope - 1, at = 0;
    for (int fast = 1; fast >= 0; fast--)
        for (int n = 0; n < b->n_operands; n++) {
            operand it = lay_out(p, b, &p->functions.data[b->functions.data[n]]);
            if ((last >= 0 && it.strides[last] > 0) == (bool)fast) b->operands[at++] = it;
            if (fast) b->n_fast = at;
        }
    p->e->cells += cells * (size_t)b->size * (b->is_split ? 2 : 1) * (size_t)(b->n_fast ? b->n_fast : 1);
    sn_vec_free(&b->functions);
}

static void add_edges(preparation *p) {
    int *local = sn_alloc(sizeof *local * (size_t)(p->core->n_nodes + 1));
    for (int i = 0; i < p->e->n_nodes; i++) local[p->nodes[i]] = i + 1;
    for (int i = 0; i < p->e->n_nodes; i++) {
        const sn_core_node *node = &p->core->nodes[p->nodes[i]];
        for (int n = 0; n < node->n_links; n++) {
            int j = local[node->links[n].other] - 1;
            if (j <= i) continue; // outside, or added from the other end
            const sn_core_node *other = &p->core->nodes[p->nodes[j]];
            const sn_core_link *back = other->links;
            while (back->edge != node->links[n].edge) back++;
            int *scope = SN_NEW_N(&p->e->arena, int, 2);
            scope[0] = i;
            scope[1] = j;
            add_function(p, (function){2, scope, -1, {&node->links[n], back}});
        }
    }
    sn_free(local);
}

static void find_depths(sn_elimination *e) {
    e->first = SN_NEW_N(&e->arena, int, e->n_nodes + 1);
    e->last = SN_NEW_N(&e->arena, int, e->n_nodes + 1);
    for (int b = e->n_buckets - 1, depth = 0; b >= 0; b--, depth++) {
        e->last[depth] = b;
        while (!e->buckets[b].is_first) b--;
        e->first[depth] = b;
    }
}

static sn_elimination *new_elimination(const sn_core *core, const int *nodes, int n_nodes) {
    sn_elimination *e = sn_alloc(sizeof *e);
    *e = (sn_elimination){.n_nodes = n_nodes, .exact = true};
    e->size = SN_NEW_N(&e->arena, int, n_nodes + 1);
    e->costs = SN_NEW_N(&e->arena, double *, n_nodes + 1);
    e->seen = SN_NEW_N(&e->arena, double *, n_nodes + 1);
    int largest = 1;
    for (int i = 0; i < n_nodes; i++) {
        e->size[i] = core->nodes[nodes[i]].size;
        e->costs[i] = SN_NEW_N(&e->arena, double, e->size[i]);
        e->seen[i] = SN_NEW_N(&e->arena, double, e->size[i]);
        if (e->size[i] > largest) largest = e->size[i];
    }
    e->sum = SN_NEW_N(&e->arena, double, largest);
    e->least = SN_NEW_N(&e->arena, double, largest);
    return e;
}

static void free_preparation(preparation *p) {
    for (int i = 0; i < p->e->n_nodes; i++) sn_vec_free(&p->of_node[i]);
    sn_free(p->of_node);
    sn_free(p->position);
    sn_free(p->stamp);
    sn_free(p->weight);
    sn_vec_free(&p->functions);
    sn_vec_free(&p->consumed);
    sn_vec_free(&p->buckets);
    sn_vec_free(&p->heap);
}

sn_elimination *sn_elimination_new(const sn_core *core, const int *nodes, int n_nodes, size_t max_cells) {
    size_t n = (size_t)n_nodes + 1;
    sn_elimination *e = new_elimination(core, nodes, n_nodes);
    preparation p = {.e = e, .core = core, .nodes = nodes, .max_cells = max_cells};
    p.of_node = sn_alloc(sizeof *p.of_node * n);
    p.position = sn_alloc(sizeof *p.position * n);
    p.stamp = sn_alloc(sizeof *p.stamp * n);
    p.weight = sn_alloc(sizeof *p.weight * n);
    for (int i = 0; i < n_nodes; i++) p.position[i] = -1;
    add_edges(&p);
    choose_order(&p);
    e->n_buckets = (int)p.buckets.count;
    for (int b = 0; b < e->n_buckets; b++) lay_out_bucket(&p, &p.buckets.data[b]);
    e->buckets = sn_arena_copy(&e->arena, p.buckets.data, sizeof *e->buckets * p.buckets.count);
    find_depths(e);
    free_preparation(&p);
    return e;
}

void sn_elimination_free(sn_elimination *e) {
    sn_arena_free(&e->arena);
    sn_free(e);
}

double *const *sn_elimination_costs(sn_elimination *e) {
    return e->costs;
}

bool sn_elimination_is_exact(const sn_elimination *e) {
    return e->exact;
}

size_t sn_elimination_cells(const sn_elimination *e) {
    return e->cells;
}

static void keep_least(double *restrict least, const double *restrict sum, int size) {
    for (int k = 0; k < size; k++) least[k] = sum[k] < least[k] ? sum[k] : least[k];
}

// One line of results along the last node of the scope, whose operands start at `at`; `base` is the sum of what does
// not depend on it. With `marginals`, these are lowered by every sum and no result is written.
static void run_line(const mini_bucket *b, const double *const *at, const double *base, double *scratch, double *line,
                     double *marginals) {
    int last = b->n_scope - 1, count = last >= 0 ? b->extent[last] : 1, n_fast = last >= 0 ? b->n_fast : 0;
    for (int w = 0; w < count; w++) {
        if (n_fast == 1 && !marginals) {
            line[w] = sn_least_of_sum(base, at[0] + (size_t)w * b->operands[0].strides[last], b->size);
            continue;
        }
        memcpy(scratch, base, sizeof *scratch * (size_t)b->size);
        for (int f = 0; f < n_fast; f++) sn_add_to(scratch, at[f] + (size_t)w * b->operands[f].strides[last], b->size);
        if (marginals)
            keep_least(marginals, scratch, b->size);
        else
            line[w] = sn_least_of(scratch, b->size);
    }
}

static void run_bucket(const sn_elimination *e, const mini_bucket *b, double *marginals) {
    int index[MAX_SCOPE + 2] = {0};
    const double *at[MAX_FUNCTIONS];
    double *base = e->sum, *scratch = e->least, *line = b->result;
    for (int f = 0; f < b->n_operands; f++) at[f] = b->operands[f].table;
    int outer = b->n_scope - 1;
    for (;;) {
        memcpy(base, b->share, sizeof *base * (size_t)b->size);
        for (int f = b->n_scope ? b->n_fast : 0; f < b->n_operands; f++) sn_add_to(base, at[f], b->size);
        run_line(b, at, base, scratch, line, marginals);
        line += outer >= 0 ? b->extent[outer] : 1;
        int s = outer - 1;
        for (; s >= 0; s--) { // the next line: count up, the operands with it
            bool wraps = ++index[s] == b->extent[s];
            size_t back = wraps ? (size_t)(b->extent[s] - 1) : 0;
            for (int f = 0; f < b->n_operands; f++)
                at[f] = wraps ? at[f] - back * b->operands[f].strides[s] : at[f] + b->operands[f].strides[s];
            if (!wraps) break;
            index[s] = 0;
        }
        if (s < 0) return;
    }
}

// Divides the node's cost so that the min-marginals of its mini-buckets become equal.
static void match(const sn_elimination *e, mini_bucket *first, int count) {
    int size = first->size;
    double *marginals = sn_alloc(sizeof *marginals * (size_t)(size * count)),
           *mean = sn_alloc(sizeof *mean * (size_t)size);
    for (int n = 0; n < count; n++) {
        double *own = marginals + n * size;
        for (int k = 0; k < size; k++) own[k] = INFINITY;
        run_bucket(e, first + n, own);
        for (int k = 0; k < size; k++) mean[k] += own[k] / count;
    }
    for (int k = 0; k < size; k++) {
        if (mean[k] > 1e-3 * SN_CORE_FORBIDDEN / count)
            continue; // forbidden anyway: infinite less infinite is no number
        for (int n = 0; n < count; n++) first[n].share[k] += mean[k] - marginals[n * size + k];
    }
    sn_free(marginals);
    sn_free(mean);
}

double sn_elimination_run(sn_elimination *e) {
    double bound = 0;
    for (int b = 0; b < e->n_buckets; b++) {
        mini_bucket *it = &e->buckets[b];
        if (it->is_first) {
            double *seen = e->seen[it->node];
            for (int k = 0; k < it->size; k++) it->share[k] += e->costs[it->node][k] - seen[k];
            memcpy(seen, e->costs[it->node], sizeof *seen * (size_t)it->size);
            if (it->is_split) {
                int count = 1;
                while (b + count < e->n_buckets && !e->buckets[b + count].is_first) count++;
                match(e, it, count);
            }
        }
        run_bucket(e, it, NULL);
        if (!it->n_scope) bound += it->result[0];
    }
    return bound;
}

int sn_elimination_node(const sn_elimination *e, int depth) {
    return e->buckets[e->first[depth]].node;
}

void sn_elimination_increase(const sn_elimination *e, int depth, const int *values, double *increase) {
    const mini_bucket *first = &e->buckets[e->first[depth]];
    int size = first->size;
    double expected = 0;
    memcpy(increase, e->costs[first->node], sizeof *increase * (size_t)size);
    for (int b = e->first[depth]; b <= e->last[depth]; b++) {
        const mini_bucket *it = &e->buckets[b];
        for (int f = 0; f < it->n_operands; f++) {
            const double *at = it->operands[f].table;
            for (int s = 0; s < it->n_scope; s++) at += it->operands[f].strides[s] * (size_t)values[it->scope[s]];
            sn_add_to(increase, at, size);
        }
        size_t at = 0;
        for (int s = 0; s < it->n_scope; s++) at = at * (size_t)it->extent[s] + (size_t)values[it->scope[s]];
        expected += it->result[at];
    }
    for (int k = 0; k < size; k++) increase[k] -= expected;
}

void sn_elimination_decode(const sn_elimination *e, int *values) {
    for (int depth = 0; depth < e->n_nodes; depth++) {
        double *sum = e->sum;
        int node = sn_elimination_node(e, depth), best = 0;
        sn_elimination_increase(e, depth, values, sum);
        for (int k = 1; k < e->size[node]; k++)
            if (sum[k] < sum[best]) best = k;
        values[node] = best;
    }
}
