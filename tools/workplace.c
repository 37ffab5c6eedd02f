#include "tools/workplace.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sn_workplace_make(sn_diags *diags) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    char *folder = sn_arena_printf(&diags->arena, "%s/sennit-XXXXXX", parent);
    if (mkdtemp(folder)) return folder;
    sn_error(diags, "E0703", parent, "name another place in TMPDIR", "no temporary folder can be made");
    return NULL;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void sn_workplace_remove(const char *folder) {
    enum { OPEN_FOLDERS = 8 };
    if (folder) nftw(folder, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}
