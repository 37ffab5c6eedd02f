#include "passes/partition/plan.h"

#include "base/map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_VERSION = 1, MOST_RANKS = 1 << 20 };

int sn_plan_ranks(const sn_plan *plan) {
    return (int)sn_mesh_ranks(&plan->mesh);
}

sn_plan sn_plan_data_parallel(int ranks, int microbatches) {
    sn_plan plan = {.microbatches = microbatches};
    plan.mesh.n_axes = 1;
    strcpy(plan.mesh.name[0], "dp");
    plan.mesh.size[0] = ranks;
    return plan;
}

json_t *sn_plan_to_json(const sn_plan *plan) {
    json_t *mesh = json_object();
    for (int i = 0; i < plan->mesh.n_axes; i++)
        json_object_set_new(mesh, plan->mesh.name[i], json_integer(plan->mesh.size[i]));
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, plan->model_hash);
    json_t *json = json_object();
    json_object_set_new(json, "version", json_integer(PLAN_VERSION));
    json_object_set_new(json, "model", json_string(hash));
    json_object_set_new(json, "mesh", mesh);
    json_object_set_new(json, "microbatches", json_integer(plan->microbatches));
    if (plan->predicted_step_seconds > 0)
        json_object_set_new(json, "predicted_step_seconds", json_real(plan->predicted_step_seconds));
    return json;
}

static bool read_mesh(const json_t *json, const char *subject, sn_diags *diags, sn_mesh *out) {
    const char *name;
    json_t *size;
    sn_mesh mesh = {0};
    int64_t ranks = 1;
    json_object_foreach((json_t *)(uintptr_t)json, name, size) {
        json_int_t n = json_integer_value(size);
        if (mesh.n_axes == SN_MAX_AXES || strlen(name) >= sizeof mesh.name[0] || n < 1 || (ranks *= n) > MOST_RANKS) {
            sn_error(diags, "E0401", subject, "write it as {\"dp\": 4}", "the plan's mesh axis '%s' is not usable",
                     name);
            return false;
        }
        strcpy(mesh.name[mesh.n_axes], name);
        mesh.size[mesh.n_axes++] = (int)n;
    }
    *out = mesh;
    return true;
}

bool sn_plan_from_json(const json_t *json, const char *subject, sn_diags *diags, sn_plan *out) {
    const json_t *mesh = json_object_get(json, "mesh");
    json_int_t version = json_integer_value(json_object_get(json, "version"));
    if (version != PLAN_VERSION || !json_is_object(mesh)) {
        sn_error(diags, "E0402", subject, "write a plan with `sennit compile` and edit that",
                 "this is not a plan of version %d", PLAN_VERSION);
        return false;
    }
    sn_plan plan = {.microbatches = 1};
    if (!read_mesh(mesh, subject, diags, &plan.mesh)) return false;
    const json_t *micro = json_object_get(json, "microbatches");
    if (micro) plan.microbatches = (int)json_integer_value(micro);
    if (plan.microbatches < 1) {
        sn_error(diags, "E0403", subject, NULL, "microbatches must be a positive integer");
        return false;
    }
    const char *hash = json_string_value(json_object_get(json, "model"));
    plan.model_hash = hash ? strtoull(hash, NULL, 16) : 0;
    plan.predicted_step_seconds = json_number_value(json_object_get(json, "predicted_step_seconds"));
    *out = plan;
    return true;
}

uint64_t sn_plan_hash(const sn_plan *plan) {
    json_t *json = sn_plan_to_json(plan);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = sn_hash_bytes(text, strlen(text), 0);
    free(text);
    json_decref(json);
    return hash;
}
