// Stages whose operators differ in data and tensor degree, in algorithm and in recomputation; layouts change in
// between.
#pragma once
#include "aceso_recompute.h"

enum { ACESO_SHAPES_MAX = 16, ACESO_CHOICES_MAX = 4 * ACESO_SHAPES_MAX, ACESO_ALGORITHMS = 2 };

typedef struct aceso_choice {
    int data, tensor, algorithm;
    bool again;
} aceso_choice;

typedef struct aceso_mixed {
    const aceso_profile *profiles[ACESO_ALGORITHMS];
    struct aceso_gather *gather; // measured all-gathers
    const aceso_limits *limits;
    int batch, devices;          // samples a micro-batch; devices of the stage
    bool in_cross;               // its input comes from another node
    struct aceso_choices *lists; // by aceso_mixed_prepare
} aceso_mixed;

struct aceso_gather *aceso_gather_read(const char *folder, const char *model, const char *size);
void aceso_gather_free(struct aceso_gather *gather);

// Lists the choices for the profiles, the batch and the devices; owned until aceso_mixed_release.
void aceso_mixed_prepare(aceso_mixed *x);
void aceso_mixed_release(aceso_mixed *x);

// For all ends of stages that start at operator `first`: time[operators + 1] milliseconds of the best found way that
// fits with `in_flight` micro-batches, by the number of the operator behind the stage; without the transfer of the
// output, which is computed from out_size[operators + 1] MB. INFINITY where none fits.
void aceso_mixed_times(const aceso_mixed *x, int first, int in_flight, double *time, double *out_size);
// The choices behind one of those times; choice[count].
void aceso_mixed_choices(const aceso_mixed *x, int first, int count, int in_flight, aceso_choice *choice);
// Milliseconds and MB of choices, operator by operator, by Aceso's rules.
double aceso_mixed_evaluate(const aceso_mixed *x, int first, int count, const aceso_choice *choice, bool out_cross,
                            int stages_behind, double *memory);
