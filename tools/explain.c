// `sennit explain`: why a plan is as it is.
#include "passes/partition/explain.h"
#include "tools/passes.h"

#include <stdio.h>

static bool explain(const sn_options *options, sn_diags *diags) {
    const char *path = options->arguments.data[0], *node = sn_options_text(options, "node", NULL);
    json_t *plan = sn_plan_load(path, diags);
    if (!plan) return false;
    sn_plan checked;
    sn_str text = {0};
    bool good = sn_plan_from_json(plan, path, diags, &diags->arena, &checked);
    if (good && node)
        good = sn_plan_explain_node(plan, node, diags, &text);
    else if (good)
        good = sn_plan_explain(plan, path, diags, &text);
    if (good && sn_options_has(options, "json") && !node) {
        json_dumpf(json_object_get(plan, "explanation"), stdout, JSON_INDENT(2));
        putchar('\n');
    } else if (good && node && sn_options_has(options, "json")) {
        json_t *answer = json_pack("{s:s, s:s}", "node", node, "text", sn_str_text(&text));
        json_dumpf(answer, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(answer);
    } else if (good) {
        fputs(sn_str_text(&text), stdout);
    }
    sn_str_free(&text);
    json_decref(plan);
    return good;
}

int sn_cmd_explain(const sn_options *options, sn_diags *diags) {
    (void)explain(options, diags);
    return 0;
}
