// Inside of passes/partition: one function becomes several.
#pragma once
#include "passes/partition/stages.h"

// A function that the ops of another are dealt out to.
typedef struct sn_stage_cell {
    sn_stage_part part;
    int stage, rank;
    int order; // when it runs, among the cells of one cut and micro-batch
} sn_stage_cell;

typedef struct sn_stage_cutter {
    sn_module *module;
    int ranks;
    sn_map *owner;      // of globals: stage + 1
    int channels, kept; // used so far
    sn_map tied;        // "NAME@rank" -> the value that the rank's @stageN.tie returns
} sn_stage_cutter;

// Deals the ops of `func` out: op with mark i goes to cells[home[i]], or, with SN_HOME_ANYWHERE, to each cell that
// reads it. A value that another cell reads becomes a result and an argument when the cells are on one rank; else it is
// sent once to each rank that reads it, to the first cell there that can take it, and kept for the others. Functions
// that are there already are appended to. `func` is removed; its results stay in the cells that compute them.
void sn_stage_cut(sn_stage_cutter *cutter, sn_func *func, int n_cells, const sn_stage_cell *cells, const int *home);
