// The `sennit` command: picks a subcommand from the table and runs it.
#include "tools/options.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int (*const commands[])(const sn_options *, sn_diags *) = {
#define SN_COMMAND(suffix, name, ...) sn_cmd_##name,
#include "tools/commands.def"
#undef SN_COMMAND
};

// Whether all that was printed has reached its reader.
static bool is_written(const sn_options *options) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    fprintf(stderr, "%s: what it prints cannot be written: %s\n  help: is the disk full?\n", options->program,
            strerror(errno));
    return false;
}

static int run(sn_command command, int argc, char **argv) {
    sn_options options;
    sn_diags diags = {0};
    int status = 0;
    if (sn_command_parse(command, argc, argv, &options, &status)) {
        status = commands[command](&options, &diags);
        sn_diags_print(&diags, 0, sn_options_has(&options, "remarks"), stderr);
        if (diags.errors) status = 1;
    }
    if (!status && !is_written(&options)) status = 1;
    sn_diags_free(&diags);
    sn_options_free(&options);
    return status;
}

static void print_help(FILE *out) {
    fputs("sennit compiles a forward ONNX model into a distributed training executable.\n\n"
          "sennit COMMAND [options]\n",
          out);
    for (int i = 0; i < SN_COMMAND_COUNT; i++) fprintf(out, "  %-12s%s\n", sn_command_name(i), sn_command_summary(i));
    fputs("\n`sennit COMMAND --help` lists a command's options; `sennit --version` prints the version.\n", out);
}

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    signal(SIGXFSZ, SIG_IGN); // a write beyond the limit on files fails, as on a full disk
    if (strcmp(word, "--version") == 0) {
        puts("sennit " SENNIT_VERSION);
        return 0;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help(stdout);
        return 0;
    }
    sn_suggestion close = {0};
    for (int i = 0; i < SN_COMMAND_COUNT; i++) {
        if (strcmp(word, sn_command_name(i)) == 0) return run(i, argc - 1, argv + 1);
        sn_suggest(&close, word, sn_command_name(i));
    }
    if (!word[0])
        print_help(stderr);
    else if (close.best)
        fprintf(stderr, "sennit: unknown command '%s'; did you mean '%s'?\n", word, close.best);
    else
        fprintf(stderr, "sennit: unknown command '%s'\n  help: `sennit --help` lists the commands\n", word);
    return 2;
}
