// Opening a model as a command line asks for it: which sizes its symbolic dims take.
#pragma once
#include "base/options.h"
#include "frontend/onnx.h"

// Sizes come from, in this order: --dim NAME=N; --batch for a symbolic first dim; the shapes of DIR/INPUT.npy when
// `data` is a folder; the caller's own for the first dim. What is still open is an error that names each dim.
typedef struct sn_model_source {
    sn_onnx_model *model;
    sn_onnx_options import; // ready for sn_onnx_import; its lists are in the arena
    sn_arena arena;
    int64_t batch;       // the first dim of the data inputs; 0 when there is none
    int64_t fixed_batch; // the same as far as the model, or --dim, says so; 0 where --batch or the data decide
} sn_model_source;

// `data` is a folder, a token file, or NULL; `batch` stands in for --batch where the user leaves it out (0: nothing
// does); --batch is shared by `parts` micro-batches, of which the model sees one (0: for planning, which needs
// no weights and where a model with a fixed batch states a micro-batch's). False when diags got errors; close it
// in either case.
bool sn_model_source_open(const char *path, const sn_options *options, const char *data, int64_t batch, int parts,
                          sn_onnx_mode mode, sn_diags *diags, sn_model_source *out);
void sn_model_source_close(sn_model_source *source);
