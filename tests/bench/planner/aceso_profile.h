// Aceso's database: for each operator, micro-batch size and tensor degree, times and sizes measured on V100s.
#pragma once
#include <stdbool.h>

enum { ACESO_BATCHES_MAX = 8, ACESO_DEGREES = 4, ACESO_BANDWIDTHS_MAX = 32 };

typedef struct aceso_operation {
    char name[64];
    double forward, backward;                   // microseconds
    double input, output;                       // MB
    double weights, activations;                // MB
    double reserved_forward, reserved_backward; // MB
    bool measured;
    // Rules of this database, by the operator's name.
    double kept;       // MB kept for the backward pass
    bool starts_layer; // recomputed layers end before it
    bool never_again;  // not recomputed
    bool shares;       // its output lives in the memory of another operator's
} aceso_operation;

typedef struct aceso_profile {
    const char *folder;
    int rows;            // distinct operators
    int operators, *row; // the model: [operators] rows
    int batch_count, batches[ACESO_BATCHES_MAX];
    aceso_operation *table; // [rows][batches][degrees]
    int inner_count, outer_count;
    double inner[ACESO_BANDWIDTHS_MAX], outer[ACESO_BANDWIDTHS_MAX]; // GB/s within and between nodes, by log2 of the MB
} aceso_profile;

aceso_profile aceso_profile_read(const char *folder, const char *model, const char *size, int algorithm, int layers,
                                 int batch_count, const double *batches);
void aceso_profile_free(aceso_profile *profile);
int aceso_batch_index(const aceso_profile *profile, int batch); // -1 when it was not measured
const aceso_operation *aceso_operator(const aceso_profile *profile, int operator, int batch_index, int degree_index);

// Consecutive operators on one shape; `batch` samples on each replica.
typedef struct aceso_stage {
    int first, count, batch, tensor;
} aceso_stage;
const aceso_operation *aceso_stage_operator(const aceso_profile *profile, const aceso_stage *stage, int k);

double aceso_transfer(const aceso_profile *profile, double megabytes, bool cross); // microseconds
// Milliseconds of the operators, and of the transfers at both ends, which may cross nodes.
double aceso_stage_compute(const aceso_profile *profile, const aceso_stage *stage);
double aceso_stage_transfers(const aceso_profile *profile, const aceso_stage *stage, bool in_cross, bool out_cross);
// Milliseconds with the recomputed operators, added up one by one.
double aceso_evaluate_time(const aceso_profile *profile, const aceso_stage *stage, const bool *again, bool in_cross,
                           bool out_cross);
