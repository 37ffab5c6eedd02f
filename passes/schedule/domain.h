// The iteration space that the ops of one kernel share: segments of dims, each kept or reduced. A value is full when
// its dims split into the segments in order, a row when they split into the kept segments alone (dims of size 1 may
// stand anywhere). Pointwise ops over 8x256x768 and a reduction over the last dim share {2048 kept, 768 reduced};
// 2048x768 fits it too.
#pragma once
#include "ir/graph.h"

typedef struct sn_domain {
    int n;
    int64_t size[SN_MAX_RANK];
    bool reduced[SN_MAX_RANK];
} sn_domain;

// All of `type`, in one kept segment.
sn_domain sn_domain_of_type(sn_type type);
// Of a REDUCTION op: its operand's dims, neighbours of one kind merged.
sn_domain sn_domain_of_reduction(const sn_op *op);
bool sn_domain_equal(const sn_domain *a, const sn_domain *b);
bool sn_domain_has_reduced(const sn_domain *domain);
int64_t sn_domain_count(const sn_domain *domain, bool reduced); // elements of the kept, or of the reduced segments

// segment_of[d] becomes the segment that dim d lies in (-1 for a dim of size 1).
bool sn_domain_fits_full(const sn_domain *domain, sn_type type, int segment_of[SN_MAX_RANK]);
bool sn_domain_fits_row(const sn_domain *domain, sn_type type, int segment_of[SN_MAX_RANK]);
