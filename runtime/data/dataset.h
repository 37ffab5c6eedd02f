// What a model is fed: the graph's inputs, from a folder with one .npy per input (rows are samples) or from a file of
// token ids (language models). Samples are numbered over the whole run; a step takes schedule.step_samples of them.
#pragma once
#include "base/diag.h"
#include "runtime/schedule.h"

typedef struct sn_dataset sn_dataset;

typedef struct sn_dataset_options {
    const char *path;
    int64_t token_bytes; // 2 or 4, when `path` is a file
    uint64_t seed;
    int64_t batch; // samples taken at a time: an epoch is a whole number of them, what is left over is skipped
    bool shuffle; // folders: each epoch is permuted; tokens: windows start anywhere. Else: in file order, over and over
} sn_dataset_options;

// Maps everything and checks types and shapes, of the inputs of all classes: all ranks find the same. NULL after an
// error; `diags` has all of them (E0601 …).
//
// Folder: NAME.npy has shape (samples, …the input without its batch dimension…). Integers convert when exact, floats
// round. Tokens: sample i is a window of S = the inputs' last dimension ids and the one after; the input gets the first
// S, the label the last S; `attention_mask` gets ones, `position_ids` 0 … S - 1.
sn_dataset *sn_dataset_open(const sn_schedules *schedules, int64_t class, const sn_dataset_options *options,
                            sn_diags *diags);
void sn_dataset_close(sn_dataset *dataset);

// Samples that exist (rows; non-overlapping windows).
int64_t sn_dataset_samples(const sn_dataset *dataset);

// Writes the part of `rank`, which is of the class, of the class's input `input` for the micro-batch that starts at
// sample `first`: row-major, of the buffer's type and shape. A value out of range is an error (E0607) that names the
// file and row; false then.
bool sn_dataset_fill(const sn_dataset *dataset, int64_t first, size_t input, int64_t rank, void *to, sn_diags *diags);
