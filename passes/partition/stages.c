#include "passes/partition/stages.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

static const char *const part_names[SN_PART_COUNT] = {
    [SN_PART_TIE] = "tie",
    [SN_PART_FORWARD] = "forward",
    [SN_PART_BACKWARD] = "backward",
    [SN_PART_BACKWARD_INPUT] = "backward_input",
    [SN_PART_BACKWARD_WEIGHT] = "backward_weight",
    [SN_PART_UPDATE] = "update",
    [SN_PART_GRADIENTS] = "gradients",
    [SN_PART_EVAL] = "eval",
    [SN_PART_PREDICT] = "predict",
};

const char *sn_stage_part_name(sn_stage_part part) {
    return part_names[part];
}

sn_phase sn_stage_part_phase(sn_stage_part part) {
    switch (part) {
    case SN_PART_BACKWARD:
    case SN_PART_BACKWARD_INPUT:
    case SN_PART_BACKWARD_WEIGHT:
        return SN_PHASE_BACKWARD;
    case SN_PART_UPDATE:
    case SN_PART_GRADIENTS:
        return SN_PHASE_UPDATE;
    default:
        return SN_PHASE_FORWARD;
    }
}

bool sn_stage_of(const sn_func *func, int *stage, sn_stage_part *part) {
    int number, length = 0;
    if (func->is_body || sscanf(func->name, "stage%d.%n", &number, &length) != 1 || !length || number < 0) return false;
    for (int i = 0; i < SN_PART_COUNT; i++) {
        if (strcmp(func->name + length, part_names[i]) != 0) continue;
        *stage = number;
        *part = (sn_stage_part)i;
        return true;
    }
    return false;
}

const sn_func *sn_stage_func(const sn_module *module, int stage, sn_stage_part part) {
    char name[64];
    snprintf(name, sizeof name, "stage%d.%s", stage, part_names[part]);
    return sn_module_func(module, name);
}

bool sn_module_has_stages(const sn_module *module) {
    int stage;
    sn_stage_part part;
    for (size_t i = 0; i < module->funcs.count; i++)
        if (sn_stage_of(module->funcs.data[i], &stage, &part)) return true;
    return false;
}

int sn_pipeline_ranks(const sn_module *module) {
    int axis = sn_mesh_axis(&module->mesh, "pp");
    return axis < 0 ? 1 : module->mesh.size[axis];
}

int sn_pipeline_rank_of(const sn_func *func) {
    int stage;
    sn_stage_part part;
    return sn_stage_of(func, &stage, &part) ? stage % sn_pipeline_ranks(func->module) : -1;
}

bool sn_is_kept_name(const char *name) {
    return sn_starts_with(name, "$keep.");
}

int sn_pipeline_rank_of_global(const sn_global *global) {
    for (size_t i = 0; i < global->value->uses.count; i++) {
        int rank = sn_pipeline_rank_of(global->value->uses.data[i].op->func);
        if (rank >= 0) return rank;
    }
    return 0;
}
