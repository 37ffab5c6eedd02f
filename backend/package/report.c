#include "backend/package/report.h"

#include "backend/package/report_page.h"
#include "base/alloc.h"
#include "runtime/operands.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char head[] =
    "<!doctype html><html lang=en><head><meta charset=utf-8>"
    "<meta name=viewport content=\"width=device-width\"><title>sennit report</title><style>\n"
    ":root{color-scheme:light dark;--ink:#1d2430;--dim:#5c6675;--line:#d8dde5;--paper:#fff;--empty:#f1f3f6;"
    "--f:#4c78a8;--b:#d9772f;--u:#4d9145;--c:#8a4fa3;--w:#b08d2e;--m0:#4c78a8;--m1:#8fb3d9;--m2:#4d9145;--m3:#d9772f;--"
    "m4:#f2c089}"
    "\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e3e7ee;--dim:#98a2b3;--line:#343c49;--paper:#171b22;"
    "--empty:#20262f;--f:#5b93cc;--b:#e08748;--u:#63ad5b;--c:#b07cc6;--w:#c4a547;--m0:#5b93cc;--m1:#35597f;--m2:#"
    "63ad5b;"
    "--m3:#e08748;--m4:#7d5334}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;margin:2rem auto;"
    "padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2.2rem}table{border-collapse:collapse}\n"
    "td,th{padding:.2rem 1.1rem .2rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th,.dim{color:var(--dim);font-weight:500}\n"
    "td.bar{width:14rem;vertical-align:middle;padding-right:0}td.bar div{background:var(--c);height:.6rem}\n"
    "code{font:13px ui-monospace,monospace}svg{width:100%;height:auto;display:block}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg text.small{font-size:10px;fill:var(--dim)}"
    "svg text.on{fill:#fff;font-size:11px}svg line{stroke:var(--line)}\n"
    ".f{fill:var(--f)}.b{fill:var(--b)}.u{fill:var(--u)}.w{fill:var(--w)}.c{fill:var(--c)}.wait{fill:var(--empty)}\n"
    ".m0{fill:var(--m0)}.m1{fill:var(--m1)}.m2{fill:var(--m2)}.m3{fill:var(--m3)}.m4{fill:var(--m4)}\n"
    ".addresses rect{stroke:var(--paper);stroke-width:.4}.key{display:inline-block;width:.8em;height:.8em;"
    "margin:0 .35em 0 1em}\n"
    "summary{cursor:pointer}.nowrap{white-space:nowrap}.big{font-size:1.15rem}\n"
    "</style></head><body>\n";

void sn_report_escape(sn_str *out, const char *text) {
    for (; *text; text++) {
        if (*text == '<')
            sn_str_puts(out, "&lt;");
        else if (*text == '&')
            sn_str_puts(out, "&amp;");
        else if (*text == '"')
            sn_str_puts(out, "&quot;");
        else
            sn_str_putc(out, *text);
    }
}

double sn_report_x(double at, double seconds) {
    return SN_REPORT_LEFT + (seconds > 0 ? at / seconds : 0) * (SN_REPORT_WIDTH - SN_REPORT_LEFT);
}

// 1, 2 or 5 times a power of ten: at most ten of them make up `seconds`.
static double tick_of(double seconds) {
    double tick = pow(10, floor(log10(seconds / 10)));
    return seconds <= 20 * tick ? 2 * tick : seconds <= 50 * tick ? 5 * tick : 10 * tick;
}

void sn_report_axis(sn_str *out, double y, double seconds) {
    double tick = seconds > 0 ? tick_of(seconds) : 1;
    sn_str_printf(out, "<line x1=%d x2=%d y1=\"%.1f\" y2=\"%.1f\" />", SN_REPORT_LEFT, SN_REPORT_WIDTH, y, y);
    for (int i = 0; i * tick <= seconds * (1 + 1e-9); i++) {
        double x = sn_report_x(i * tick, seconds);
        sn_str_printf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" />", x, x, y, y + 4);
        sn_str_printf(out, "<text class=small text-anchor=%s x=\"%.1f\" y=\"%.1f\">",
                      x > SN_REPORT_WIDTH - 20 ? "end" : "middle", x, y + 16);
        if (i)
            sn_str_seconds(out, i * tick);
        else
            sn_str_putc(out, '0');
        sn_str_puts(out, "</text>");
    }
    sn_str_putc(out, '\n');
}

static const char *const phase_names[] = {
    [SN_PHASE_FORWARD] = "forward", [SN_PHASE_BACKWARD] = "backward", [SN_PHASE_UPDATE] = "update"};
static const char *const phase_styles[] = {
    [SN_PHASE_FORWARD] = "f", [SN_PHASE_BACKWARD] = "b", [SN_PHASE_UPDATE] = "u"};

static void row(sn_str *out, const char *what) {
    sn_str_printf(out, "<tr><th>%s<td>", what);
}

static void write_stages(const sn_plan *plan, sn_str *out) {
    if (!plan->n_stages) return;
    row(out, "stages");
    for (int i = 0; i < plan->n_stages; i++) {
        sn_str_puts(out, i ? "<br>" : "");
        sn_str_printf(out, "%d from <code>", i);
        sn_report_escape(out, plan->stages[i].first[0] ? plan->stages[i].first : "the inputs");
        sn_str_printf(out, "</code>, rematerialisation: %s", sn_remat_name(plan->stages[i].remat));
    }
}

static void write_plan(const sn_report *report, sn_str *out) {
    const sn_plan *plan = report->plan;
    const sn_schedule *s = &report->schedules->classes.items[0];
    sn_str_puts(out, "<h2>Plan</h2><table>\n");
    row(out, "mesh");
    for (size_t i = 0; i < s->mesh.count; i++)
        sn_str_printf(out, "%s%s = %" PRId64, i ? ", " : "", s->mesh.items[i].name, s->mesh.items[i].size);
    sn_str_printf(out, ": %" PRId64 " ranks", s->ranks);
    row(out, "a step");
    sn_str_printf(out, "%" PRId64 " samples in %" PRId64 " micro-batches", s->step_samples, s->micro_batches);
    if (s->pipeline_axis >= 0) {
        row(out, "pipeline");
        sn_str_printf(out, "%s, chunks of a rank: %d", sn_pipeline_name(plan->schedule), plan->chunks);
    }
    row(out, "ZeRO");
    sn_str_printf(out, "%d", plan->zero);
    row(out, "rematerialisation");
    sn_str_puts(out, sn_remat_name(plan->remat));
    write_stages(plan, out);
    row(out, "kernels");
    sn_str_printf(out, "%zu\n</table>\n", s->kernels.count);
}

// The figures of the simulation, a row per rank class.
static void write_classes(const sn_report *report, sn_str *out) {
    const sn_replay *replay = &report->simulation->replay;
    sn_str_puts(out, "<h2>Rank classes</h2><p class=dim>Predicted on ");
    sn_report_escape(out, report->cluster);
    sn_str_puts(out, ", for the first rank of each class. Waiting is the bubble: for other ranks.</p><table><tr>"
                     "<th>class<th class=n>works<th class=n>communicates<th class=n>waits<th class=n>parameters"
                     "<th class=n>optimizer<th class=n>the rest<th class=n>arena\n");
    for (size_t c = 0, r = 0; c < report->schedules->classes.count; c++) {
        while (r < replay->n_ranks && replay->ranks[r].rank_class != (int64_t)c) r++;
        SN_CHECK(r < replay->n_ranks);
        sn_class_memory memory = sn_class_memory_of(&report->schedules->classes.items[c]);
        const double seconds[] = {replay->ranks[r].compute, replay->ranks[r].communication, replay->ranks[r].waiting};
        const int64_t bytes[] = {memory.role[SN_RESIDENT_PARAMETER], memory.role[SN_RESIDENT_MOMENT],
                                 memory.total - memory.role[SN_RESIDENT_PARAMETER] - memory.role[SN_RESIDENT_MOMENT],
                                 memory.total};
        sn_str_printf(out, "<tr><td>%zu", c);
        for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
            sn_str_puts(out, "<td class=n>");
            sn_str_seconds(out, seconds[i]);
        }
        for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
            sn_str_puts(out, "<td class=n>");
            sn_str_bytes(out, (double)bytes[i]);
        }
        sn_str_putc(out, '\n');
    }
    sn_str_puts(out, "</table>\n");
}

static void write_simulation(const sn_report *report, sn_str *out) {
    sn_str_puts(out, "<p class=big>A step is predicted to take <b>");
    sn_str_seconds(out, report->simulation->replay.seconds);
    sn_str_puts(out, "</b> on ");
    sn_report_escape(out, report->cluster);
    sn_str_puts(out, ".</p>\n");
    write_plan(report, out);
    write_classes(report, out);
    sn_report_timeline(report, out);
    sn_report_memory(report, out);
    sn_report_communication(report, out);
}

static void bytes_row(sn_str *out, const char *what, int64_t bytes) {
    sn_str_printf(out, "<tr><td>%s<td class=n>", what);
    sn_str_bytes(out, (double)bytes);
    sn_str_putc(out, '\n');
}

static void write_memory(const sn_schedule *s, sn_str *out) {
    sn_class_memory memory = sn_class_memory_of(s);
    sn_str_puts(out, "<h2>Memory of one rank of class 0</h2><table>\n");
    for (int r = 0; r < SN_RESIDENT_ROLE_COUNT; r++)
        if (memory.role[r]) bytes_row(out, sn_class_memory_name((sn_resident_role)r), memory.role[r]);
    bytes_row(out, "activations, gradients and inputs", memory.transient);
    bytes_row(out, "arena, allocated once", memory.total);
    sn_str_puts(out, "</table>\n");
}

typedef struct life {
    int64_t first, last; // instructions; first -1: never used
    sn_phase phase;      // of the first
} life;

// Addresses over time: a rectangle per transient buffer, from its first to its last use.
static void write_addresses(const sn_schedule *s, const sn_program *p, sn_str *out) {
    enum { WIDTH = 1000, HEIGHT = 360 };
    int64_t low = 0, n = (int64_t)p->instrs.count;
    life *lives = sn_alloc(sizeof *lives * (s->buffers.count + 1));
    for (size_t i = 0; i < s->buffers.count; i++) lives[i].first = -1;
    sn_operands operands = {0};
    for (int64_t i = 0; i < n; i++) {
        operands.count = 0;
        sn_instr_operands(s, &p->instrs.items[i], &operands);
        for (size_t v = 0; v < operands.count; v++) {
            life *l = &lives[operands.data[v].view.buffer];
            if (l->first < 0) *l = (life){i, i, p->instrs.items[i].phase};
            l->last = i;
        }
    }
    sn_vec_free(&operands);
    for (size_t i = 0; i < s->globals.count; i++) {
        const sn_buffer *b = &s->buffers.items[s->globals.items[i].buffer];
        lives[s->globals.items[i].buffer].first = -1;
        if (b->offset + b->bytes > low) low = b->offset + b->bytes;
    }
    double y = (double)(s->arena_bytes - low), x = (double)(n ? n : 1);
    sn_str_printf(
        out,
        "<h2>Addresses over the instructions of %s</h2><p class=dim>Each box is a buffer: across, from its first to "
        "its "
        "last use; upwards, its address above the parameters. Colours tell who writes it first."
        "<span class=key style=\"background:var(--f)\"></span>forward<span class=key "
        "style=\"background:var(--b)\"></span>backward<span class=key style=\"background:var(--u)\"></span>update</p>"
        "<svg class=addresses viewBox=\"0 0 %d %d\">\n",
        p->name, WIDTH, HEIGHT);
    for (size_t i = 0; i < s->buffers.count; i++) {
        const sn_buffer *b = &s->buffers.items[i];
        if (lives[i].first < 0 || b->offset < low || y <= 0) continue;
        double height = (double)b->bytes / y * HEIGHT;
        sn_str_printf(out, "<rect class=%s x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                      phase_styles[lives[i].phase], (double)lives[i].first / x * WIDTH,
                      HEIGHT - (double)(b->offset - low) / y * HEIGHT - height,
                      (double)(lives[i].last - lives[i].first + 1) / x * WIDTH, height);
        sn_report_escape(out, b->name);
        sn_str_puts(out, " ");
        sn_str_bytes(out, (double)b->bytes);
        sn_str_puts(out, "</title></rect>\n");
    }
    sn_str_puts(out, "</svg>\n");
    sn_free(lives);
}

static void write_programs(const sn_schedule *s, sn_str *out) {
    sn_str_puts(out, "<h2>Programs</h2><table><tr><th>program");
    for (int k = 0; k < SN_INSTR_COUNT; k++) {
        bool used = false;
        for (size_t p = 0; p < s->programs.count; p++)
            for (size_t i = 0; i < s->programs.items[p].instrs.count; i++)
                used |= (int)s->programs.items[p].instrs.items[i].kind == k;
        if (used) sn_str_printf(out, "<th class=n>%s", sn_instr_name((sn_instr_kind)k));
    }
    for (size_t p = 0; p < s->programs.count; p++) {
        int64_t counts[SN_INSTR_COUNT] = {0};
        sn_str_printf(out, "\n<tr><td><code>%s</code>", s->programs.items[p].name);
        for (size_t i = 0; i < s->programs.items[p].instrs.count; i++)
            counts[s->programs.items[p].instrs.items[i].kind]++;
        for (int k = 0; k < SN_INSTR_COUNT; k++) {
            bool used = false;
            for (size_t o = 0; o < s->programs.count; o++)
                for (size_t i = 0; i < s->programs.items[o].instrs.count; i++)
                    used |= (int)s->programs.items[o].instrs.items[i].kind == k;
            if (used) sn_str_printf(out, "<td class=n>%" PRId64, counts[k]);
        }
    }
    sn_str_puts(out, "</table>\n");
}

static void write_instructions(const sn_schedule *s, const sn_program *p, sn_str *out) {
    sn_str_printf(
        out,
        "<h2>Instructions of %s</h2><details><summary>%zu, in order</summary><table><tr><th class=n>#<th>phase"
        "<th>what<th>from\n",
        p->name, p->instrs.count);
    for (size_t i = 0; i < p->instrs.count; i++) {
        const sn_instr *in = &p->instrs.items[i];
        sn_str_printf(out, "<tr><td class=n>%zu<td>%s<td><code>", i, phase_names[in->phase]);
        if (in->kind == SN_INSTR_KERNEL)
            sn_report_escape(out, s->kernels.items[in->kernel.symbol]);
        else if (in->kind == SN_INSTR_GEMM)
            sn_str_printf(out, "gemm %" PRId64 "x%" PRId64 "x%" PRId64, in->gemm.m, in->gemm.n, in->gemm.k);
        else
            sn_str_puts(out, sn_instr_name(in->kind));
        sn_str_puts(out, "</code><td class=dim>");
        if (in->origin >= 0) sn_report_escape(out, s->origins.items[in->origin]);
        sn_str_putc(out, '\n');
    }
    sn_str_puts(out, "</table></details>\n");
}

// The first class's program that does the most, not counting the update.
static const sn_program *main_program(const sn_schedule *s) {
    const sn_program *best = NULL;
    for (size_t p = 0; p < s->programs.count; p++) {
        const sn_program *program = &s->programs.items[p];
        if (best && sn_ends_with(program->name, "update")) continue;
        if (!best || program->instrs.count > best->instrs.count || sn_ends_with(best->name, "update")) best = program;
    }
    return best;
}

void sn_report_write(const sn_report *report, sn_str *out) {
    const sn_schedule *s = &report->schedules->classes.items[0];
    const sn_program *program = main_program(s);
    const char *slash = strrchr(s->model_path, '/');
    sn_str_puts(out, head);
    sn_str_puts(out, "<h1>");
    sn_report_escape(out, slash ? slash + 1 : s->model_path);
    sn_str_puts(out, "</h1>\n");
    if (report->simulation)
        write_simulation(report, out);
    else
        write_plan(report, out);
    write_memory(s, out);
    write_programs(s, out);
    if (program) {
        write_addresses(s, program, out);
        write_instructions(s, program, out);
    }
    sn_str_puts(out, "</body></html>\n");
}
