// `sennit opt`: runs passes on a module in text form, for tests and for people who write passes.
#include "ir/parse.h"
#include "ir/print.h"
#include "tools/passes.h"

#include <string.h>

static void list_pass(const sn_pass *pass) {
    printf("  %-20s %s\n", pass->name, pass->summary);
    if (pass->arguments) printf("  %-20s   {%s}\n", "", pass->arguments);
}

static void list_passes(const sn_plugins *plugins) {
    for (int i = 0; i < sn_pass_count; i++) list_pass(sn_pass_table[i]);
    for (size_t i = 0; i < sn_plugins_pass_count(plugins); i++) list_pass(sn_plugins_pass_at(plugins, i));
}

// To -o FILE, whose large constants go to FILE.bin beside it, or to stdout, where they are written out.
static void write_result(const sn_options *options, sn_module *module, sn_diags *diags) {
    const char *path = sn_options_text(options, "output", "-");
    if (strcmp(path, "-") == 0) {
        sn_str text = {0};
        sn_print(&text, module, NULL);
        if (fwrite(sn_str_text(&text), 1, text.length, stdout) != text.length || fflush(stdout) != 0)
            sn_error(diags, "E0804", "stdout", "is the pipe closed or the disk full?", "the result cannot be written");
        sn_str_free(&text);
        return;
    }
    sn_constant_store store = {.path = sn_arena_printf(&diags->arena, "%s.bin", path)};
    sn_str text = {0};
    sn_print(&text, module, &store);
    sn_status status = sn_constant_store_close(&store);
    if (!status) status = sn_file_write(path, sn_str_text(&text), text.length);
    if (status)
        sn_error(diags, "E0804", "-o", "check the path, its permissions and the free space", "%s",
                 sn_status_message(status));
    sn_status_free(status);
    sn_str_free(&text);
}

static void opt(const sn_options *options, sn_plugins *plugins, sn_diags *diags) {
    sn_pass_context context = {.diags = diags, .plugins = plugins};
    sn_pipeline_options pipeline = sn_command_pipeline(options);
    if (sn_options_has(options, "print-pipeline")) {
        sn_passes_print(&context, &pipeline, stdout);
        return;
    }
    // on its own, `sennit opt` parses, verifies and prints
    if (!pipeline.pipeline && !pipeline.start_from && !pipeline.stop_after) pipeline.pipeline = "";
    if (options->arguments.count == 0) {
        sn_error(diags, "E0805", NULL, "sennit opt IN.sir --passes=A,B", "there is no input");
        return;
    }
    sn_module *module = sn_parse_file(options->arguments.data[0], diags);
    if (module && sn_passes_run(module, &context, &pipeline)) write_result(options, module, diags);
    sn_module_free(module);
}

int sn_cmd_opt(const sn_options *options, sn_diags *diags) {
    sn_plugins *plugins = sn_command_plugins(options, diags);
    if (plugins && sn_options_has(options, "list-passes"))
        list_passes(plugins);
    else if (plugins)
        opt(options, plugins, diags);
    sn_plugins_free(plugins);
    return 0;
}
