// Every differentiable operator against central differences, at odd shapes; the last test fails when an operator of
// ops.def has neither a case here nor a stated reason to have no gradient.
#include "case.h"

#include "ir/interp.h"
#include "ir/verify.h"
#include "passes/autodiff/differentiate.h"

static const sn_dtype float_type = SN_F64;

typedef struct graph {
    sn_module *module;
    sn_func *func;      // -> loss, gradients of the inputs
    sn_func *loss_only; // -> loss
    int n;
    sn_tensor x[MOST_INPUTS];
} graph;

static sn_func *build_func(graph *g, const grad_case *c, const char *name, sn_value **loss, sn_value **x) {
    sn_func *func = sn_module_add_func(g->module, name);
    sn_builder b = {.func = func};
    g->n = add_inputs(func, c, x);
    sn_value *out[MOST_OUTPUTS];
    int n_out = c->build(&b, x, c, out);
    *loss = weighted_sum(&b, out, n_out);
    sn_func_add_result(func, *loss, "loss");
    return func;
}

static graph build_graph(const grad_case *c) {
    graph g = {.module = sn_module_new("grad")};
    sn_value *loss, *x[MOST_INPUTS], *gradients[MOST_INPUTS];
    g.loss_only = build_func(&g, c, "loss", &loss, x);
    g.func = build_func(&g, c, "gradients", &loss, x);
    sn_builder b = {.func = g.func};
    sn_diags diags = {0};
    assert_true(sn_differentiate(&b, loss, g.n, x, gradients, &diags));
    for (int i = 0; i < g.n; i++) {
        if (!gradients[i]) fail_msg("%s: input %d has no gradient", c->name, i);
        assert_true(sn_type_equal(gradients[i]->type, x[i]->type));
        sn_func_add_result(g.func, gradients[i], "");
        g.x[i] = sn_tensor_new(x[i]->type);
        draw_input(c, i, g.x[i].data, sn_type_count(x[i]->type));
    }
    sn_str problems = {0};
    if (!sn_verify(g.module, &problems)) fail_msg("%s: %s", c->name, sn_str_text(&problems));
    sn_str_free(&problems);
    sn_diags_free(&diags);
    return g;
}

static double loss_at(sn_interp *interp, const graph *g, const char *name) {
    sn_tensor result;
    const char *problem = sn_interp_run(interp, g->loss_only, g->x, &result);
    if (problem) fail_msg("%s: %s", name, problem);
    double loss = *(double *)result.data;
    sn_tensor_free(&result);
    return loss;
}

// The error of a central difference is about h^2 f''' / 6 + eps |f| / h: 1e-10 and better here.
static void compare(sn_interp *interp, graph *g, int input, const sn_tensor *gradient, const char *name) {
    double *x = g->x[input].data;
    const double *got = gradient->data, h = 1e-5;
    for (int64_t i = 0; i < sn_type_count(gradient->type); i++) {
        double at = x[i];
        x[i] = at + h;
        double above = loss_at(interp, g, name);
        x[i] = at - h;
        double below = loss_at(interp, g, name);
        x[i] = at;
        double wanted = (above - below) / (2 * h);
        if (!(fabs(got[i] - wanted) <= 2e-7 * (1 + fabs(wanted))))
            fail_msg("%s: input %d, element %d: gradient %.12g, central difference %.12g", name, input, (int)i, got[i],
                     wanted);
    }
}

static void check_case(const grad_case *c) {
    graph g = build_graph(c);
    sn_interp *interp = sn_interp_new(g.module);
    sn_tensor results[1 + MOST_INPUTS];
    const char *problem = sn_interp_run(interp, g.func, g.x, results);
    if (problem) fail_msg("%s: %s", c->name, problem);
    for (int i = 0; i < g.n; i++) compare(interp, &g, i, &results[1 + i], c->name);
    for (int i = 0; i <= g.n; i++) sn_tensor_free(&results[i]);
    for (int i = 0; i < g.n; i++) sn_tensor_free(&g.x[i]);
    sn_interp_free(interp);
    sn_module_free(g.module);
}

static bool covered[SN_OP_COUNT];

static void note_coverage(const grad_case *c) {
    sn_module *module = sn_module_new("coverage");
    sn_func *func = sn_module_add_func(module, "f");
    sn_builder b = {.func = func};
    sn_value *x[MOST_INPUTS], *out[MOST_OUTPUTS];
    add_inputs(func, c, x);
    c->build(&b, x, c, out);
    SN_FOR_OPS(op, func) {
        covered[op->kind] = true;
    }
    sn_module_free(module);
}

static void run_cases(const grad_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        note_coverage(&cases[i]);
        check_case(&cases[i]);
    }
}
#define RUN(cases) run_cases(cases, sizeof(cases) / sizeof *(cases))

#include "cases_movement.h"
#include "cases_nn.h"
#include "cases_pointwise.h"
#include "cases_reduction.h"

// Operators of training, distribution and schedules: no model holds them when it is differentiated.
static bool has_no_gradient(sn_op_kind kind) {
    static const unsigned traits = SN_TRAIT_UPDATE | SN_TRAIT_COLLECTIVE | SN_TRAIT_TRANSFER | SN_TRAIT_SCHEDULE;
    return (sn_op_info_of(kind)->traits & traits) || kind == SN_OP_KERNEL || kind == SN_OP_SHARD ||
           kind == SN_OP_ATTENTION_GRAD;
}

static void test_every_operator_is_covered(void **state) {
    (void)state;
    int missing = 0;
    for (int kind = 0; kind < SN_OP_COUNT; kind++) {
        sn_gradient_kind has = sn_gradient_kind_of(kind);
        if (has == SN_GRADIENT_RULE && !covered[kind]) {
            print_error("%s has a rule but no case\n", sn_op_name(kind));
            missing++;
        }
        if ((has == SN_GRADIENT_NONE) != has_no_gradient(kind)) {
            print_error("%s: neither a rule nor a reason for none\n", sn_op_name(kind));
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_contractions),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_composites),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_every_operator_is_covered), // reads what the others covered
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
