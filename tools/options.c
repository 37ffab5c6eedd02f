#include "tools/options.h"

#include "runtime/options.h"

enum {
#define SN_COMMAND(suffix, ...) suffix = 1 << SN_COMMAND_##suffix,
#include "tools/commands.def"
#undef SN_COMMAND
    BUILD = TRAIN | COMPILE | VERIFY,
    // Options of a run: `compile` fixes them in the executable, whose command line overrides them. An executable alone
    // takes those of forward runs: `sennit eval` has its own.
    RUN_TRAINING = BUILD,
    RUN_ANY = BUILD | EVAL,
    RUN_FORWARD = 0,
};

// The types of the run options' table in terms of the parser's.
#define RUN_TYPE_TEXT    SN_OPTION_TEXT
#define RUN_TYPE_CHOICE  SN_OPTION_CHOICE
#define RUN_TYPE_COUNT   SN_OPTION_NATURAL
#define RUN_TYPE_INTEGER SN_OPTION_INT
#define RUN_TYPE_REAL    SN_OPTION_NUMBER
#define RUN_TYPE_FLAG    SN_OPTION_FLAG

const sn_option_spec sn_option_table[] = {
#define SN_OPTION(name, letter, type, value, commands, help) {name, letter, SN_OPTION_##type, value, commands, help},
#include "tools/options.def"
#undef SN_OPTION
#define X(member, spelling, type, runs, otherwise, value, help) {spelling, 0, RUN_TYPE_##type, value, RUN_##runs, help},
    SN_RUN_OPTIONS(X)
#undef X
};
const size_t sn_option_table_count = sizeof sn_option_table / sizeof *sn_option_table;

static const struct command_info {
    const char *name, *program, *usage, *summary;
    int min, max;
} infos[] = {
#define SN_COMMAND(suffix, name, usage, min, max, summary) {#name, "sennit " #name, usage, summary, min, max},
#include "tools/commands.def"
#undef SN_COMMAND
};

const char *sn_command_name(sn_command command) {
    return infos[command].name;
}
const char *sn_command_summary(sn_command command) {
    return infos[command].summary;
}

bool sn_command_parse(sn_command command, int argc, char **argv, sn_options *options, int *status) {
    const struct command_info *info = &infos[command];
    *options = (sn_options){.program = info->program,
                            .usage = info->usage,
                            .summary = info->summary,
                            .specs = sn_option_table,
                            .n_specs = sn_option_table_count,
                            .command = 1u << command,
                            .min_arguments = info->min,
                            .max_arguments = info->max};
    if (!sn_options_parse(options, argc, argv, stderr)) {
        *status = 2;
        return false;
    }
    if (options->help) {
        sn_options_print_help(options, stdout);
        *status = 0;
        return false;
    }
    return true;
}
