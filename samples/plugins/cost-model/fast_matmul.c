/* A cost model in a plug-in: matrix products at twice the speed that the built-in model expects. Whatever it leaves in
 * `seconds` as it found it keeps the built-in answer. */
#include <sennit/plugin.h>

#include <string.h>

static void ops(const sennit_cost_query *queries, size_t count, double *seconds) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(queries[i].op, "matmul") == 0) seconds[i] /= 2;
}

const sennit_plugin *sennit_plugin_query(uint32_t host_abi) {
    static const sennit_cost_model model = {.size = sizeof(sennit_cost_model), .name = "fast-matmul", .ops = ops};
    static const sennit_plugin plugin = {.size = sizeof(sennit_plugin),
                                         .abi = SENNIT_PLUGIN_ABI,
                                         .name = "fast-matmul",
                                         .version = "1",
                                         .cost_model = &model};
    return host_abi == SENNIT_PLUGIN_ABI ? &plugin : NULL;
}
