#include "passes/partition/intra/peaks.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

// A term begins (+1) or ends (-1) at a peak.
typedef struct change {
    int peak, node, sign;
    const int64_t *usage;
} change;

static int by_peak_and_node(const void *left, const void *right) {
    const change *a = left, *b = right;
    return a->peak != b->peak ? a->peak - b->peak : a->node - b->node;
}

static bool has_slack(const sn_core *core, const int64_t *most, int peak) {
    return most[peak] <= core->capacity[peak];
}

// The most that every peak can use.
static int64_t *find_most(const sn_core *core) {
    int64_t *most = sn_alloc(sizeof *most * (size_t)(core->n_peaks + 1));
    for (int i = 0; i < core->n_nodes; i++)
        for (int m = 0; m < core->nodes[i].n_terms; m++) {
            const sn_core_term *term = &core->nodes[i].terms[m];
            int64_t greatest = 0;
            for (int k = 0; k < core->nodes[i].size; k++)
                if (term->usage[k] > greatest) greatest = term->usage[k];
            most[term->first] += greatest;
            most[term->last] -= greatest;
        }
    for (int t = 1; t < core->n_peaks; t++) most[t] += most[t - 1];
    return most;
}

// Adds up the changes of one node at one peak: +1 all >= 0, -1 all <= 0, 0 all zero, 2 mixed.
static int sign_of(const change *changes, size_t count, int size) {
    bool rises = false, falls = false;
    for (int k = 0; k < size; k++) {
        int64_t sum = 0;
        for (size_t c = 0; c < count; c++) sum += changes[c].sign * changes[c].usage[k];
        rises |= sum > 0;
        falls |= sum < 0;
    }
    return rises ? (falls ? 2 : 1) : (falls ? -1 : 0);
}

// trend[t]: how every value's usage changes from peak t - 1 to t, as sign_of says.
static int *find_trends(const sn_core *core) {
    SN_VEC(change) changes = {0};
    for (int i = 0; i < core->n_nodes; i++)
        for (int m = 0; m < core->nodes[i].n_terms; m++) {
            const sn_core_term *term = &core->nodes[i].terms[m];
            sn_vec_push(&changes, (change){term->first, i, 1, term->usage});
            sn_vec_push(&changes, (change){term->last, i, -1, term->usage});
        }
    if (changes.count) qsort(changes.data, changes.count, sizeof *changes.data, by_peak_and_node);
    int *trend = sn_alloc(sizeof *trend * (size_t)(core->n_peaks + 1));
    for (size_t from = 0, to; from < changes.count; from = to) {
        const change *first = &changes.data[from];
        for (to = from + 1; to < changes.count && by_peak_and_node(first, &changes.data[to]) == 0; to++) {
        }
        int sign = sign_of(first, to - from, core->nodes[first->node].size), *sum = &trend[first->peak];
        if (*sum == 0)
            *sum = sign;
        else if (sign && sign != *sum)
            *sum = 2;
    }
    sn_vec_free(&changes);
    return trend;
}

static int by_interval(const void *left, const void *right) {
    const sn_core_term *a = left, *b = right;
    return a->first != b->first ? a->first - b->first : a->last - b->last;
}

static void join_terms(sn_core *core, sn_core_node *node) {
    if (node->n_terms) qsort(node->terms, (size_t)node->n_terms, sizeof *node->terms, by_interval);
    int left = 0;
    for (int m = 0; m < node->n_terms; m++) {
        const sn_core_term *next = &node->terms[m];
        sn_core_term *last = left ? &node->terms[left - 1] : NULL;
        if (!last || by_interval(last, next) != 0) {
            node->terms[left++] = *next;
            continue;
        }
        last->usage = sn_arena_copy(&core->arena, last->usage, sizeof(int64_t) * (size_t)node->size);
        for (int k = 0; k < node->size; k++) last->usage[k] += next->usage[k];
    }
    node->n_terms = left;
}

static void renumber(sn_core *core, const bool *keep) {
    int *moved = sn_alloc(sizeof *moved * (size_t)(core->n_peaks + 1)), left = 0;
    for (int t = 0; t < core->n_peaks; t++) {
        moved[t] = left;
        if (!keep[t]) continue;
        if (core->origin) core->origin[left] = core->origin[t];
        core->capacity[left++] = core->capacity[t];
    }
    if (core->origin) core->origin[left] = core->origin[core->n_peaks];
    moved[core->n_peaks] = left;
    core->n_peaks = left;
    for (int i = 0; i < core->n_nodes; i++) {
        sn_core_node *node = &core->nodes[i];
        int kept = 0;
        for (int m = 0; m < node->n_terms; m++) {
            sn_core_term term = node->terms[m];
            term.first = moved[term.first];
            term.last = moved[term.last];
            if (term.first < term.last) node->terms[kept++] = term;
        }
        node->n_terms = kept;
        join_terms(core, node);
    }
    sn_free(moved);
}

// Of a run of peaks each no more than the last kept one only that one stays, and a peak goes when the next is no less.
static int mark(const sn_core *core, bool *keep) {
    int64_t *most = find_most(core);
    int *trend = find_trends(core), last = -1, left = 0;
    for (int t = 0; t < core->n_peaks; t++) {
        keep[t] = true;
        if (last >= 0 && (trend[t] == -1 || trend[t] == 0) && core->capacity[t] >= core->capacity[last])
            keep[t] = false;
        else if (last == t - 1 && last >= 0 && (trend[t] == 1 || trend[t] == 0) &&
                 core->capacity[t] <= core->capacity[last])
            keep[last] = false;
        if (keep[t]) last = t;
    }
    for (int t = 0; t < core->n_peaks; t++) {
        keep[t] &= !has_slack(core, most, t);
        left += keep[t];
    }
    sn_free(most);
    sn_free(trend);
    return left;
}

void sn_core_drop_peaks(sn_core *core) {
    bool *keep = sn_alloc((size_t)core->n_peaks + 1);
    for (int had = core->n_peaks + 1; core->n_peaks < had;) {
        had = core->n_peaks;
        if (mark(core, keep) < had) renumber(core, keep);
    }
    sn_free(keep);
}
