// recompose: finds the composite operators in what exporters made of them. The composites have better gradients,
// kernels and numbers than their pieces.
//
//   %m = reduce_sum(%x) / n; %d = sub(%x, %m); …; %y = add(mul(div(%d, %s), @w), @b)
//     =>  %y, %mean, %rstd = layer_norm(%x, @w, @b)
//   %a = softmax(add(mul(matmul(%q, %k), 0.125), @causal_mask)); %y = matmul(%a, %v)
//     =>  %y, %lse = attention(%q, %k, %v) <scale=0.125 causal=1>
//
// Expects canonical form and folded constants; what it leaves dead is dce's.
#include "passes/simplify/recompose.h"

static sn_value *recompose_mul(sn_rewriter *r, sn_op *op) {
    sn_value *found = sn_recompose_gelu(r, op);
    if (!found) found = sn_recompose_norm(r, op);
    return found ? found : sn_recompose_norm_scale(r, op);
}

static sn_value *recompose_div(sn_rewriter *r, sn_op *op) {
    sn_value *found = sn_recompose_norm(r, op);
    return found ? found : sn_recompose_softmax(r, op);
}

static void run(sn_module *module, sn_pass_context *context) {
    static const sn_rule rules[SN_OP_COUNT] = {
        [SN_OP_MUL] = recompose_mul,
        [SN_OP_DIV] = recompose_div,
        [SN_OP_ADD] = sn_recompose_norm_bias,
        [SN_OP_SUB] = sn_recompose_log_softmax,
        [SN_OP_LOG] = sn_recompose_log_softmax,
        [SN_OP_MATMUL] = sn_recompose_attention,
        [SN_OP_ATTENTION] = sn_recompose_attention_itself,
    };
    sn_rewrite(module, context, rules);
}

const sn_pass sn_pass_recompose = {
    .name = "recompose",
    .summary = "finds GELU, norms, softmax and attention in their pieces",
    .forms = 1 << SN_FORM_GRAPH,
    .result = SN_FORM_GRAPH,
    .run = run,
};
