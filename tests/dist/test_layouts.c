// Random layouts: any weight and any node's result may be stated cut along any dims over any axes, at any digit, and
// the program still computes what one device does. What a search would never choose exercises every move and every op.
//
//     dist_test_layouts                a few draws of each model
//     dist_test_layouts FIRST COUNT    draws FIRST, FIRST + 1, … of all models
#include "base/philox.h"
#include "tests/dist/mesh.h"

static const double tolerance = 1e-8;

typedef struct dice {
    uint64_t seed, at;
} dice;

static int roll(dice *d, int sides) {
    return (int)(sn_random_uniform(d->seed, 0, 0, d->at++) * (float)sides);
}

static const char *const models[] = {"mlp", "gpt2", "lenet", "moe", "bert", "llama", "mixtral", "t5", "vit", "resnet"};
enum { MODELS = 10, BUNDLED = 4 };

// Up to three axes of 2 or 3 and a dp that divides the batch of 4.
static void draw_mesh(dice *d, sn_plan *plan) {
    static const char *const names[] = {"dp", "tp", "cp", "x"};
    *plan = (sn_plan){.microbatches = 1 + roll(d, 2), .chunks = 1, .zero = roll(d, 4)};
    for (int i = 0; i < 4; i++) {
        if (roll(d, 2) && plan->mesh.n_axes) continue;
        int size = i == 0 ? 2 << roll(d, 2) : 2 + roll(d, 2);
        if (sn_mesh_ranks(&plan->mesh) * size > 8) continue;
        strcpy(plan->mesh.name[plan->mesh.n_axes], names[i]);
        plan->mesh.size[plan->mesh.n_axes++] = size;
    }
}

// Axes other than `kept` in random dims, each at a random digit that fits. False when none does.
static bool draw_layout(dice *d, const sn_mesh *mesh, sn_type type, const char *kept, sn_layout *out) {
    *out = (sn_layout){0};
    for (int a = 0; a < mesh->n_axes; a++) {
        if (type.rank == 0 || strcmp(mesh->name[a], kept) == 0 || !roll(d, 2)) continue;
        int dim = roll(d, type.rank);
        int64_t size = type.dim[dim], outer = 1;
        while (roll(d, 2) && outer < size) outer++;
        sn_layout with = *out;
        sn_layout_add(mesh, &with, dim, a, size % outer ? 1 : outer);
        if (sn_layout_divides(mesh, with, dim, size)) *out = with;
    }
    return sn_layout_axes(*out) != 0;
}

static void add_layout(sn_plan *plan, const char *name, int rank, sn_layout layout) {
    for (int i = 0; i < plan->n_layouts; i++)
        if (strcmp(plan->layouts[i].name, name) == 0) return;
    plan->layouts = realloc(plan->layouts, sizeof *plan->layouts * (size_t)(plan->n_layouts + 1));
    plan->layouts[plan->n_layouts++] = (sn_plan_layout){strdup(name), rank, layout};
}

static const sn_op *last_of_node(const sn_func *func, const char *node) {
    const sn_op *last = NULL;
    SN_FOR_OPS(op, func) {
        const char *name = sn_origin_node(op->origin);
        if (name && op->phase == SN_PHASE_FORWARD && op->n_results && strcmp(name, node) == 0) last = op;
    }
    return last;
}

// Half of the weights, and some nodes whose shape is the same in all functions.
static void draw_layouts(dice *d, const sn_module *module, sn_plan *plan) {
    sn_layout layout;
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_global *global = module->globals.data[i];
        if (global->role != SN_ROLE_PARAMETER || !roll(d, 2)) continue;
        if (draw_layout(d, &plan->mesh, global->value->type, "dp", &layout))
            add_layout(plan, global->name, global->value->type.rank, layout);
    }
    SN_FOR_OPS(op, module->funcs.data[0]) {
        const char *node = sn_origin_node(op->origin);
        if (!node || op->phase != SN_PHASE_FORWARD || !op->n_results || roll(d, 12)) continue;
        bool same = true;
        const sn_op *last = last_of_node(module->funcs.data[0], node);
        for (size_t f = 1; f < module->funcs.count; f++) {
            const sn_op *other = last_of_node(module->funcs.data[f], node);
            same &= !other || sn_shape_equal(other->results[0]->type, last->results[0]->type);
        }
        if (same && draw_layout(d, &plan->mesh, last->results[0]->type, "", &layout))
            add_layout(plan, node, last->results[0]->type.rank, layout);
    }
}

static void forget(sn_plan *plan) {
    for (int i = 0; i < plan->n_layouts; i++) free((char *)(uintptr_t)plan->layouts[i].name);
    free(plan->layouts);
}

static void describe(const char *model, uint64_t seed, const sn_plan *plan) {
    json_t *json = sn_plan_to_json(plan);
    char *text = json_dumps(json, JSON_COMPACT);
    print_message("%s, draw %d: %s\n", model, (int)seed, text);
    free(text);
    json_decref(json);
}

// False when the model is not there.
static bool compare_draw(const char *model, uint64_t seed) {
    sample s;
    if (!sample_find(model, "dynamo-20-raw", &s)) return false;
    sample_open(&s, 4);
    dice d = {.seed = seed * 31 + (uint64_t)model[0]};
    sn_plan plan;
    draw_mesh(&d, &plan);
    outcome one = sample_run(&s, NULL, plan.microbatches, 4);
    draw_layouts(&d, one.module, &plan);
    if (getenv("SENNIT_SHOW_DRAWS")) describe(model, seed, &plan);
    outcome many = sample_run(&s, &plan, plan.microbatches, 4);
    const char *where;
    double worst = outcome_difference(&many, &one, &where);
    if (!(worst <= tolerance)) {
        describe(model, seed, &plan);
        fail_msg("%s differs by %.2g", where, worst);
    }
    outcome_free(&one);
    outcome_free(&many);
    forget(&plan);
    sample_close(&s);
    return true;
}

static void test_draws(void **state) {
    (void)state;
    for (int m = 0; m < BUNDLED; m++)
        for (uint64_t seed = 1; seed <= 6; seed++) assert_true(compare_draw(models[m], seed));
}

int main(int argc, char **argv) {
    if (argc > 2) {
        int first = atoi(argv[1]), count = atoi(argv[2]), done = 0;
        for (int seed = first; seed < first + count; seed++)
            for (int m = 0; m < MODELS; m++) done += compare_draw(models[m], (uint64_t)seed);
        printf("%d random plans agree with one device\n", done);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_draws)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
