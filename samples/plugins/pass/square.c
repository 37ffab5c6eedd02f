/* A pass in a plug-in: pow(x, 2) becomes mul(x, x). */
#include <sennit/plugin.h>

#include <stdio.h>
#include <string.h>

/* x when the op is pow(x, 2); else NULL. */
static sennit_value *squared(const sennit_host *host, sennit_op *op) {
    double exponent;
    if (strcmp(host->op_name(op), "pow") != 0) return NULL;
    if (!host->value_number(host->operand(op, 1), &exponent) || exponent != 2) return NULL;
    return host->operand(op, 0);
}

static int run(const sennit_host *host, sennit_module *module, const char *arguments) {
    size_t count = 0;
    for (size_t i = 0; i < host->func_count(module); i++) {
        for (sennit_op *op = host->first_op(host->func(module, i)), *next; op; op = next) {
            next = host->next_op(op);
            sennit_value *x = squared(host, op);
            if (!x) continue;
            sennit_value *operands[2] = {x, x};
            sennit_op *product = host->insert(host, op, "mul", 2, operands, 0, NULL, NULL);
            if (!product || !host->replace(host, host->result(op, 0), host->result(product, 0))) return 1;
            if (!host->erase(host, op)) return 1;
            count++;
        }
    }
    char text[100];
    snprintf(text, sizeof text, "%zu squares%s%s", count, arguments[0] ? "; arguments: " : "", arguments);
    host->report(host, SENNIT_REMARK, NULL, text);
    return 0;
}

static const sennit_pass passes[] = {
    {.size = sizeof(sennit_pass),
     .name = "square",
     .summary = "pow(x, 2) becomes mul(x, x)",
     .forms = SENNIT_FORM_GRAPH,
     .run = run},
};

const sennit_plugin *sennit_plugin_query(uint32_t host_abi) {
    static const sennit_plugin plugin = {.size = sizeof(sennit_plugin),
                                         .abi = SENNIT_PLUGIN_ABI,
                                         .name = "square",
                                         .version = "1",
                                         .n_passes = sizeof passes / sizeof *passes,
                                         .passes = passes};
    return host_abi == SENNIT_PLUGIN_ABI ? &plugin : NULL;
}
