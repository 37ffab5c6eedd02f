// `sennit verify`: the same training on many ranks and on one, and how far apart losses, gradients and parameters are.
#include "base/file.h"
#include "base/philox.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/schedule.h"
#include "tools/launch.h"
#include "tools/passes.h"
#include "tools/plan_options.h"
#include "tools/training.h"
#include "tools/workplace.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_STEPS = 3 };
static const double tolerance = 1e-5; // relative; what f32 sums in another order cost, with a margin

typedef struct verifier {
    const sn_options *options;
    sn_diags *diags;
    const char *folder, *data; // data: the user's, or made here
    int ranks;
    int64_t steps;
} verifier;

static const char *file_of(verifier *v, int ranks, const char *suffix) {
    return sn_arena_printf(&v->diags->arena, "%s/%d%s", v->folder, ranks, suffix);
}

static bool failed(verifier *v, sn_status status) {
    if (!status) return false;
    sn_error(v->diags, "E0706", NULL, "check the temporary folder: TMPDIR names another", "%s",
             sn_status_message(status));
    sn_status_free(status);
    return true;
}

// A value that the model can take: inside the tables that it indexes, else small.
static void random_element(const sn_data_input *input, sn_dtype dtype, void *data, int64_t i) {
    double u = sn_random_uniform(1, 0, 0, (uint64_t)i);
    int64_t lo = input->has_range && input->lo > 0 ? input->lo : 0, hi = input->has_range ? input->hi : 2;
    if (sn_dtype_is_float(dtype))
        sn_store_f64(dtype, data, i, 2 * u - 1);
    else
        sn_store_i64(dtype, data, i, lo + (int64_t)(u * (double)(hi - lo)));
}

static sn_status write_input(verifier *v, const sn_schedule *schedule, const sn_data_input *input) {
    sn_dtype dtype = schedule->buffers.items[input->buffer].dtype;
    int64_t batches = v->steps * schedule->micro_batches, count = batches;
    sn_str header = {0}, file = {0}, path = {0};
    sn_str_printf(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRId64 ",", sn_dtype_npy(dtype),
                  input->shape.items[0] * batches);
    for (size_t d = 0; d < input->shape.count; d++) {
        count *= input->shape.items[d];
        if (d) sn_str_printf(&header, "%" PRId64 ",", input->shape.items[d]);
    }
    sn_str_puts(&header, "), }");
    while ((10 + header.length + 1) % 64) sn_str_putc(&header, ' ');
    sn_str_putc(&header, '\n');
    sn_str_append(&file, "\x93NUMPY\x01\x00", 8);
    sn_str_putc(&file, (char)(header.length & 0xff));
    sn_str_putc(&file, (char)(header.length >> 8));
    sn_str_append(&file, header.data, header.length);
    size_t bytes = (size_t)count * sn_dtype_bytes(dtype);
    void *data = sn_alloc(bytes);
    for (int64_t i = 0; i < count; i++) random_element(input, dtype, data, i);
    sn_str_append(&file, data, bytes);
    sn_str_printf(&path, "%s/%s.npy", v->data, input->name);
    sn_status status = sn_file_write(path.data, file.data, file.length);
    sn_free(data);
    sn_str_free(&header);
    sn_str_free(&file);
    sn_str_free(&path);
    return status;
}

// Inputs as the compiled schedule states them.
static sn_status make_data(verifier *v) {
    sn_mapped_file file;
    sn_arena arena = {0};
    sn_schedules schedules;
    SN_TRY(sn_file_map(file_of(v, 1, ".d/schedule.json"), &file));
    sn_status status = sn_schedules_read((const char *)file.data, file.bytes, &arena, &schedules);
    if (!status) status = sn_make_directories(v->data);
    const sn_schedule *schedule = &schedules.classes.items[0]; // of one rank
    for (size_t i = 0; !status && i < schedule->inputs.count; i++)
        if (schedule->inputs.items[i].batch_dim == 0) status = write_input(v, schedule, &schedule->inputs.items[i]);
    sn_file_unmap(&file);
    sn_arena_free(&arena);
    return status;
}

static bool compile_for(verifier *v, int ranks) {
    sn_train_build build = {
        .output = file_of(v, ranks, ""), .ranks = ranks, .batch = 2 * v->ranks, .with_gradients = true};
    return sn_train_compile(v->options, &build, v->diags);
}

static bool run_with(verifier *v, int ranks) {
    char steps[24];
    snprintf(steps, sizeof steps, "%" PRId64, v->steps);
    const char *own[] = {"--data",
                         v->data,
                         "--steps",
                         steps,
                         "--log",
                         file_of(v, ranks, ".jsonl"),
                         "--save-gradients",
                         sn_arena_printf(&v->diags->arena, "1:%s", file_of(v, ranks, ".gradients")),
                         "--checkpoint",
                         file_of(v, ranks, ".checkpoint"),
                         "--quiet"};
    SN_VEC(const char *) line = {0};
    for (const char *const *given = sn_train_run_arguments(v->options, &v->diags->arena); *given; given++)
        sn_vec_push(&line, *given);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sn_vec_push(&line, own[i]);
    sn_vec_push(&line, NULL);
    int exit_status = 0;
    sn_status status = sn_launch(file_of(v, ranks, ""), ranks, line.data, &exit_status);
    sn_vec_free(&line);
    if (failed(v, status)) return false;
    if (exit_status)
        sn_error(v->diags, "E0707", NULL,
                 "its own message is above; `sennit train` with the same options runs it alone",
                 "the run on %d rank%s ended with status %d", ranks, ranks == 1 ? "" : "s", exit_status);
    return exit_status == 0;
}

static double *load_elements(const sn_tensor_entry *entry, size_t *count) {
    *count = entry->bytes / sn_dtype_bytes(entry->dtype);
    void *aligned = sn_alloc(entry->bytes);
    memcpy(aligned, entry->data, entry->bytes);
    double *elements = sn_alloc(*count * sizeof(double));
    for (size_t i = 0; i < *count; i++) elements[i] = sn_load_f64(entry->dtype, aligned, (int64_t)i);
    sn_free(aligned);
    return elements;
}

// Adam makes a step of one size from any gradient, also from one that is zero but for rounding (the bias of attention's
// keys has no other). Elements whose root mean square gradient (of Adam's second moment) is this small a share of their
// tensor's, or a tenth of that of all tensors', have no direction that could be compared; their gradients are.
static const double noise = 1e-5;

typedef struct comparison {
    const sn_safetensors *one; // with second moments, if any
    double all_rms;            // of the gradients of all tensors; 0 without second moments
    size_t left_out;
} comparison;

static double rms(const double *squares, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += squares[i];
    return sqrt(sum / (double)(count ? count : 1));
}

// The second moment of a parameter; NULL when there is none, or for what is no parameter.
static double *load_moments(const comparison *c, const char *name, size_t *count) {
    sn_str moment = {0};
    sn_str_printf(&moment, "%s.v", name);
    const sn_tensor_entry *entry = sn_safetensors_find(c->one, sn_str_text(&moment));
    sn_str_free(&moment);
    return entry ? load_elements(entry, count) : NULL;
}

static void find_rms(comparison *c) {
    double sum = 0;
    size_t total = 0;
    for (size_t i = 0; i < c->one->tensors.count; i++) {
        size_t count;
        double *moments = load_moments(c, c->one->tensors.items[i].name, &count);
        if (!moments) continue;
        double own = rms(moments, count);
        sum += own * own * (double)count, total += count;
        sn_free(moments);
    }
    c->all_rms = total ? sqrt(sum / (double)total) : 0;
}

// |a - b|, and |b|, over the elements that can be compared.
static double distance(comparison *c, const sn_tensor_entry *a, const sn_tensor_entry *b, double *norm) {
    size_t count, other, n_moments = 0;
    double *x = load_elements(a, &count), *y = load_elements(b, &other), difference = 0, square = 0;
    double *moments = load_moments(c, b->name, &n_moments);
    double own = moments ? rms(moments, n_moments) : 0,
           floor = noise * (own > 0.1 * c->all_rms ? own : 0.1 * c->all_rms);
    for (size_t i = 0; i < count; i++) {
        square += y[i] * y[i];
        if (moments && n_moments == count && sqrt(moments[i]) < floor)
            c->left_out++;
        else
            difference += (x[i] - y[i]) * (x[i] - y[i]);
    }
    sn_free(x);
    sn_free(y);
    sn_free(moments);
    *norm = sqrt(square);
    return sqrt(difference);
}

// A tensor is right when its error is small against itself, or against `share` of all tensors of the file together:
// gradients that are zero but for rounding have no direction.
static double worst_difference(comparison *c, double share, const sn_safetensors *a, const char **where) {
    const sn_safetensors *b = c->one;
    double total = 0, norm, worst = 0;
    for (size_t i = 0; i < b->tensors.count; i++) {
        distance(c, &b->tensors.items[i], &b->tensors.items[i], &norm);
        total += norm * norm;
    }
    c->left_out = 0;
    for (size_t i = 0; i < b->tensors.count; i++) {
        const sn_tensor_entry *one = &b->tensors.items[i], *other = sn_safetensors_find(a, one->name);
        if (!other || other->bytes != one->bytes) {
            *where = one->name;
            return INFINITY;
        }
        double error = distance(c, other, one, &norm) / (norm + share * sqrt(total) + 1e-30);
        if (!(error <= worst)) worst = error, *where = one->name;
    }
    return worst;
}

static bool compare_tensors(verifier *v, const char *what, double share, const char *many, const char *one) {
    sn_safetensors a, b;
    if (failed(v, sn_safetensors_open(many, &a))) return false;
    if (failed(v, sn_safetensors_open(one, &b))) {
        sn_safetensors_close(&a);
        return false;
    }
    comparison c = {.one = &b};
    find_rms(&c);
    const char *where = "";
    double worst = worst_difference(&c, share, &a, &where);
    printf("%-12s worst relative difference %.2g%s%s%s", what, worst, where[0] ? " (" : "", where, where[0] ? ")" : "");
    if (c.left_out) printf("; %zu elements whose gradient is rounding noise left out", c.left_out);
    printf("\n");
    bool good = worst <= tolerance;
    if (!good)
        sn_error(v->diags, "E0708", where,
                 "unless the model amplifies rounding this is a bug of the compiler: please report it",
                 "%s differ by %.2g, more than %.0e", what, worst, tolerance);
    sn_safetensors_close(&a);
    sn_safetensors_close(&b);
    return good;
}

static bool read_losses(verifier *v, int ranks, double *losses) {
    FILE *file = fopen(file_of(v, ranks, ".jsonl"), "r");
    char line[4096];
    int64_t n = 0;
    while (file && n < v->steps && fgets(line, sizeof line, file)) {
        json_t *entry = json_loads(line, 0, NULL), *loss = json_object_get(entry, "loss");
        if (loss) losses[n++] = json_number_value(loss);
        json_decref(entry);
    }
    if (file) fclose(file);
    if (n < v->steps)
        sn_error(v->diags, "E0707", NULL, "each step logs a loss: run the same command with `train` to see its log",
                 "the run on %d rank%s logged %" PRId64 " losses", ranks, ranks == 1 ? "" : "s", n);
    return n == v->steps;
}

static bool compare_losses(verifier *v) {
    double *many = sn_alloc(sizeof(double) * (size_t)v->steps), *one = sn_alloc(sizeof(double) * (size_t)v->steps);
    bool good = read_losses(v, v->ranks, many) && read_losses(v, 1, one);
    double worst = 0;
    for (int64_t i = 0; good && i < v->steps; i++) {
        double error = fabs(many[i] - one[i]) / (fabs(one[i]) + 1e-30);
        if (!(error <= worst)) worst = error;
    }
    if (good) printf("%-12s worst relative difference %.2g over %" PRId64 " steps\n", "losses", worst, v->steps);
    if (good && !(worst <= tolerance))
        sn_error(v->diags, "E0708", NULL,
                 "unless the model amplifies rounding this is a bug of the compiler: please report it",
                 "losses differ by %.2g, more than %.0e", worst, tolerance);
    sn_free(many);
    sn_free(one);
    return good;
}

static void verify(verifier *v) {
    v->ranks = sn_train_ranks(v->options, v->diags);
    v->steps = sn_options_int(v->options, "steps", DEFAULT_STEPS);
    const char *given = sn_options_text(v->options, "data", NULL);
    if (!v->ranks || !(v->folder = sn_workplace_make(v->diags))) return;
    v->data = given ? given : file_of(v, 0, ".data");
    if (v->ranks == 1)
        sn_error(v->diags, "E0709", "--ranks", "sennit verify MODEL.onnx --ranks 4",
                 "one rank has nothing to compare with");
    else if (compile_for(v, 1) && (given || !failed(v, make_data(v))) && compile_for(v, v->ranks) && run_with(v, 1) &&
             run_with(v, v->ranks)) {
        const char *step = sn_arena_printf(&v->diags->arena, ".checkpoint/step-%" PRId64 ".safetensors", v->steps);
        compare_losses(v);
        compare_tensors(v, "gradients", 0.01, file_of(v, v->ranks, ".gradients"), file_of(v, 1, ".gradients"));
        compare_tensors(v, "parameters", 0.1, file_of(v, v->ranks, step), file_of(v, 1, step));
    }
    sn_workplace_remove(v->folder);
}

int sn_cmd_verify(const sn_options *options, sn_diags *diags) {
    verifier v = {.options = sn_plan_options(options, false, diags), .diags = diags};
    if (v.options) verify(&v);
    return 0;
}
