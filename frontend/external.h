// External tensor data: other files, named by the model, inside its folder.
#pragma once
#include "frontend/model.h"

// Where an external tensor's data is; the file is mapped when first needed and stays mapped with the model. A location
// that leaves the model's folder (absolute, `..`, a symbolic link) is an error: a model from a stranger must not read
// other files. False when diags got an error.
bool sn_external_data(sn_onnx_model *model, const Onnx__TensorProto *proto, sn_type type, const char *subject,
                      sn_diags *diags, sn_source *out);
void sn_external_unmap(sn_tensor_file *file);
