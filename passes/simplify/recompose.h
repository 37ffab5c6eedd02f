// The patterns of `recompose`, by family; recompose.c holds the table. Each looks at the last op of its pattern.
#pragma once
#include "passes/simplify/match.h"

sn_value *sn_recompose_gelu(sn_rewriter *r, sn_op *mul);         // both forms of GELU
sn_value *sn_recompose_norm(sn_rewriter *r, sn_op *op);          // layer_norm and rms_norm without a scale
sn_value *sn_recompose_norm_scale(sn_rewriter *r, sn_op *mul);   // the scale of either
sn_value *sn_recompose_norm_bias(sn_rewriter *r, sn_op *add);    // the bias of layer_norm
sn_value *sn_recompose_softmax(sn_rewriter *r, sn_op *div);      // exp(x - max) / sum
sn_value *sn_recompose_log_softmax(sn_rewriter *r, sn_op *op);   // log(softmax(x)), x - max - log(sum)
sn_value *sn_recompose_attention(sn_rewriter *r, sn_op *matmul); // the product of the weights and v
sn_value *sn_recompose_attention_itself(sn_rewriter *r, sn_op *op);
