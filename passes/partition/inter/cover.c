// Branch and bound in the order of cost per saving. Taking items in this order, the last one in part, is the least cost
// of the relaxed problem and bounds what follows from any decision. An item left out takes with it every later one that
// costs no less and saves no more: the layers of a model save the same, and of those only the cheapest few come into
// question, so that "five of these thirty" is one decision and not a choice among their subsets.
#include "passes/partition/inter/cover.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    sn_cover_item item;
    int index;
} ranked;

typedef struct cover {
    int count;
    ranked *items; // by cost per saving
    int *barred;   // how many items left out bar this one
    bool *taken, *best_taken;
    double best;
} cover;

static int by_ratio(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    double x = a->item.cost * b->item.saving, y = b->item.cost * a->item.saving;
    if (x != y) return x < y ? -1 : 1;
    if (a->item.saving != b->item.saving) return a->item.saving > b->item.saving ? -1 : 1;
    return a->index - b->index;
}

// The cost of the open items from `next` on, the last one in part; INFINITY when they save too little.
static double relaxed(const cover *c, int next, double needed) {
    double cost = 0;
    for (int i = next; i < c->count; ++i) {
        const sn_cover_item *item = &c->items[i].item;
        if (c->barred[i]) continue;
        if (item->saving >= needed) return cost + item->cost * (needed / item->saving);
        cost += item->cost;
        needed -= item->saving;
    }
    return INFINITY;
}

static void bar(cover *c, int left_out, int change) {
    const sn_cover_item *out = &c->items[left_out].item;
    for (int i = left_out + 1; i < c->count; ++i) {
        const sn_cover_item *item = &c->items[i].item;
        if (item->cost >= out->cost && item->saving <= out->saving) c->barred[i] += change;
    }
}

static void decide(cover *c, int next, double needed, double cost) {
    if (needed <= 0) {
        if (cost >= c->best) return;
        c->best = cost;
        memset(c->taken + next, 0, sizeof(bool) * (size_t)(c->count - next));
        memcpy(c->best_taken, c->taken, sizeof(bool) * (size_t)c->count);
        return;
    }
    while (next < c->count && c->barred[next]) c->taken[next++] = false;
    if (next == c->count || cost + relaxed(c, next, needed) >= c->best) return;
    c->taken[next] = true;
    decide(c, next + 1, needed - c->items[next].item.saving, cost + c->items[next].item.cost);
    c->taken[next] = false;
    bar(c, next, 1);
    decide(c, next + 1, needed, cost);
    bar(c, next, -1);
}

double sn_cover_least(int count, const sn_cover_item *items, double needed, bool *taken) {
    size_t n = (size_t)count + 1;
    cover c = {count, sn_alloc(sizeof(ranked) * n), sn_alloc(sizeof(int) * n), sn_alloc(n), sn_alloc(n), INFINITY};
    for (int i = 0; i < count; ++i) c.items[i] = (ranked){items[i], i};
    qsort(c.items, (size_t)count, sizeof *c.items, by_ratio);
    decide(&c, 0, needed, 0);
    for (int i = 0; taken && i < count; ++i) taken[c.items[i].index] = c.best_taken[i];
    sn_free(c.items);
    sn_free(c.barred);
    sn_free(c.taken);
    sn_free(c.best_taken);
    return c.best;
}
