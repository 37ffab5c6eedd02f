#include "passes/plugin.h"

#include "passes/plugin_guard.h"
#include "passes/plugin_host.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

typedef struct plugin_pass {
    const char *path;
    const sennit_pass *theirs;
} plugin_pass;

typedef struct plugin_costs {
    const char *path;
    const sennit_cost_model *theirs; // NULL after an answer that is no time
} plugin_costs;

struct sn_plugins {
    sn_arena arena;
    SN_VEC(void *) objects; // as dlopen knows them
    SN_VEC(sn_pass *) passes;
    plugin_costs *costs; // NULL: no plug-in has some
};

sn_plugins *sn_plugins_new(void) {
    return sn_alloc(sizeof(sn_plugins));
}

void sn_plugins_free(sn_plugins *plugins) {
    if (!plugins) return;
    sn_vec_free(&plugins->objects);
    sn_vec_free(&plugins->passes);
    sn_arena_free(&plugins->arena);
    sn_free(plugins);
}

const sn_pass *sn_plugins_pass(const sn_plugins *plugins, const char *name) {
    for (size_t i = 0; i < plugins->passes.count; i++)
        if (strcmp(plugins->passes.data[i]->name, name) == 0) return plugins->passes.data[i];
    return NULL;
}

size_t sn_plugins_pass_count(const sn_plugins *plugins) {
    return plugins->passes.count;
}

const sn_pass *sn_plugins_pass_at(const sn_plugins *plugins, size_t index) {
    return plugins->passes.data[index];
}

// One answer that is no time is enough to say so and to ask no more.
static bool are_times(plugin_costs *costs, const double *seconds, size_t count, sn_diags *diags) {
    for (size_t i = 0; i < count; i++) {
        if (seconds[i] >= 0 && seconds[i] <= SENNIT_MAX_SECONDS) continue;
        char number[32];
        snprintf(number, sizeof number, "%g", seconds[i]);
        sn_error(diags, "E0827", costs->path,
                 "report it to the plug-in's author; include/sennit/plugin.h says what an answer is",
                 "the plug-in's cost model answered %s seconds: what it may answer is finite, 0 to %g",
                 isnan(seconds[i]) ? "NaN" : number, SENNIT_MAX_SECONDS);
        costs->theirs = NULL;
        return false;
    }
    return true;
}

bool sn_plugins_cost_ops(const sn_plugins *plugins, const sennit_cost_query *queries, size_t count, double *seconds,
                         sn_diags *diags) {
    plugin_costs *costs = plugins ? plugins->costs : NULL;
    if (!costs || !costs->theirs || !costs->theirs->ops) return false;
    sn_plugin_enter(costs->path, "answers what ops cost");
    costs->theirs->ops(queries, count, seconds);
    sn_plugin_leave();
    return are_times(costs, seconds, count, diags);
}

bool sn_plugins_cost_collectives(const sn_plugins *plugins, const sennit_collective_query *queries, size_t count,
                                 double *seconds, sn_diags *diags) {
    plugin_costs *costs = plugins ? plugins->costs : NULL;
    if (!costs || !costs->theirs || !costs->theirs->collectives) return false;
    sn_plugin_enter(costs->path, "answers what collectives cost");
    costs->theirs->collectives(queries, count, seconds);
    sn_plugin_leave();
    return are_times(costs, seconds, count, diags);
}

static void run(sn_module *module, sn_pass_context *context) {
    const plugin_pass *pass = context->pass->user;
    const sennit_pass *theirs = pass->theirs;
    sennit_host host = sn_plugin_host(context);
    sn_plugin_enter(pass->path, "runs its pass");
    int status = theirs->run(&host, sn_plugin_module(module), context->arguments);
    sn_plugin_leave();
    if (status != 0)
        sn_error(context->diags, "E0824", NULL, "report it to the plug-in's author, or leave the pass out of --passes",
                 "the plug-in pass %s failed with status %d", theirs->name, status);
}

// Names appear in pipelines, in file names of dumps and in the text of the IR.
static bool is_pass_name(const char *name) {
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    return name && strspn(name, legal) == strlen(name) && strlen(name) < 64 && strcspn(name, "0123456789-") > 0;
}

static const char *add_pass(sn_plugins *plugins, const char *path, const sennit_pass *theirs) {
    const unsigned forms = SENNIT_FORM_GRAPH | SENNIT_FORM_DIST | SENNIT_FORM_SCHED;
    if (theirs->size < sizeof *theirs) return "the table of a pass is too small";
    if (!is_pass_name(theirs->name)) return "a pass has no legal name";
    if (sn_pass_find(plugins, theirs->name)) return "a pass has the name of another";
    if (!theirs->run) return "a pass has no function";
    if (!theirs->forms || theirs->forms & ~forms) return "a pass states no legal forms";
    plugin_pass *pass = SN_NEW(&plugins->arena, plugin_pass);
    *pass = (plugin_pass){path, theirs};
    sn_pass *ours = SN_NEW(&plugins->arena, sn_pass);
    *ours = (sn_pass){.name = theirs->name,
                      .summary = theirs->summary ? theirs->summary : "",
                      .arguments = "as the plug-in says",
                      .forms = theirs->forms,
                      .result = theirs->forms & SENNIT_FORM_GRAPH  ? SN_FORM_GRAPH
                                : theirs->forms & SENNIT_FORM_DIST ? SN_FORM_DIST
                                                                   : SN_FORM_SCHED,
                      .run = run,
                      .user = pass};
    sn_vec_push(&plugins->passes, ours);
    return NULL;
}
_Static_assert(SENNIT_FORM_GRAPH == 1 << SN_FORM_GRAPH && SENNIT_FORM_DIST == 1 << SN_FORM_DIST &&
                   SENNIT_FORM_SCHED == 1 << SN_FORM_SCHED,
               "forms are handed on as bits");

static const char *add_plugin(sn_plugins *plugins, const char *path, const sennit_plugin *plugin) {
    if (plugin->size < sizeof *plugin) return "its table is too small";
    if (plugin->n_passes && !plugin->passes) return "it counts passes but has none";
    for (size_t i = 0; i < plugin->n_passes; i++) {
        const char *wrong = add_pass(plugins, path, &plugin->passes[i]);
        if (wrong) return wrong;
    }
    const sennit_cost_model *costs = plugin->cost_model;
    if (!costs) return NULL;
    if (costs->size < sizeof *costs) return "the table of its cost model is too small";
    plugins->costs = SN_NEW(&plugins->arena, plugin_costs);
    *plugins->costs = (plugin_costs){path, costs};
    return NULL;
}

bool sn_plugins_load(sn_plugins *plugins, const char *path, sn_diags *diags) {
    // a path without a slash means the file here, not one on the library path
    const char *where = sn_arena_printf(&plugins->arena, "%s%s", strchr(path, '/') ? "" : "./", path);
    sn_plugin_enter(where, "loads");
    void *object = dlopen(where, RTLD_NOW | RTLD_LOCAL);
    sn_plugin_leave();
    if (!object) {
        sn_error(diags, "E0821", path, "build it as a shared library: samples/plugins/README.md",
                 "the plug-in does not load: %s", dlerror());
        return false;
    }
    for (size_t i = 0; i < plugins->objects.count; i++)
        if (plugins->objects.data[i] == object) return true;
    sn_vec_push(&plugins->objects, object);
    sennit_plugin_query_fn query;
    *(void **)&query = dlsym(object, SENNIT_PLUGIN_SYMBOL);
    if (!query) {
        sn_error(diags, "E0822", path, "export it: see sennit/plugin.h", "the plug-in lacks the symbol %s",
                 SENNIT_PLUGIN_SYMBOL);
        return false;
    }
    sn_plugin_enter(where, "loads");
    const sennit_plugin *plugin = query(SENNIT_PLUGIN_ABI);
    sn_plugin_leave();
    if (!plugin || plugin->abi != SENNIT_PLUGIN_ABI) {
        sn_error(diags, "E0823", path, "build it against this sennit's plugin.h",
                 "the plug-in is for ABI %u, this sennit has %u", plugin ? plugin->abi : 0, SENNIT_PLUGIN_ABI);
        return false;
    }
    const char *wrong = add_plugin(plugins, where, plugin);
    if (wrong)
        sn_error(diags, "E0824", path,
                 "build it against this version's include/sennit/plugin.h: samples/plugins/README.md",
                 "the plug-in cannot be used: %s", wrong);
    return !wrong;
}
