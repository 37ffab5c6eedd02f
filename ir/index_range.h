// Which integers an input may hold: token ids and labels index tables, and a value outside of them is the data's fault.
#pragma once
#include "ir/graph.h"

typedef struct sn_index_range {
    bool known;
    int64_t lo, hi; // valid values are lo <= v < hi, and
    bool has_ignore;
    int64_t ignore; // this one (cross_entropy's ignore_index)
} sn_index_range;

// From the tables that `value` indexes, directly or through ops that keep its numbers; the narrowest counts.
sn_index_range sn_index_range_of(const sn_value *value);
