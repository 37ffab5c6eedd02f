/* Plug-ins that are wrong in one way each, chosen by -DBROKEN_…: the host must say so and go on. */
#include <sennit/plugin.h>

#include <math.h>
#include <stdlib.h>

static int run(const sennit_host *host, sennit_module *module, const char *arguments) {
    sennit_op *op = host->first_op(host->func(module, 0));
    sennit_value *operands[2] = {host->operand(op, 0), host->operand(op, 0)};
    (void)arguments;
    (void)operands;
#if defined(BROKEN_OPERATOR)
    host->insert(host, op, "frobnicate", 2, operands, 0, NULL, NULL);
#elif defined(BROKEN_OPERANDS)
    host->insert(host, op, "mul", 1, operands, 0, NULL, NULL);
#elif defined(BROKEN_ERASE)
    host->erase(host, op);
#elif defined(BROKEN_ORDER)
    /* reads a value before it is defined */
    operands[0] = operands[1] = host->result(host->next_op(op), 0);
    sennit_op *early = host->insert(host, op, "mul", 2, operands, 0, NULL, NULL);
    (void)early;
#elif defined(BROKEN_STATUS)
    return 3;
#elif defined(BROKEN_ABORT)
    abort();
#endif
    return 0;
}

#if !defined(BROKEN_COST)
#define BROKEN_COST -NAN
#endif

static void ops(const sennit_cost_query *queries, size_t count, double *seconds) {
    (void)queries;
    for (size_t i = 0; i < count; i++) seconds[i] = BROKEN_COST;
#if defined(BROKEN_EXIT)
    exit(0);
#elif defined(BROKEN_CRASH)
    *(volatile int *)0 = 0;
#endif
}

static void collectives(const sennit_collective_query *queries, size_t count, double *seconds) {
    (void)queries;
    for (size_t i = 0; i < count; i++) seconds[i] = BROKEN_COST;
}

#if defined(BROKEN_NAME)
#define NAME "dce"
#else
#define NAME "broken"
#endif

static const sennit_pass passes[] = {
    {.size = sizeof(sennit_pass), .name = NAME, .summary = "is broken", .forms = SENNIT_FORM_GRAPH, .run = run},
};
static const sennit_cost_model model = {
    .size = sizeof(sennit_cost_model), .name = "broken", .ops = ops, .collectives = collectives};

#if defined(BROKEN_SYMBOL)
#define sennit_plugin_query another_name
const sennit_plugin *another_name(uint32_t host_abi);
#endif

#if defined(BROKEN_INIT)
static __attribute__((constructor)) void crash(void) {
    *(volatile int *)0 = 0;
}
#elif defined(BROKEN_INIT_EXIT)
static __attribute__((constructor)) void leave(void) {
    exit(0);
}
#endif

const sennit_plugin *sennit_plugin_query(uint32_t host_abi) {
#if defined(BROKEN_QUERY)
    *(volatile int *)0 = 0;
#endif
    static const sennit_plugin plugin = {
        .size = sizeof(sennit_plugin),
#if defined(BROKEN_ABI)
        .abi = SENNIT_PLUGIN_ABI + 1,
#else
        .abi = SENNIT_PLUGIN_ABI,
#endif
        .name = "broken",
        .version = "1",
        .n_passes = 1,
        .passes = passes,
        .cost_model = &model
    };
#if defined(BROKEN_NULL)
    return (void)plugin, host_abi == 0 ? &plugin : NULL;
#else
    (void)host_abi;
    return &plugin;
#endif
}
