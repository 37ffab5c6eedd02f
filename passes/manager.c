#include "base/clock.h"
#include "passes/pass.h"

#include "base/file.h"
#include "base/options.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/plugin.h"

#include <stdlib.h>
#include <string.h>

#define SN_PASS(name) extern const sn_pass sn_pass_##name;
#include "passes/passes.def"
#undef SN_PASS

const sn_pass *const sn_pass_table[] = {
#define SN_PASS(name) &sn_pass_##name,
#include "passes/passes.def"
#undef SN_PASS
};
const int sn_pass_count = sizeof sn_pass_table / sizeof *sn_pass_table;

// What both pipelines begin with: the model, cleaned up; and end with: one rank's program, then kernels and addresses.
#define CLEAN_MODEL "canonicalize,fold-constants,canonicalize,cse,recompose,canonicalize,cse,dce,"
#define TO_KERNELS                                                                                                     \
    "canonicalize,cse,dce,"                                                                                            \
    "partition,distribute,stages,localize,decompose,canonicalize,cse,dce,remat,fuse,fuse-products,plan-memory"

const char *sn_default_pipeline(void) {
    return CLEAN_MODEL "training," TO_KERNELS;
}

const char *sn_inference_pipeline(void) {
    return CLEAN_MODEL "inference," TO_KERNELS;
}

const sn_pass *sn_pass_find(const struct sn_plugins *plugins, const char *name) {
    for (int i = 0; i < sn_pass_count; i++)
        if (strcmp(sn_pass_table[i]->name, name) == 0) return sn_pass_table[i];
    return plugins ? sn_plugins_pass(plugins, name) : NULL;
}

// The value of `name` in "a=1,b,c=2": a pointer to it, "" for a bare name, NULL when absent.
static const char *find_argument(const char *arguments, const char *name) {
    size_t length = strlen(name);
    for (const char *at = arguments; *at;) {
        if (strncmp(at, name, length) == 0) {
            if (at[length] == '=') return at + length + 1;
            if (at[length] == ',' || !at[length]) return "";
        }
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return NULL;
}

int64_t sn_pass_argument_int(sn_pass_context *context, const char *name, int64_t otherwise) {
    const char *text = find_argument(context->arguments, name);
    if (!text) return otherwise;
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || (*end && *end != ',')) {
        sn_error(context->diags, "E0813", context->pass->name, "write it as name{key=3}",
                 "the argument %s takes a whole number", name);
        return otherwise;
    }
    return value;
}

// A pass that looks again after a change would say the same again.
static bool has_remark(const sn_pass_context *context, const char *code, const char *node, const char *text) {
    for (size_t i = context->diags->count; i-- > 0;) {
        const sn_diag *diag = &context->diags->items[i];
        if (diag->severity != SN_REMARK || strcmp(diag->code, code) != 0) continue;
        bool same_node = node ? diag->subject && strcmp(diag->subject, node) == 0 : !diag->subject;
        if (same_node && sn_ends_with(diag->message, text)) return true;
    }
    return false;
}

void sn_pass_remark(sn_pass_context *context, const char *code, const sn_op *op, const char *format, ...) {
    sn_str text = {0};
    va_list args;
    va_start(args, format);
    sn_str_vprintf(&text, format, args);
    va_end(args);
    const char *node = op ? sn_origin_node(op->origin) : NULL;
    if (!has_remark(context, code, node, sn_str_text(&text)))
        sn_remark(context->diags, code, node, NULL, "%s: %s", context->pass->name, sn_str_text(&text));
    sn_str_free(&text);
}

const sn_origin *sn_pass_origin(sn_module *module, const sn_pass_context *context, const sn_op *from) {
    const sn_origin *parent = from ? from->origin : NULL;
    // a pass that rewrites its own result again is named once
    if (parent && parent->parent && strcmp(parent->name, context->pass->name) == 0) return parent;
    return sn_origin_new(module, context->pass->name, parent);
}

typedef struct step {
    const sn_pass *pass;
    const char *arguments;
} step;

typedef struct steps {
    SN_VEC(step) list;
    sn_arena arena;
} steps;

static void unknown_pass(sn_pass_context *context, const char *name) {
    sn_suggestion close = {0};
    for (int i = 0; i < sn_pass_count; i++) sn_suggest(&close, name, sn_pass_table[i]->name);
    const char *help = "`sennit opt --list-passes` lists the passes";
    if (close.best)
        sn_error(context->diags, "E0811", NULL, help, "unknown pass '%s'; did you mean '%s'?", name, close.best);
    else
        sn_error(context->diags, "E0811", NULL, help, "unknown pass '%s'", name);
}

// One "name" or "name{arguments}" at *text; moves past it and the comma.
static bool parse_step(sn_pass_context *context, const char **text, steps *out) {
    size_t length = strcspn(*text, ",{");
    const char *rest = *text + length, *arguments = "";
    if (*rest == '{') {
        size_t inner = strcspn(rest + 1, "}");
        if (rest[1 + inner] != '}' || (rest[2 + inner] && rest[2 + inner] != ',')) {
            sn_error(context->diags, "E0812", NULL, "write it as name{key=value,…}",
                     "pipeline: braces do not match after '%.*s'", (int)length, *text);
            return false;
        }
        arguments = sn_arena_printf(&out->arena, "%.*s", (int)inner, rest + 1);
        rest += inner + 2;
    }
    const char *name = sn_arena_printf(&out->arena, "%.*s", (int)length, *text);
    *text = rest + (*rest == ',');
    const sn_pass *pass = sn_pass_find(context->plugins, name);
    if (!pass) {
        unknown_pass(context, name);
        return false;
    }
    if (*arguments && !pass->arguments) {
        sn_error(context->diags, "E0812", name, "leave the braces out", "the pass takes no arguments");
        return false;
    }
    step one = {pass, arguments};
    sn_vec_push(&out->list, one);
    return true;
}

static int index_of(sn_pass_context *context, const steps *steps, const char *name) {
    for (size_t i = 0; i < steps->list.count; i++)
        if (strcmp(steps->list.data[i].pass->name, name) == 0) return (int)i;
    sn_error(context->diags, "E0814", NULL, "`--print-pipeline` lists the passes that run",
             "the pipeline has no pass '%s'", name);
    return -1;
}

// The passes to run, cut as the options ask.
static bool collect(sn_pass_context *context, const sn_pipeline_options *options, steps *out) {
    const char *text = options->pipeline ? options->pipeline : sn_default_pipeline();
    while (*text)
        if (!parse_step(context, &text, out)) return false;
    size_t from = 0, to = out->list.count;
    if (options->start_from) {
        int at = index_of(context, out, options->start_from);
        if (at < 0) return false;
        from = (size_t)at;
    }
    if (options->stop_after) {
        int at = index_of(context, out, options->stop_after);
        if (at < 0) return false;
        to = (size_t)at + 1;
    }
    if (from > to) from = to;
    if (options->pass_limit >= 0 && to - from > (size_t)options->pass_limit) to = from + (size_t)options->pass_limit;
    for (size_t i = from; i < to; i++) out->list.data[i - from] = out->list.data[i];
    out->list.count = to - from;
    return true;
}

static void free_steps(steps *steps) {
    sn_vec_free(&steps->list);
    sn_arena_free(&steps->arena);
}

bool sn_passes_print(sn_pass_context *context, const sn_pipeline_options *options, FILE *out) {
    steps steps = {0};
    bool fine = collect(context, options, &steps);
    for (size_t i = 0; fine && i < steps.list.count; i++) {
        const step *s = &steps.list.data[i];
        fprintf(out, *s->arguments ? "%s{%s}\n" : "%s\n", s->pass->name, s->arguments);
    }
    free_steps(&steps);
    return fine;
}

typedef struct dumper {
    const char *dir;
    bool before, after;
    const char *only; // NULL: every pass
    sn_constant_store constants;
} dumper;

static bool open_dumper(sn_pass_context *context, const sn_pipeline_options *options, dumper *d) {
    const char *when = options->dump_ir;
    if (!when) return true;
    if (strcmp(when, "after-all") == 0) {
        d->after = true;
    } else if (strcmp(when, "before-all") == 0) {
        d->before = true;
    } else if (sn_starts_with(when, "after=")) {
        d->after = true;
        d->only = when + strlen("after=");
    } else if (sn_starts_with(when, "before=")) {
        d->before = true;
        d->only = when + strlen("before=");
    } else {
        sn_error(context->diags, "E0815", "--dump-ir", "one of after-all, before-all, after=PASS, before=PASS",
                 "'%s' is no time to dump at", when);
        return false;
    }
    if (d->only && !sn_pass_find(context->plugins, d->only)) {
        unknown_pass(context, d->only);
        return false;
    }
    d->dir = options->dump_dir ? options->dump_dir : "sennit-dumps";
    sn_status status = sn_make_directories(d->dir);
    if (status) {
        sn_error(context->diags, "E0816", "--dump-dir", "check the folder, its permissions and the free space", "%s",
                 sn_status_message(status));
        sn_status_free(status);
        return false;
    }
    d->constants.path = sn_arena_printf(&context->diags->arena, "%s/constants.bin", d->dir);
    return true;
}

static bool dump(sn_pass_context *context, dumper *d, sn_module *module, int number, const char *name) {
    sn_str path = {0};
    sn_str_printf(&path, "%s/%02d-%s.sir", d->dir, number, name);
    sn_status status = sn_print_file(module, &d->constants, sn_str_text(&path));
    sn_str_free(&path);
    if (!status) return true;
    sn_error(context->diags, "E0816", "--dump-ir", "check the folder, its permissions and the free space", "%s",
             sn_status_message(status));
    sn_status_free(status);
    return false;
}

static void print_around(void *user) {
    sn_print_stderr(user);
}

static size_t count_ops(const sn_module *module) {
    size_t count = 0;
    for (size_t i = 0; i < module->funcs.count; i++) count += module->funcs.data[i]->n_ops;
    return count;
}

// What a pass of ours leaves malformed is a bug; what a plug-in's does is the user's to know.
static bool verify(const sn_module *module, const sn_pass_context *context) {
    sn_str problems = {0};
    bool lowers = (context->pass->forms & (context->pass->forms - 1)) == 0;
    bool fine = sn_verify(module, &problems);
    if (fine && lowers && module->form != context->pass->result) {
        sn_str_printf(&problems, "it left %s form", sn_form_name(module->form));
        fine = false;
    }
    if (!fine && !context->pass->user)
        SN_BUG("the pass %s left a malformed module:\n%s", context->pass->name, sn_str_text(&problems));
    if (!fine)
        sn_error(context->diags, "E0828", NULL, "report it to the plug-in's author",
                 "the plug-in pass %s left a malformed module:\n%s", context->pass->name, sn_str_text(&problems));
    sn_str_free(&problems);
    return fine;
}

static bool check_form(sn_pass_context *context, const sn_module *module, const sn_pass *pass) {
    if (pass->forms >> module->form & 1) return true;
    sn_error(context->diags, "E0817", pass->name,
             "run the passes before it first: `--print-pipeline` lists them in order",
             "the pass does not work on %s form", sn_form_name(module->form));
    return false;
}

static bool run_step(sn_module *module, sn_pass_context *context, const step *step, FILE *times) {
    sn_arena scratch = {0};
    context->pass = step->pass;
    context->arguments = step->arguments;
    context->scratch = &scratch;
    size_t errors = context->diags->errors;
    double start = sn_seconds();
    step->pass->run(module, context);
    double spent = sn_seconds() - start;
    bool fine = context->diags->errors == errors && verify(module, context);
    if (times)
        fprintf(times, "%10.3f ms %10.3f ms verify %8zu ops  %s\n", 1e3 * spent, 1e3 * (sn_seconds() - start - spent),
                count_ops(module), step->pass->name);
    context->scratch = NULL;
    sn_arena_free(&scratch);
    return fine;
}

static bool run_steps(sn_module *module, sn_pass_context *context, const steps *steps, dumper *d, FILE *times) {
    for (size_t i = 0; i < steps->list.count; i++) {
        const step *step = &steps->list.data[i];
        const char *name = step->pass->name;
        bool dumps = d->dir && (!d->only || strcmp(d->only, name) == 0);
        int number = (int)i + 1;
        if (!check_form(context, module, step->pass)) return false;
        sn_str before = {0};
        sn_str_printf(&before, "before-%s", name);
        bool fine = !dumps || !d->before || dump(context, d, module, number, sn_str_text(&before));
        sn_str_free(&before);
        if (!fine || !run_step(module, context, step, times)) return false;
        if (dumps && d->after && !dump(context, d, module, number, name)) return false;
    }
    return true;
}

bool sn_passes_run(sn_module *module, sn_pass_context *context, const sn_pipeline_options *options) {
    steps steps = {0};
    dumper dumper = {0};
    bool fine = collect(context, options, &steps) && open_dumper(context, options, &dumper);
    sn_bug_set_context(print_around, module);
    fine = fine && run_steps(module, context, &steps, &dumper, options->times);
    sn_bug_set_context(NULL, NULL);
    sn_status status = sn_constant_store_close(&dumper.constants);
    if (status) {
        sn_error(context->diags, "E0816", "--dump-ir", "check the folder, its permissions and the free space", "%s",
                 sn_status_message(status));
        fine = false;
    }
    sn_status_free(status);
    free_steps(&steps);
    return fine;
}
