// One handler per operator, or per group of alike ones; opset.def says which.
#pragma once
#include "frontend/node.h"

#define SN_ONNX_OP(type, domain, since, until, handler, kind, inputs) void sn_handle_##handler(sn_node *n);
#include "frontend/opset.def"
#undef SN_ONNX_OP
