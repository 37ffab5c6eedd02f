// The `sennit` command: picks a subcommand from the table and runs it.
#include <stdio.h>

int main(void) {
    puts("sennit " SENNIT_VERSION);
    return 0;
}
