#include "passes/plugin.h"

#include "passes/plugin_host.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct sn_plugins {
    sn_arena arena;
    SN_VEC(sn_pass *) passes;
    const sennit_cost_model *cost_model;
};

sn_plugins *sn_plugins_new(void) {
    return sn_alloc(sizeof(sn_plugins));
}

void sn_plugins_free(sn_plugins *plugins) {
    if (!plugins) return;
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

const sennit_cost_model *sn_plugins_cost_model(const sn_plugins *plugins) {
    return plugins->cost_model;
}

static void run(sn_module *module, sn_pass_context *context) {
    const sennit_pass *theirs = context->pass->user;
    sennit_host host = sn_plugin_host(context);
    int status = theirs->run(&host, sn_plugin_module(module), context->arguments);
    if (status != 0)
        sn_error(context->diags, "E0824", NULL, "report it to the plug-in's author, or leave the pass out of --passes",
                 "the plug-in pass %s failed with status %d", theirs->name, status);
}

// Names appear in pipelines, in file names of dumps and in the text of the IR.
static bool is_pass_name(const char *name) {
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    return name && strspn(name, legal) == strlen(name) && strlen(name) < 64 && strcspn(name, "0123456789-") > 0;
}

static const char *add_pass(sn_plugins *plugins, const sennit_pass *theirs) {
    const unsigned forms = SENNIT_FORM_GRAPH | SENNIT_FORM_DIST | SENNIT_FORM_SCHED;
    if (theirs->size < sizeof *theirs) return "the table of a pass is too small";
    if (!is_pass_name(theirs->name)) return "a pass has no legal name";
    if (sn_pass_find(plugins, theirs->name)) return "a pass has the name of another";
    if (!theirs->run) return "a pass has no function";
    if (!theirs->forms || theirs->forms & ~forms) return "a pass states no legal forms";
    sn_pass *ours = SN_NEW(&plugins->arena, sn_pass);
    *ours = (sn_pass){.name = theirs->name,
                      .summary = theirs->summary ? theirs->summary : "",
                      .arguments = "as the plug-in says",
                      .forms = theirs->forms,
                      .result = theirs->forms & SENNIT_FORM_GRAPH  ? SN_FORM_GRAPH
                                : theirs->forms & SENNIT_FORM_DIST ? SN_FORM_DIST
                                                                   : SN_FORM_SCHED,
                      .run = run,
                      .user = (void *)theirs};
    sn_vec_push(&plugins->passes, ours);
    return NULL;
}
_Static_assert(SENNIT_FORM_GRAPH == 1 << SN_FORM_GRAPH && SENNIT_FORM_DIST == 1 << SN_FORM_DIST &&
                   SENNIT_FORM_SCHED == 1 << SN_FORM_SCHED,
               "forms are handed on as bits");

static const char *add_plugin(sn_plugins *plugins, const sennit_plugin *plugin) {
    if (plugin->size < sizeof *plugin) return "its table is too small";
    if (plugin->n_passes && !plugin->passes) return "it counts passes but has none";
    for (size_t i = 0; i < plugin->n_passes; i++) {
        const char *wrong = add_pass(plugins, &plugin->passes[i]);
        if (wrong) return wrong;
    }
    const sennit_cost_model *costs = plugin->cost_model;
    if (!costs) return NULL;
    if (costs->size < sizeof *costs) return "the table of its cost model is too small";
    plugins->cost_model = costs;
    return NULL;
}

// Loads it in a child first: what kills that would kill us. Returns the signal, or 0.
static int trial(const char *where) {
    pid_t child = fork();
    if (child == 0) {
        void *object = dlopen(where, RTLD_NOW | RTLD_LOCAL);
        sennit_plugin_query_fn query = NULL;
        if (object) *(void **)&query = dlsym(object, SENNIT_PLUGIN_SYMBOL);
        if (query) (void)query(SENNIT_PLUGIN_ABI);
        _exit(0);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

bool sn_plugins_load(sn_plugins *plugins, const char *path, sn_diags *diags) {
    // a path without a slash means the file here, not one on the library path
    const char *where = strchr(path, '/') ? path : sn_arena_printf(&plugins->arena, "./%s", path);
    int killed = trial(where);
    if (killed) {
        sn_error(diags, "E0832", path, "report it to the plug-in's author", "the plug-in crashes while it loads: %s",
                 strsignal(killed));
        return false;
    }
    void *object = dlopen(where, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        sn_error(diags, "E0821", path, "build it as a shared library: samples/plugins/README.md",
                 "the plug-in does not load: %s", dlerror());
        return false;
    }
    sennit_plugin_query_fn query;
    *(void **)&query = dlsym(object, SENNIT_PLUGIN_SYMBOL);
    if (!query) {
        sn_error(diags, "E0822", path, "export it: see sennit/plugin.h", "the plug-in lacks the symbol %s",
                 SENNIT_PLUGIN_SYMBOL);
        return false;
    }
    const sennit_plugin *plugin = query(SENNIT_PLUGIN_ABI);
    if (!plugin || plugin->abi != SENNIT_PLUGIN_ABI) {
        sn_error(diags, "E0823", path, "build it against this sennit's plugin.h",
                 "the plug-in is for ABI %u, this sennit has %u", plugin ? plugin->abi : 0, SENNIT_PLUGIN_ABI);
        return false;
    }
    const char *wrong = add_plugin(plugins, plugin);
    if (wrong)
        sn_error(diags, "E0824", path,
                 "build it against this version's include/sennit/plugin.h: samples/plugins/README.md",
                 "the plug-in cannot be used: %s", wrong);
    return !wrong;
}
