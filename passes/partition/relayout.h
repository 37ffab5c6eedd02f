// From one layout to another: which collectives, in which order, and how many bytes they move. The one place that
// knows; distribute emits what it says, and searches add up its bytes.
#pragma once
#include "ir/graph.h"

enum { SN_MAX_MOVES = 4 * SN_MAX_AXES };

typedef struct sn_move {
    sn_op_kind kind; // all_reduce, reduce_scatter, all_to_all, all_gather or shard
    sn_axes axes;
    int dim, to;      // the dim that is cut or joined; of an all_to_all the one joined, and the one cut
    sn_layout layout; // after the move
} sn_move;

// The moves from one layout of a value of global type `type` to another; returns their number, at most SN_MAX_MOVES.
// `to` may be partial only where `from` is. Cuts come first and joins last, so that what is sent is small.
int sn_relayout(const sn_mesh *mesh, sn_type type, sn_layout from, sn_layout to, sn_move *moves);

// Bytes that a rank sends in the moves of a value, by ring algorithms (Thakur et al. 2005): P parts of n bytes each
// send (P-1)/P of the larger side, an all_reduce twice that.
double sn_relayout_bytes(const sn_mesh *mesh, sn_type type, sn_layout from, sn_layout to);
