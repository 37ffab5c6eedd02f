// An open model, as the frontend's own files see it.
#pragma once
#include "base/file.h"
#include "frontend/onnx.h"
#include "frontend/tensor.h"

struct sn_onnx_model {
    sn_arena arena;
    sn_onnx_info info;
    sn_tensor_file file;
    sn_mapped_file mapped; // empty for a model in memory
    bool shapes_only;      // external data may be missing
    int folder;            // descriptor of the model's folder, -1 for a model in memory
    Onnx__ModelProto *proto;
    sn_map weights;  // initializer name -> Onnx__TensorProto
    sn_map marks;    // value name -> what torch.export says of it
    sn_map external; // location -> sn_tensor_file
    sn_map ties;     // initializer -> sn_tie (frontend/hazards.h)
    sn_map merges;   // Identity's output -> sn_merge
};

// Where an initializer's (or a constant's) data is, inline or external. `arena` takes what must be decoded. False when
// diags got an error about `subject`.
bool sn_model_tensor(sn_onnx_model *model, const Onnx__TensorProto *proto, sn_type type, const char *subject,
                     sn_arena *arena, sn_diags *diags, sn_source *out);
