#include "tools/passes.h"

sn_pipeline_options sn_command_pipeline(const sn_options *options) {
    return (sn_pipeline_options){
        .pipeline = sn_options_text(options, "passes", NULL),
        .start_from = sn_options_text(options, "start-from", NULL),
        .stop_after = sn_options_text(options, "stop-after", NULL),
        .pass_limit = sn_options_int(options, "pass-limit", -1),
        .dump_ir = sn_options_text(options, "dump-ir", NULL),
        .dump_dir = sn_options_text(options, "dump-dir", NULL),
        .times = sn_options_has(options, "time-passes") ? stderr : NULL,
    };
}

sn_plugins *sn_command_plugins(const sn_options *options, sn_diags *diags) {
    sn_plugins *plugins = sn_plugins_new();
    bool fine = true;
    const char *path;
    for (size_t i = 0; (path = sn_options_item(options, "plugin", i)); i++)
        fine = sn_plugins_load(plugins, path, diags) && fine;
    if (fine) return plugins;
    sn_plugins_free(plugins);
    return NULL;
}
