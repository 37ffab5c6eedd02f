// `sennit explain`: why a plan is as it is.
#include "passes/partition/explain.h"
#include "tools/passes.h"

#include <stdio.h>

static void print_json(const json_t *json) {
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    putchar('\n');
}

// The explanation is the search's, of the plan as it was found.
static void warn_of_edits(json_t *plan, const sn_plan *now, const char *path, sn_diags *diags) {
    json_t *x = json_object_get(plan, "explanation");
    const char *edits = sn_explanation_edits(x, now, &diags->arena);
    if (!edits) return;
    json_object_set_new(x, "edited", json_string(edits));
    sn_warning(diags, "W0446", path,
               "`sennit simulate` prices the plan as it is now; `sennit plan --mesh …` plans again within what --mesh "
               "names, and explains that",
               "the plan was edited since it was explained (%s): what is shown is of the plan before", edits);
}

static void explain_node(const sn_options *options, const json_t *plan, const char *name, sn_diags *diags) {
    json_t *node = sn_plan_find_node(plan, name, diags);
    sn_str text = {0};
    if (node && sn_options_has(options, "json")) {
        print_json(node);
    } else if (node) {
        sn_plan_explain_node(node, &text);
        fputs(sn_str_text(&text), stdout);
    }
    sn_str_free(&text);
    json_decref(node);
}

static void explain_plan(const sn_options *options, const json_t *plan, const char *path, sn_diags *diags) {
    sn_str text = {0};
    bool good = sn_plan_explain(plan, path, diags, &text);
    if (good && sn_options_has(options, "json"))
        print_json(json_object_get(plan, "explanation"));
    else if (good)
        fputs(sn_str_text(&text), stdout);
    sn_str_free(&text);
}

int sn_cmd_explain(const sn_options *options, sn_diags *diags) {
    const char *path = options->arguments.data[0], *node = sn_options_text(options, "node", NULL);
    json_t *plan = sn_plan_load(path, diags);
    sn_plan checked;
    if (plan && sn_plan_from_json(plan, path, diags, &diags->arena, &checked)) {
        warn_of_edits(plan, &checked, path, diags);
        if (node)
            explain_node(options, plan, node, diags);
        else
            explain_plan(options, plan, path, diags);
    }
    json_decref(plan);
    return 0;
}
