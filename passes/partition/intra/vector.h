// Inner loops over the values of a node, which are contiguous everywhere.
#pragma once
#include <math.h>

static inline void sn_add_to(double *restrict sum, const double *restrict table, int size) {
    for (int k = 0; k < size; k++) sum[k] += table[k];
}

static inline double sn_least_of(const double *sum, int size) {
    double least = sum[0];
    for (int k = 1; k < size; k++) least = sum[k] < least ? sum[k] : least;
    return least;
}

// min over k of sum[k] + table[k], four minima at a time.
static inline double sn_least_of_sum(const double *restrict sum, const double *restrict table, int size) {
    double lane[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    int k = 0;
    for (; k + 4 <= size; k += 4)
        for (int l = 0; l < 4; l++) {
            double value = sum[k + l] + table[k + l];
            lane[l] = value < lane[l] ? value : lane[l];
        }
    for (; k < size; k++) {
        double value = sum[k] + table[k];
        lane[0] = value < lane[0] ? value : lane[0];
    }
    double low = lane[0] < lane[1] ? lane[0] : lane[1], high = lane[2] < lane[3] ? lane[2] : lane[3];
    return low < high ? low : high;
}
