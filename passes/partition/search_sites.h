// Where the pipeline ranks of a candidate lie in the cluster. On equal nodes whose links nest in the axes all of them
// see the same links; else some lie on two nodes, or on other devices, and each such site has times of its own. Private
// to the search.
#pragma once
#include "passes/partition/search_stages.h"

// Sets of ranks recur; counting their links takes time. A set of dp and cp is one of several runs of ranks.
typedef struct sn_known_group {
    int64_t first, size, stride; // of the ranks of a run
    int64_t runs, apart;         // first ranks of runs are so far apart
    const sn_group *group;       // equal groups are one
} sn_known_group;

typedef struct sn_search_site {
    sn_site at;              // its device is the slowest of the site
    double memory;           // bytes, the least that a device of the site has
    const sn_group *shares;  // ranks of dp and cp, which hold the same parameters: of these groups
    const sn_group *experts; // of those over ep,
    const sn_group *norm;    // and of those over all axes that cut parameters or gradients, the one that takes longest
} sn_search_site;

// Of all candidates with these sizes and this order of the axes.
typedef struct sn_known_sites {
    int pp, dp, tp, cp, ep;
    bool data_outside, shared; // shared: ZeRO cuts gradients over dp
    int n;
    sn_search_site *sites;
    int *of;                 // per pipeline rank: its site; NULL: the first
    const sn_group **before; // per pipeline rank: the slowest pair with the one before it (of the first: the last)
    bool one_message;        // all of them are equal
} sn_known_sites;

typedef struct sn_search sn_search;
// Kept: asking again is cheap. Valid until the next call.
const sn_known_sites *sn_sites_of(sn_search *search, const sn_candidate *candidate);
