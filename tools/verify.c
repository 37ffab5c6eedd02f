// `sennit verify`: the same training on many ranks and on one, and how far apart losses, gradients and parameters are.
#include "base/file.h"
#include "base/philox.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/schedule.h"
#include "tools/launch.h"
#include "tools/passes.h"
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
    sn_error(v->diags, "E0706", NULL, NULL, "%s", sn_status_message(status));
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
        sn_error(v->diags, "E0707", NULL, NULL, "the run on %d ranks ended with status %d", ranks, exit_status);
    return exit_status == 0;
}

// |a - b| / |b| over all elements, in double.
static double distance(const sn_tensor_entry *a, const sn_tensor_entry *b, double *norm) {
    double difference = 0, square = 0;
    size_t n = a->bytes / sn_dtype_bytes(a->dtype);
    void *x = sn_alloc(a->bytes), *y = sn_alloc(b->bytes); // entries may be unaligned
    memcpy(x, a->data, a->bytes);
    memcpy(y, b->data, b->bytes);
    for (size_t i = 0; i < n; i++) {
        double p = sn_load_f64(a->dtype, x, (int64_t)i), q = sn_load_f64(b->dtype, y, (int64_t)i);
        difference += (p - q) * (p - q);
        square += q * q;
    }
    sn_free(x);
    sn_free(y);
    *norm = sqrt(square);
    return sqrt(difference);
}

// A tensor is right when its error is small against itself, or against `share` of all tensors of the file together:
// gradients that are zero but for rounding have no direction, and Adam makes steps of one size from them.
static bool compare_tensors(verifier *v, const char *what, double share, const char *many, const char *one) {
    sn_safetensors a, b;
    if (failed(v, sn_safetensors_open(many, &a))) return false;
    if (failed(v, sn_safetensors_open(one, &b))) {
        sn_safetensors_close(&a);
        return false;
    }
    double total = 0, norm, worst = 0;
    const char *where = "";
    for (size_t i = 0; i < b.tensors.count; i++) {
        distance(&b.tensors.items[i], &b.tensors.items[i], &norm);
        total += norm * norm;
    }
    for (size_t i = 0; i < b.tensors.count; i++) {
        const sn_tensor_entry *other = sn_safetensors_find(&a, b.tensors.items[i].name);
        if (!other || other->bytes != b.tensors.items[i].bytes) {
            worst = INFINITY, where = b.tensors.items[i].name;
            break;
        }
        double error = distance(other, &b.tensors.items[i], &norm) / (norm + share * sqrt(total) + 1e-30);
        if (!(error <= worst)) worst = error, where = b.tensors.items[i].name;
    }
    bool good = worst <= tolerance;
    printf("%-12s worst relative difference %.2g%s%s%s\n", what, worst, where[0] ? " (" : "", where,
           where[0] ? ")" : "");
    if (!good) sn_error(v->diags, "E0708", where, NULL, "%s differ by %.2g, more than %.0e", what, worst, tolerance);
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
        sn_error(v->diags, "E0707", NULL, NULL, "the run on %d ranks logged %" PRId64 " losses", ranks, n);
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
        sn_error(v->diags, "E0708", NULL, NULL, "losses differ by %.2g, more than %.0e", worst, tolerance);
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

int sn_cmd_verify(int argc, char **argv) {
    sn_options options;
    sn_diags diags = {0};
    int status = 0;
    if (sn_command_parse(SN_COMMAND_VERIFY, argc, argv, &options, &status)) {
        verifier v = {.options = &options, .diags = &diags};
        verify(&v);
        status = sn_command_end(&options, &diags);
    }
    sn_options_free(&options);
    return status;
}
