// `sennit prove`: the proof that every compilation makes, for an executable or a schedule that someone else wrote.
#include "backend/verify/verify.h"
#include "runtime/package.h"
#include "tools/options.h"
#include "tools/passes.h"

static sn_status read_schedules(const char *path, sn_arena *arena, sn_schedules *out) {
    sn_package package;
    sn_status none = sn_package_open(path, &package);
    if (!none) {
        sn_status status = sn_schedules_read(package.schedule.data, package.schedule.bytes, arena, out);
        sn_package_close(&package);
        return status;
    }
    sn_mapped_file file;
    sn_status status = sn_file_map(path, &file);
    if (!status && file.bytes && file.data[0] == '{') { // a schedule.json
        sn_status_free(none);
        status = sn_schedules_read((const char *)file.data, file.bytes, arena, out);
        sn_file_unmap(&file);
        return status;
    }
    if (!status) sn_file_unmap(&file);
    sn_status_free(status);
    return none;
}

static size_t count_instrs(const sn_schedules *all) {
    size_t count = 0;
    for (size_t c = 0; c < all->classes.count; c++) {
        const sn_schedule *s = &all->classes.items[c];
        for (size_t q = 0; q < s->sequences.count; q++) {
            for (size_t r = 0; r < s->sequences.items[q].runs.count; r++)
                count += s->programs.items[s->sequences.items[q].runs.items[r].program].instrs.count;
        }
    }
    return count;
}

static void prove(const char *path, sn_diags *diags) {
    sn_schedules all;
    sn_status status = read_schedules(path, &diags->arena, &all);
    if (status) {
        sn_error(diags, "E0510", path, "give an executable that `sennit compile` wrote, or its schedule.json", "%s",
                 sn_status_message(status));
        sn_status_free(status);
        return;
    }
    sn_findings findings = {0};
    sn_schedules_verify(&all, 0, &diags->arena, &findings);
    for (size_t i = 0; i < findings.count; i++)
        sn_error(diags, "E0511", path, "this is a bug of the compiler; please report it", "%s: %s",
                 sn_finding_name(findings.data[i].kind), findings.data[i].text);
    if (!findings.count)
        printf("%zu rank class%s, %zu instructions: accesses ordered, values live, collectives and transfers meet, "
               "nobody waits in vain\n",
               all.classes.count, all.classes.count == 1 ? "" : "es", count_instrs(&all));
    sn_vec_free(&findings);
}

int sn_cmd_prove(const sn_options *options, sn_diags *diags) {
    prove(options->arguments.data[0], diags);
    return 0;
}
