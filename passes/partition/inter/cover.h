// The covering knapsack: which units to rematerialise so that a stage fits its memory in the least extra time.
#pragma once
#include <stdbool.h>

typedef struct sn_cover_item {
    double cost;   // >= 0
    double saving; // > 0
} sn_cover_item;

// The least cost of items that together save at least `needed`; INFINITY when all of them do not. Exact. taken[count],
// if not NULL, says which.
double sn_cover_least(int count, const sn_cover_item *items, double needed, bool *taken);
