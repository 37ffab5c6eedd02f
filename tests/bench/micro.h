// Published micro measurements against the cost model: matrix products and fused attention, and collectives.
#pragma once
#include "csv.h"
#include "passes/cost/cost.h"

// What the cost model says of a row of micro_gemm.csv or micro_collectives.csv, and what was measured; false for rows
// of devices or operations that it does not have. `adjust`, when set, may change the device and the cluster first.
typedef struct micro_case {
    sn_device_kind device;
    sn_curve curve;
    sn_cluster cluster;
} micro_case;
typedef void (*micro_adjust)(void *user, sn_device_kind *device, sn_curve *curve, sn_cluster *cluster);
bool micro_gemm(const csv_row *row, micro_adjust adjust, void *user, double *predicted, double *measured);
bool micro_collective(const csv_row *row, micro_adjust adjust, void *user, double *predicted, double *measured);

double csv_number(const csv_row *row, const char *column, double otherwise);
