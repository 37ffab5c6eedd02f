#include "passes/plugin.h"

#include <string.h>

struct sn_plugins {
    SN_VEC(sn_pass) passes;
};

const sn_pass *sn_plugins_pass(const sn_plugins *plugins, const char *name) {
    for (size_t i = 0; i < plugins->passes.count; i++)
        if (strcmp(plugins->passes.data[i].name, name) == 0) return &plugins->passes.data[i];
    return NULL;
}
