// Sequential tree-reweighted message passing: a fast lower bound, and costs shifted to where they decide.
#pragma once
#include "passes/partition/intra/core.h"

typedef struct sn_messages sn_messages;

sn_messages *sn_messages_new(const sn_core *core);
void sn_messages_free(sn_messages *messages);
size_t sn_messages_cells(const sn_messages *messages); // touched by a sweep: its work

// One sweep forth and back; costs[i][k] is what value k of node i costs. Returns a lower bound of the sum of node and
// edge costs. Repeated sweeps raise it.
double sn_messages_sweep(sn_messages *messages, double *const *costs);
// After a sweep with the same costs: a choice.
void sn_messages_decode(const sn_messages *messages, double *const *costs, int *values);
// Moves costs from the edges of `core`, the network that the messages were made for, to its nodes, in whole units; what
// a choice costs stays the same, and a following sweep starts from no messages.
void sn_messages_settle(sn_messages *messages, sn_core *core);
