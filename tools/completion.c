// `sennit completion bash`: a completion script made from the tables, to be sourced by a shell.
#include "tools/options.h"

#include <string.h>

static void print_words(uint32_t command, FILE *out) {
    for (size_t i = 0; i < sn_option_table_count; i++)
        if (sn_option_table[i].commands & command) fprintf(out, " --%s", sn_option_table[i].name);
}

int sn_cmd_completion(const sn_options *options, sn_diags *diags) {
    (void)diags;
    if (strcmp(options->arguments.data[0], "bash") != 0) {
        fprintf(stderr, "sennit completion: no completion for '%s'\n  help: `sennit completion bash`\n",
                options->arguments.data[0]);
        return 2;
    }
    printf("# eval \"$(sennit completion bash)\"\n_sennit() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} words\n    case $COMP_CWORD in\n    1) words='");
    for (int i = 0; i < SN_COMMAND_COUNT; i++) printf("%s%s", i ? " " : "", sn_command_name(i));
    printf(" --help --version' ;;\n    *) case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < SN_COMMAND_COUNT; i++) {
        printf("        %s) words='--help", sn_command_name(i));
        print_words(1u << i, stdout);
        printf("' ;;\n");
    }
    printf("        esac ;;\n    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    [[ $word == -* || $COMP_CWORD == 1 ]] || COMPREPLY+=($(compgen -f -- \"$word\"))\n}\n"
           "complete -F _sennit sennit\n");
    return 0;
}
