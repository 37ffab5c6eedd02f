// Why a plan is as it is: the part of plan.json that people read and no pass does ("explanation"), and its text.
#pragma once
#include "base/str.h"
#include "passes/partition/search.h"

// Another answer of the search, under other circumstances.
typedef struct sn_what_if {
    const char *what; // "twice the memory"
    bool feasible;
    sn_candidate best;
} sn_what_if;

// A new reference.
json_t *sn_explanation(sn_search *search, const sn_search_request *request, const sn_search_result *result, int n,
                       const sn_what_if *what_ifs);
// Whether the explanation of a plan can be shown: E0446 where there is none, E0454 names the field that is not usable.
bool sn_explanation_check(const json_t *plan, const char *subject, sn_diags *diags);
// What of the plan was edited since it was explained ("mesh, microbatches"); NULL: nothing, or the explanation does not
// say what it is of. The text is in the arena.
const char *sn_explanation_edits(const json_t *explanation, const sn_plan *plan, sn_arena *arena);
// One screen: outline, stages, memory by class, step, bound.
void sn_plan_summary(const json_t *plan, sn_str *out);
// What binds, runners-up, why not another axis size, what more would buy. False when sn_explanation_check
// is.
bool sn_plan_explain(const json_t *plan, const char *subject, sn_diags *diags, sn_str *out);
// One ONNX node or parameter: its stage, its layout, how its block is cut and what that takes; a new reference. NULL
// with E0447 when it is not in the plan. And the text of that.
json_t *sn_plan_find_node(const json_t *plan, const char *name, sn_diags *diags);
void sn_plan_explain_node(const json_t *node, sn_str *out);
// The certificate that nothing fits (E0441): by how much the closest candidate misses, what takes the memory of its
// fullest device, and of rematerialisation and ZeRO what each saves there, or would where --mesh rules it out.
void sn_report_infeasible(const sn_search_request *request, const sn_search_result *result, sn_diags *diags);
