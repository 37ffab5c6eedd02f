// Repeated structure is a period: p for which many consecutive ops do what the op p places later does (same operator,
// same attributes' shapes, same result types). Of all periods the one that covers the most ops wins, the shorter of
// equals. Where the period begins is free; cuts go where the fewest bytes of activations cross, which in a transformer
// is the residual stream between two layers. Where no more cross within the period, with contractions on both sides, is
// a cut as well: behind the residual addition of the attention. The planner's blocks are cut there, too
// (passes/partition/blocks.h).
#include "passes/memory/remat_structure.h"

#include "base/map.h"
#include "passes/partition/crossing.h"

#include <string.h>

typedef struct line { // the forward ops that count
    sn_op **op;
    uint64_t *signature;
    double *crossing; // bytes that cross the cut before op i
    int n;
} line;

typedef struct period {
    int length, start, covered; // covers ops start … start + covered - 1
} period;

static uint64_t signature_of(const sn_op *op) {
    uint64_t hash = sn_hash_bytes(&op->kind, sizeof op->kind, (uint64_t)op->n_operands);
    for (int i = 0; i < op->n_results; i++) {
        sn_type type = op->results[i]->type;
        hash = sn_hash_bytes(&type.dtype, sizeof type.dtype, hash);
        hash = sn_hash_bytes(type.dim, sizeof *type.dim * (size_t)type.rank, hash);
    }
    return hash;
}

static line list_ops(sn_func *func, const bool *skip, sn_arena *arena) {
    line l = {SN_NEW_N(arena, sn_op *, func->n_ops + 1), SN_NEW_N(arena, uint64_t, func->n_ops + 1),
              SN_NEW_N(arena, double, func->n_ops + 2), 0};
    int *place = SN_NEW_N(arena, int, func->n_ops + 1); // by mark, from 1
    uint32_t mark = 0;
    SN_FOR_OPS(op, func) {
        op->mark = mark++;
        if (op->phase != SN_PHASE_FORWARD || op->kind == SN_OP_ASSIGN || (skip && skip[op->mark])) continue;
        l.op[l.n] = op;
        l.signature[l.n] = signature_of(op);
        place[op->mark] = ++l.n;
    }
    sn_crossing_bytes(func, place, l.n, NULL, l.crossing);
    return l;
}

static period find_period(const line *l) {
    period best = {0};
    for (int p = 2; p <= l->n / 2; p++) {
        int run = 0;
        for (int i = 0; i + p <= l->n; i++) {
            bool same = i + p < l->n && l->signature[i] == l->signature[i + p];
            if (same) {
                run++;
                continue;
            }
            if (run >= p && run + p > best.covered) best = (period){p, i - run, run + p};
            run = 0;
        }
    }
    return best;
}

// The place within the period at which fewest bytes cross, judged between the first two repetitions.
static int best_offset(const line *l, const period *p) {
    int best = 0;
    for (int offset = 1; offset < p->length; offset++) {
        int at = p->start + p->length;
        if (l->crossing[at + offset] < l->crossing[at + best]) best = offset;
    }
    return best;
}

// Marks the cuts of one repetition, by distance from its first op.
static void cut_period(const line *l, const period *p, int offset, bool *cut) {
    int at = p->start + p->length + offset, last = 0, heavy = 0; // judged where best_offset looks
    cut[0] = true;
    for (int d = 0; d < p->length && at + d < l->n; d++) {
        if (d > last && heavy > 0 && l->crossing[at + d] <= l->crossing[at]) {
            cut[d] = true;
            last = d, heavy = 0;
        }
        heavy += sn_op_has(l->op[at + d]->kind, SN_TRAIT_LIBRARY);
    }
    if (!heavy) cut[last] = last == 0; // the rest goes with what is before it
}

int sn_remat_find_blocks(sn_func *func, const bool *skip, int *block) {
    sn_arena arena = {0};
    line l = list_ops(func, skip, &arena);
    period p = find_period(&l);
    int n = 0, offset = p.length ? best_offset(&l, &p) : 0, end = p.start + p.covered;
    bool *cut = SN_NEW_N(&arena, bool, p.length + 1);
    if (p.length) cut_period(&l, &p, offset, cut);
    SN_FOR_OPS(op, func) block[op->mark] = -1;
    for (int i = 0; i < l.n; i++) {
        int place = i - p.start - offset;
        if (p.length && place >= 0 && i <= end && cut[place % p.length]) n += i > 0;
        block[l.op[i]->mark] = n;
    }
    // ops that do not count go with the op before them
    int last = 0;
    SN_FOR_OPS(op, func) {
        if (op->phase != SN_PHASE_FORWARD) continue;
        if (block[op->mark] < 0)
            block[op->mark] = last;
        else
            last = block[op->mark];
    }
    sn_arena_free(&arena);
    return n + 1;
}
