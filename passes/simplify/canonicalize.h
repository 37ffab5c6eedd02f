// The rules of `canonicalize`, by family; canonicalize.c holds the table.
#pragma once
#include "passes/simplify/rewrite.h"

sn_value *sn_canonicalize_pointwise(sn_rewriter *r, sn_op *op); // any pointwise op
sn_value *sn_canonicalize_reshape(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_transpose(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_broadcast(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_slice(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_pad(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_concat(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_gather(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_gather_nd(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_reduction(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_matmul(sn_rewriter *r, sn_op *op);
sn_value *sn_canonicalize_attention(sn_rewriter *r, sn_op *op);
