// Communication by layer: what one rank of each class sends and reduces in a step, grouped by where in the model the
// operator is that it came from.
#include "backend/package/report_page.h"
#include "base/alloc.h"
#include "base/map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *layer;
    int64_t count;
    double bytes, seconds;
    int64_t kinds[SN_INSTR_COUNT];
} entry;

// "/h.0/mlp/c_fc/MatMul" -> "/h.0": up to the first part with a number, else the first part.
static char *layer_of(const char *origin, sn_arena *arena) {
    const char *from = strchr(origin, '"'), *to = from ? strchr(from + 1, '"') : NULL;
    if (!to) return sn_arena_strdup(arena, "gradients and update");
    const char *part = from + 1, *end = NULL;
    while (part < to) {
        const char *next = part + 1 + strcspn(part + 1, "/\"");
        if (!end) end = next;
        if (strcspn(part, "0123456789") < (size_t)(next - part)) {
            end = next;
            break;
        }
        part = next;
    }
    return sn_arena_printf(arena, "%.*s", (int)(end - from - 1), from + 1);
}

static double bytes_of(const sn_instr *in) {
    if (in->kind == SN_INSTR_SEND || in->kind == SN_INSTR_RECV)
        return (double)in->transfer.count * (double)sn_dtype_bytes(in->transfer.dtype);
    return (double)in->collective.count * (double)sn_dtype_bytes(in->collective.dtype);
}

static void add_run(const sn_report *report, int64_t rank_class, const sn_sequence_run *run, sn_map *layers,
                    sn_arena *arena) {
    const sn_schedule *s = &report->schedules->classes.items[rank_class];
    const sn_program *program = &s->programs.items[run->program];
    const sn_price *prices = report->simulation->prices.of[rank_class][run->program];
    for (size_t i = 0; i < program->instrs.count; i++) {
        const sn_instr *in = &program->instrs.items[i];
        if (!sn_instr_is_collective(in->kind) && in->kind != SN_INSTR_SEND) continue;
        char *layer = layer_of(in->origin >= 0 ? s->origins.items[in->origin] : "", arena);
        entry *e = sn_map_get(layers, layer);
        if (!e) {
            e = SN_NEW(arena, entry);
            e->layer = layer;
            sn_map_put(layers, layer, e);
        }
        e->count++;
        e->kinds[in->kind]++;
        e->bytes += bytes_of(in);
        e->seconds += prices[i].seconds + prices[i].message;
    }
}

static int by_bytes(const void *a, const void *b) {
    const entry *x = ((const sn_map_entry *)a)->value, *y = ((const sn_map_entry *)b)->value;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void write_entry(const entry *e, double most, sn_str *out) {
    sn_str_puts(out, "<tr><td><code>");
    sn_report_escape(out, e->layer);
    sn_str_printf(out, "</code><td class=n>%" PRId64 "<td class=dim>", e->count);
    for (int k = 0, n = 0; k < SN_INSTR_COUNT; k++)
        if (e->kinds[k]) sn_str_printf(out, "%s%s", n++ ? ", " : "", sn_instr_name((sn_instr_kind)k));
    sn_str_puts(out, "<td class=n>");
    sn_str_bytes(out, e->bytes);
    sn_str_puts(out, "<td class=n>");
    sn_str_seconds(out, e->seconds);
    sn_str_printf(out, "<td class=bar><div style=\"width:%.1f%%\"></div>\n", most > 0 ? 100 * e->bytes / most : 0);
}

void sn_report_communication(const sn_report *report, sn_str *out) {
    enum { MOST_LAYERS = 40 };
    sn_map layers = {0};
    sn_arena arena = {0};
    for (size_t c = 0; c < report->schedules->classes.count; c++) {
        const sn_sequence *step = sn_schedule_sequence(&report->schedules->classes.items[c], "step");
        for (size_t r = 0; step && r < step->runs.count; r++)
            add_run(report, (int64_t)c, &step->runs.items[r], &layers, &arena);
    }
    sn_str_puts(out, "<h2>Communication by layer</h2>");
    if (!layers.count) {
        sn_str_puts(out, "<p class=dim>None: one rank does everything.</p>\n");
    } else {
        qsort(layers.entries, layers.count, sizeof *layers.entries, by_bytes);
        const entry *first = layers.entries[0].value;
        sn_str_puts(out, "<p class=dim>Of one rank of each class in a step; seconds are predicted, without waiting."
                         "</p><table><tr><th>layer<th class=n>calls<th>kinds<th class=n>bytes<th class=n>time<th>\n");
        for (size_t i = 0; i < layers.count && i < MOST_LAYERS; i++)
            write_entry(layers.entries[i].value, first->bytes, out);
        sn_str_puts(out, "</table>\n");
        if (layers.count > MOST_LAYERS)
            sn_str_printf(out, "<p class=dim>and %zu layers with less</p>\n", layers.count - MOST_LAYERS);
    }
    sn_map_free(&layers);
    sn_arena_free(&arena);
}
