// Whole training steps of a small GPT, compiled against the interpreter: every parameter and moment after some steps.
#include "passes/training/training.h"
#include "tests/support/compiled.h"
#include "tests/support/gpt.h"

static sn_module *training_step(gpt_size size, double clip, const char *optimizer) {
    sn_module *module = gpt_module(size, false);
    sn_training training = sn_training_default();
    sn_diags diags = {0};
    training.clip = clip;
    assert_true(sn_optimizer_parse(optimizer, &diags, &training.optimizer));
    sn_pass_context context = {.diags = &diags, .training = &training};
    sn_pipeline_options options = {.pass_limit = -1,
                                   .pipeline = "canonicalize,fold-constants,cse,training,canonicalize,cse,dce"};
    assert_true(sn_passes_run(module, &context, &options));
    for (size_t i = module->funcs.count; i-- > 0;)
        if (strcmp(module->funcs.data[i]->name, "step") != 0) sn_module_remove_func(module, module->funcs.data[i]);
    sn_diags_free(&diags);
    return module;
}

static sn_tensor argument(const sn_value *arg, int64_t vocabulary) {
    if (strcmp(arg->name, "$lr") == 0) return random_tensor(arg->type, 1e-3, 1e-3, 0);
    if (arg->name[0] == '$') return random_tensor(arg->type, 1, 1, 0);
    return random_tensor(arg->type, 0, (double)vocabulary, arg->index + 1);
}

static void check_steps(const char *name, gpt_size size, double clip, const char *optimizer) {
    sn_module *module = training_step(size, clip, optimizer);
    const sn_func *func = sn_module_func(module, "step");
    sn_tensor args[MOST_ARGS];
    size_t n = func->args.count;
    for (size_t i = 0; i < n; i++) args[i] = argument(func->args.data[i], size.vocabulary);
    sn_device *device = NULL;
    sn_jit_free(compare_function(name, module, "step", args, 2, 200, &device));
    sn_device_destroy(device);
    for (size_t i = 0; i < n; i++) sn_tensor_free(&args[i]);
    sn_module_free(module);
}

static void test_step(void **state) {
    (void)state;
    check_steps("one layer", (gpt_size){1, 1, 5, 8, 2, 11}, 0, "adamw,lr=1e-3");
    check_steps("two layers", (gpt_size){2, 3, 33, 48, 3, 67}, 0, "adamw,lr=1e-3");
}

static void test_clipping(void **state) {
    (void)state;
    check_steps("clipped", (gpt_size){1, 2, 16, 32, 4, 31}, 0.1, "adam,lr=1e-3");
    check_steps("momentum", (gpt_size){1, 2, 16, 32, 4, 31}, 0.1, "momentum,lr=1e-2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_clipping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
