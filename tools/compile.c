// `sennit compile`: a train executable for `mpirun -n RANKS ./NAME`.
#include "tools/passes.h"
#include "tools/plan_options.h"
#include "tools/training.h"

#include <string.h>

static const char *default_output(const sn_options *options, sn_arena *arena) {
    const char *model = options->arguments.data[0], *slash = strrchr(model, '/'), *name = slash ? slash + 1 : model;
    size_t length = strlen(name);
    if (sn_ends_with(name, ".onnx")) length -= strlen(".onnx");
    return sn_arena_printf(arena, "%.*s", (int)length, name);
}

int sn_cmd_compile(const sn_options *options, sn_diags *diags) {
    sn_train_build build = {.output = sn_options_text(options, "output", default_output(options, &diags->arena))};
    if ((options = sn_plan_options(options, false, diags))) sn_train_compile(options, &build, diags);
    return 0;
}
