// What a cut between forward ops costs: the bytes of the values that cross it. Pipeline stages, blocks and
// rematerialisation all cut where they are few.
#pragma once
#include "ir/graph.h"

// The forward ops of the function stand in a line of `n` places; several may share one. place[op->mark] is from 1, 0
// for ops that are not in the line; ops whose counts[op->mark] is false (NULL: none) make nothing that has to cross.
// out[i], [n + 1] and zero before: the bytes that are made at places 1 … i and read behind.
void sn_crossing_bytes(const sn_func *func, const int *place, int n, const bool *counts, double *out);
