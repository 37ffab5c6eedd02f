// Local rewriting: a table of rules by operator, applied to every op of every function until none fires.
#pragma once
#include "ir/build.h"
#include "passes/pass.h"

typedef struct sn_rewriter {
    sn_module *module;
    sn_pass_context *context;
    sn_builder builder; // use sn_rewriter_at, which sets it
    bool changed;
} sn_rewriter;

// Returns what replaces the op's first result: a value of the same type that is defined before the op, often one that
// the rule built; NULL when the rule does not fire. A rule that replaces several results or changes the op in place
// does so itself, sets `changed` and returns NULL.
typedef sn_value *(*sn_rule)(sn_rewriter *rewriter, sn_op *op);

// `rules` has SN_OP_COUNT entries, of which some are NULL. Bodies of kernels are left alone.
void sn_rewrite(sn_module *module, sn_pass_context *context, const sn_rule *rules);
// A builder before `op`, with its phase, and an origin that names the running pass.
sn_builder *sn_rewriter_at(sn_rewriter *rewriter, const sn_op *op);
// Replaces a result everywhere, and hands its name on.
void sn_rewriter_replace(sn_rewriter *rewriter, sn_value *old, sn_value *with);

// The op that defines a value when it is of this kind; else NULL.
sn_op *sn_defined_by(const sn_value *value, sn_op_kind kind);
// Whether every element is this number: a CONSTANT op's result.
bool sn_is_number(const sn_value *value, double number);
// Whether the operands' types give `type` by broadcasting.
bool sn_broadcasts_to(sn_type a, sn_type b, sn_type type);
