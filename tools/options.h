// Commands of `sennit` and their options, from commands.def and options.def.
#pragma once
#include "base/diag.h"
#include "base/options.h"

typedef enum sn_command {
#define SN_COMMAND(suffix, ...) SN_COMMAND_##suffix,
#include "tools/commands.def"
#undef SN_COMMAND
    SN_COMMAND_COUNT
} sn_command;

// Each runs a command whose line has been parsed, and returns an exit status of its own: what a run ended with, 2 for a
// wrong command line, else 0. With an error among the diagnostics, which are printed after it, the status is 1.
#define SN_COMMAND(suffix, name, ...) int sn_cmd_##name(const sn_options *options, sn_diags *diags);
#include "tools/commands.def"
#undef SN_COMMAND

extern const sn_option_spec sn_option_table[];
extern const size_t sn_option_table_count;

// Parses a command's line. False: the command is over and *status is its exit status (--help, or a wrong line). Free
// `options` in either case.
bool sn_command_parse(sn_command command, int argc, char **argv, sn_options *options, int *status);
const char *sn_command_name(sn_command command);
const char *sn_command_summary(sn_command command);
