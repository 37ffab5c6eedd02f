// Which operators of a stage are recomputed so that it fits.
#pragma once
#include "aceso_profile.h"

typedef struct aceso_limits {
    double memory;                   // MB of a device
    double master_copies, optimizer; // per MB of weights
} aceso_limits;

// The options of the layers seen so far. Zero-initialise.
typedef struct aceso_options {
    struct aceso_layer_options *lists;
    int count;
} aceso_options;
void aceso_options_free(aceso_options *options);

// The least milliseconds of recomputation with which a stage that holds `in_flight` micro-batches fits; INFINITY when
// nothing helps. `again`, if not NULL, says which operators.
double aceso_least_recompute(const aceso_profile *profile, const aceso_limits *limits, const aceso_stage *stage,
                             int in_flight, aceso_options *options, bool *again);
// MB, by Aceso's rules operator by operator.
double aceso_evaluate_memory(const aceso_profile *profile, const aceso_limits *limits, const aceso_stage *stage,
                             const bool *again, int stages_behind);
