#include "passes/partition/crossing.h"

static int last_place(const sn_value *value, const int *place, int at) {
    int last = at;
    for (size_t u = 0; u < value->uses.count; u++) {
        const sn_op *user = value->uses.data[u].op;
        int reader = user->phase == SN_PHASE_FORWARD ? place[user->mark] : 0;
        if (reader > last) last = reader;
    }
    return last;
}

void sn_crossing_bytes(const sn_func *func, const int *place, int n, const bool *counts, double *out) {
    SN_FOR_OPS(op, func) {
        int at = place[op->mark];
        if (!at || (counts && !counts[op->mark])) continue;
        for (int r = 0; r < op->n_results; r++) {
            double bytes = (double)sn_type_bytes(op->results[r]->type);
            out[at] += bytes;
            out[last_place(op->results[r], place, at)] -= bytes;
        }
    }
    for (int i = 1; i <= n; i++) out[i] += out[i - 1];
}
