// What an operator takes, as the last column of opset.def states it.
#pragma once
#include "frontend/node.h"

typedef struct sn_input_spec {
    const char *name; // name_length characters of the column
    int name_length;
    char class; // f, i, n, b, a, s or x
    int min_rank, max_rank;
    bool optional, variadic;
} sn_input_spec;

// The next input of a signature, from *text on, which moves behind it; false at the end.
bool sn_signature_next(const char **text, sn_input_spec *out);

// Fails when the node has too many inputs, lacks one, or has one of another class or rank than its operator takes.
void sn_node_check_inputs(sn_node *n);
