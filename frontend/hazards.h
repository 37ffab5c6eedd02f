// What exporters do to models that is harmless for inference and wrong for training.
#pragma once
#include "frontend/model.h"

// An initializer that holds the same numbers as another one: a tied weight that constant folding untied.
typedef struct sn_tie {
    const char *copy, *of;
    bool transposed;
} sn_tie;

// A parameter that the exporter dropped because another one was equal at export time: an Identity of that one stands
// in its place.
typedef struct sn_merge {
    const char *name, *of;
} sn_merge;

// Finds both in an opened model, without reading more of the weights than it must.
void sn_hazards_find(sn_onnx_model *model);
const sn_tie *sn_hazards_tie(const sn_onnx_model *model, const char *copy);     // NULL when it is none
const sn_merge *sn_hazards_merge(const sn_onnx_model *model, const char *name); // NULL when it is none
