// How kernels treat an operator; follows from its traits.
#pragma once
#include "ir/op.h"

typedef enum sn_op_class {
    SN_CLASS_INDEX,     // generators and movement: index arithmetic, made again in each consumer
    SN_CLASS_POINTWISE, // arithmetic on one element
    SN_CLASS_REDUCTION, // over axes
    SN_CLASS_LOOP,      // each element is a loop of its own: windows, scans, scatters, contractions without a library
    SN_CLASS_OUTSIDE,   // not in kernels: collectives, assign, axis_index, schedule ops, kernels themselves
} sn_op_class;

sn_op_class sn_op_class_of(sn_op_kind kind);
// Arithmetic that is worth keeping rather than computing twice: more than some ten instructions.
bool sn_op_is_expensive(sn_op_kind kind);
