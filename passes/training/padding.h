// Rows of embedding tables that are not trained where they are looked up, as PyTorch's Embedding(padding_idx=N) has it.
// ONNX's Gather does not say so.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"

// Each rule is "REGEX=N": row N of the tables whose names match. Sets `padding` of the gathers of `func` that read such
// a table (as the tied weight of another layer the row is still trained). False with E0308: a rule is malformed, N is
// no row, or no embedding table matches.
bool sn_padding_mark(sn_func *func, int n_rules, const char *const *rules, sn_diags *diags);
