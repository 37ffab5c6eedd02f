#include "backend/package/report.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <string.h>

static const char head[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>sennit report</title><style>\n"
    ":root{color-scheme:light dark;--ink:#1d2430;--dim:#5c6675;--line:#d8dde5;--paper:#fff;--f:#4c78a8;--b:#e0793c;"
    "--u:#59a14f;--s:#8a94a3}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e3e7ee;--dim:#98a2b3;--line:#343c49;--paper:#171b22;--f:#6ea3d8;"
    "--b:#ee9a62;--u:#7cc274;--s:#5f6978}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;margin:2rem auto;"
    "padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}\n"
    "td,th{padding:.2rem .9rem .2rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th,.dim{color:var(--dim);font-weight:500}\n"
    "code{font:13px ui-monospace,monospace}svg{width:100%;height:auto;border:1px solid var(--line)}\n"
    ".forward{fill:var(--f)}.backward{fill:var(--b)}.update{fill:var(--u)}svg "
    "rect{stroke:var(--paper);stroke-width:.4}\n"
    ".key{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 1em}\n"
    "</style></head><body>\n";

static void escape(sn_str *out, const char *text) {
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

static void print_bytes(sn_str *out, int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) value /= 1024, unit++;
    sn_str_printf(out, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static void bytes_row(sn_str *out, const char *what, int64_t bytes) {
    sn_str_printf(out, "<tr><td>%s<td class=n>", what);
    print_bytes(out, bytes);
    sn_str_putc(out, '\n');
}

static void write_memory(const sn_schedule *s, sn_str *out) {
    static const char *const names[] = {[SN_RESIDENT_PARAMETER] = "parameters",
                                        [SN_RESIDENT_STATE] = "state",
                                        [SN_RESIDENT_MOMENT] = "optimizer state",
                                        [SN_RESIDENT_CONSTANT] = "constants and frozen weights"};
    int64_t by_role[SN_RESIDENT_ROLE_COUNT] = {0}, resident = 0;
    for (size_t i = 0; i < s->globals.count; i++) {
        int64_t bytes = s->buffers.items[s->globals.items[i].buffer].bytes;
        by_role[s->globals.items[i].role] += bytes;
        resident += bytes;
    }
    sn_str_puts(out, "<h2>Memory of one rank</h2><table>\n");
    for (int r = 0; r < SN_RESIDENT_ROLE_COUNT; r++)
        if (by_role[r]) bytes_row(out, names[r], by_role[r]);
    bytes_row(out, "activations, gradients and inputs", s->arena_bytes - resident);
    bytes_row(out, "arena, allocated once", s->arena_bytes);
    sn_str_puts(out, "</table>\n");
}

// The views of an instruction, whatever its kind; at most `most`.
static size_t list_views(const sn_instr *in, const sn_view **views, size_t most) {
    size_t n = 0;
#define ADD(view)                                                                                                      \
    if (n < most && (view).buffer >= 0) views[n++] = &(view)
    switch (in->kind) {
    case SN_INSTR_KERNEL:
        for (size_t i = 0; i < in->kernel.args.count; i++) ADD(in->kernel.args.items[i]);
        break;
    case SN_INSTR_GEMM:
        ADD(in->gemm.a);
        ADD(in->gemm.b);
        ADD(in->gemm.c);
        break;
    case SN_INSTR_CONV:
    case SN_INSTR_CONV_INPUT_GRAD:
    case SN_INSTR_CONV_WEIGHT_GRAD:
        ADD(in->conv.x);
        ADD(in->conv.w);
        ADD(in->conv.y);
        break;
    case SN_INSTR_ATTENTION:
    case SN_INSTR_ATTENTION_GRAD:
        ADD(in->attention.q);
        ADD(in->attention.k);
        ADD(in->attention.v);
        ADD(in->attention.mask);
        ADD(in->attention.o);
        ADD(in->attention.lse);
        ADD(in->attention.grad_o);
        ADD(in->attention.grad_q);
        ADD(in->attention.grad_k);
        ADD(in->attention.grad_v);
        break;
    case SN_INSTR_COPY:
        ADD(in->copy.from);
        ADD(in->copy.to);
        break;
    case SN_INSTR_FILL:
        ADD(in->fill.to);
        break;
    case SN_INSTR_SEND:
    case SN_INSTR_RECV:
        ADD(in->transfer.view);
        break;
    case SN_INSTR_RECORD:
    case SN_INSTR_WAIT:
        break;
    default:
        ADD(in->collective.from);
        ADD(in->collective.to);
    }
#undef ADD
    return n;
}

typedef struct life {
    int64_t first, last; // instructions; first -1: never used
    sn_phase phase;      // of the first
} life;

static const char *const phase_names[] = {
    [SN_PHASE_FORWARD] = "forward", [SN_PHASE_BACKWARD] = "backward", [SN_PHASE_UPDATE] = "update"};

// Addresses over time: a rectangle per transient buffer, from its first to its last use.
static void write_timeline(const sn_schedule *s, const sn_program *p, sn_str *out) {
    enum { WIDTH = 1000, HEIGHT = 360, MOST_VIEWS = 256 };
    int64_t low = 0, n = (int64_t)p->instrs.count;
    life *lives = sn_alloc(sizeof *lives * (s->buffers.count + 1));
    for (size_t i = 0; i < s->buffers.count; i++) lives[i].first = -1;
    for (int64_t i = 0; i < n; i++) {
        const sn_view *views[MOST_VIEWS];
        size_t count = list_views(&p->instrs.items[i], views, MOST_VIEWS);
        for (size_t v = 0; v < count; v++) {
            life *l = &lives[views[v]->buffer];
            if (l->first < 0) *l = (life){i, i, p->instrs.items[i].phase};
            l->last = i;
        }
    }
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
        "<svg viewBox=\"0 0 %d %d\">\n",
        p->name, WIDTH, HEIGHT);
    for (size_t i = 0; i < s->buffers.count; i++) {
        const sn_buffer *b = &s->buffers.items[i];
        if (lives[i].first < 0 || b->offset < low || y <= 0) continue;
        double height = (double)b->bytes / y * HEIGHT;
        sn_str_printf(out, "<rect class=%s x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                      phase_names[lives[i].phase], (double)lives[i].first / x * WIDTH,
                      HEIGHT - (double)(b->offset - low) / y * HEIGHT - height,
                      (double)(lives[i].last - lives[i].first + 1) / x * WIDTH, height);
        escape(out, b->name);
        sn_str_puts(out, " ");
        print_bytes(out, b->bytes);
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
            escape(out, s->kernels.items[in->kernel.symbol]);
        else if (in->kind == SN_INSTR_GEMM)
            sn_str_printf(out, "gemm %" PRId64 "x%" PRId64 "x%" PRId64, in->gemm.m, in->gemm.n, in->gemm.k);
        else
            sn_str_puts(out, sn_instr_name(in->kind));
        sn_str_puts(out, "</code><td class=dim>");
        if (in->origin >= 0) escape(out, s->origins.items[in->origin]);
        sn_str_putc(out, '\n');
    }
    sn_str_puts(out, "</table></details>\n");
}

void sn_report_write(const sn_schedule *s, sn_str *out) {
    const sn_program *step = sn_schedule_program(s, "step");
    if (!step) step = sn_schedule_program(s, "micro");
    if (!step && s->programs.count) step = &s->programs.items[0];
    sn_str_puts(out, head);
    sn_str_puts(out, "<h1>");
    const char *slash = strrchr(s->model_path, '/');
    escape(out, slash ? slash + 1 : s->model_path);
    sn_str_puts(out, "</h1>\n<table><tr><th>mesh<td>");
    for (size_t i = 0; i < s->mesh.count; i++)
        sn_str_printf(out, "%s = %" PRId64 " ", s->mesh.items[i].name, s->mesh.items[i].size);
    sn_str_printf(
        out, "<tr><th>samples a step<td>%" PRId64 " in %" PRId64 " micro-batches<tr><th>kernels<td>%zu\n</table>\n",
        s->step_samples, s->micro_batches, s->kernels.count);
    write_memory(s, out);
    write_programs(s, out);
    if (step) {
        write_timeline(s, step, out);
        write_instructions(s, step, out);
    }
    sn_str_puts(out, "</body></html>\n");
}
