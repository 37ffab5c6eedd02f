#include "runtime/data/dataset.h"

#include "base/alloc.h"
#include "base/file.h"
#include "runtime/comm/comm.h"
#include "runtime/data/npy.h"
#include "runtime/data/order.h"
#include "runtime/exec/shard.h"
#include "runtime/mesh.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

typedef enum source_kind { FROM_NPY, FROM_TOKENS, FROM_NEXT_TOKENS, ONES, POSITIONS } source_kind;

typedef struct source { // of one input
    const sn_data_input *input;
    const sn_buffer *buffer; // of the class that has it
    source_kind kind;
    sn_npy npy;
    sn_str path;
} source;

struct sn_dataset {
    const sn_schedule *schedule; // of this rank's class
    sn_dataset_options options;
    source *sources; // this class's inputs first, then those that only others have
    size_t count;
    int64_t samples, usable;
    // Token files.
    sn_mapped_file tokens;
    int64_t n_tokens, window;
};

static const sn_data_input *input_at(const sn_dataset *d, size_t i) {
    return d->sources[i].input;
}

static sn_dtype wanted_type(const sn_dataset *d, size_t i) {
    return d->sources[i].buffer->dtype;
}

// "i64[samples, 64]", or the fixed shape.
static void print_wanted(const sn_dataset *d, size_t i, sn_str *out) {
    const sn_data_input *in = input_at(d, i);
    sn_str_printf(out, "%s[", sn_dtype_name(wanted_type(d, i)));
    if (in->batch_dim >= 0) sn_str_puts(out, "samples");
    bool first = in->batch_dim < 0;
    for (size_t k = 0; k < in->shape.count; k++) {
        if ((int64_t)k == in->batch_dim) continue;
        sn_str_printf(out, "%s%" PRId64, first ? "" : ", ", in->shape.items[k]);
        first = false;
    }
    sn_str_putc(out, ']');
}

static void print_all_wanted(const sn_dataset *d, sn_str *out) {
    sn_str_puts(out, "the graph wants");
    for (size_t i = 0; i < d->count; i++) {
        sn_str_printf(out, "%s %s.npy ", i ? "," : "", input_at(d, i)->name);
        print_wanted(d, i, out);
    }
}

static bool is_integer(sn_dtype dtype) {
    return !sn_dtype_is_float(dtype);
}

static void check_npy(const sn_dataset *d, size_t i, sn_diags *diags) {
    const sn_data_input *in = input_at(d, i);
    const source *s = &d->sources[i];
    const char *path = sn_str_text(&s->path);
    sn_str wanted = {0};
    print_wanted(d, i, &wanted);
    bool fits = s->npy.rank == in->shape.count && (in->batch_dim < 0 || s->npy.rank > 0);
    for (size_t k = 0, at = in->batch_dim >= 0; fits && k < in->shape.count; k++) {
        if ((int64_t)k != in->batch_dim) fits = s->npy.shape[at++] == in->shape.items[k];
    }
    if (!fits) {
        sn_str got = {0};
        for (size_t k = 0; k < s->npy.rank; k++) sn_str_printf(&got, "%s%" PRId64, k ? ", " : "", s->npy.shape[k]);
        sn_error(diags, "E0602", path, "rows are samples; sizes bound with --dim must be those of the data",
                 "has shape [%s], but input '%s' wants %s", sn_str_text(&got), in->name, sn_str_text(&wanted));
        sn_str_free(&got);
    }
    if (is_integer(s->npy.dtype) != is_integer(wanted_type(d, i)))
        sn_error(diags, "E0603", path, "convert it with numpy's astype", "holds %s, but input '%s' wants %s",
                 sn_dtype_name(s->npy.dtype), in->name, sn_str_text(&wanted));
    sn_str_free(&wanted);
}

static void open_npy(sn_dataset *d, size_t i, sn_diags *diags) {
    source *s = &d->sources[i];
    sn_str_printf(&s->path, "%s/%s.npy", d->options.path, input_at(d, i)->name);
    struct stat info;
    if (stat(sn_str_text(&s->path), &info) != 0) {
        sn_str help = {0};
        print_all_wanted(d, &help);
        sn_error(diags, "E0601", d->options.path, sn_str_text(&help), "there is no file for input '%s'",
                 input_at(d, i)->name);
        sn_str_free(&help);
        return;
    }
    sn_status status = sn_npy_open(sn_str_text(&s->path), &s->npy);
    if (status) {
        sn_error(diags, "E0604", sn_str_text(&s->path), "numpy.save writes such a file", "%s",
                 sn_status_message(status));
        sn_status_free(status);
        return;
    }
    check_npy(d, i, diags);
}

// All inputs with a batch dimension must have the same number of rows.
static void count_rows(sn_dataset *d, sn_diags *diags) {
    size_t first = 0;
    d->samples = -1;
    for (size_t i = 0; i < d->count; i++) {
        if (input_at(d, i)->batch_dim < 0) continue;
        int64_t rows = d->sources[i].npy.shape[0];
        if (d->samples < 0) first = i, d->samples = rows;
        if (rows != d->samples)
            sn_error(diags, "E0605", d->options.path, "every file must have one row for each sample",
                     "'%s' has %" PRId64 " rows, but '%s' has %" PRId64, input_at(d, i)->name, rows,
                     input_at(d, first)->name, d->samples);
    }
    if (d->samples < 0) d->samples = 0;
}

// Files that no input reads are named once.
static void note_unused(const sn_dataset *d, sn_diags *diags) {
    DIR *folder = opendir(d->options.path);
    sn_str names = {0};
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!sn_ends_with(entry->d_name, ".npy")) continue;
        bool used = false;
        for (size_t i = 0; i < d->count; i++) {
            size_t length = strlen(input_at(d, i)->name);
            used =
                used || (strlen(entry->d_name) == length + 4 && !memcmp(entry->d_name, input_at(d, i)->name, length));
        }
        if (!used) sn_str_printf(&names, "%s%s", names.length ? ", " : "", entry->d_name);
    }
    if (folder) closedir(folder);
    if (names.length)
        sn_warning(diags, "W0601", d->options.path,
                   "rename the file or column to the input it is for; `sennit info` lists the inputs",
                   "no input reads %s", sn_str_text(&names));
    sn_str_free(&names);
}

static void open_folder(sn_dataset *d, sn_diags *diags) {
    size_t errors = diags->errors;
    for (size_t i = 0; i < d->count; i++) open_npy(d, i, diags);
    if (diags->errors > errors) return;
    count_rows(d, diags);
    note_unused(d, diags);
}

// Which part of a window an input gets; false when it is not a language model's.
static bool choose_token_source(sn_dataset *d, size_t i, bool *has_ids) {
    const sn_data_input *in = input_at(d, i);
    bool sequence = in->shape.count >= 1 && in->batch_dim != (int64_t)in->shape.count - 1;
    int64_t width = sequence ? in->shape.items[in->shape.count - 1] : 0;
    bool plain = in->shape.count == (in->batch_dim >= 0 ? 2 : 1);
    if (!plain || !width || (d->window && width != d->window)) return false;
    d->window = width;
    source *s = &d->sources[i];
    if (!strcmp(in->name, "attention_mask")) {
        s->kind = ONES;
    } else if (!strcmp(in->name, "position_ids")) {
        s->kind = POSITIONS;
    } else if (is_integer(wanted_type(d, i)) && in->is_label) {
        s->kind = FROM_NEXT_TOKENS;
    } else if (is_integer(wanted_type(d, i)) && !*has_ids) {
        s->kind = FROM_TOKENS, *has_ids = true;
    } else {
        return false;
    }
    return true;
}

static void open_tokens(sn_dataset *d, sn_diags *diags) {
    const char *path = d->options.path;
    bool has_ids = false;
    for (size_t i = 0; i < d->count; i++) {
        if (choose_token_source(d, i, &has_ids)) continue;
        sn_str help = {0};
        print_all_wanted(d, &help);
        sn_error(diags, "E0606", path, sn_str_text(&help),
                 "a token file cannot feed input '%s'; give a folder with one .npy per input", input_at(d, i)->name);
        sn_str_free(&help);
        return;
    }
    sn_status status = sn_file_map(path, &d->tokens);
    if (status) {
        sn_error(diags, "E0604", path, "check the path and its permissions", "%s", sn_status_message(status));
        sn_status_free(status);
        return;
    }
    if (d->tokens.bytes % (size_t)d->options.token_bytes)
        sn_error(diags, "E0604", path, "--token-bytes 4 reads uint32",
                 "is not a whole number of %" PRId64 "-byte tokens", d->options.token_bytes);
    d->n_tokens = (int64_t)d->tokens.bytes / d->options.token_bytes;
    d->samples = d->n_tokens > d->window ? (d->n_tokens - 1) / d->window : 0;
}

static void check_enough(sn_dataset *d, sn_diags *diags) {
    int64_t batch = d->options.batch;
    bool random = d->tokens.data && d->options.shuffle; // windows overlap: one is enough
    if (batch > 0) d->usable = d->samples / batch * batch;
    if (random ? d->samples > 0 : d->usable > 0) return;
    if (batch == 0) return; // nothing has a batch dimension
    sn_error(diags, "E0608", d->options.path, "give more data, or compile with a smaller --batch (or --dim)",
             "has %" PRId64 " samples, too few for a batch of %" PRId64, d->samples, batch);
}

static void add_inputs(sn_dataset *d, const sn_schedule *s) {
    for (size_t i = 0; i < s->inputs.count; i++) {
        const sn_data_input *in = &s->inputs.items[i];
        bool known = false;
        for (size_t k = 0; k < d->count; k++) known = known || !strcmp(input_at(d, k)->name, in->name);
        if (!known) d->sources[d->count++] = (source){.input = in, .buffer = &s->buffers.items[in->buffer]};
    }
}

sn_dataset *sn_dataset_open(const sn_schedules *all, int64_t class, const sn_dataset_options *options,
                            sn_diags *diags) {
    sn_dataset *d = sn_alloc(sizeof *d);
    size_t most = 1;
    for (size_t c = 0; c < all->classes.count; c++) most += all->classes.items[c].inputs.count;
    d->schedule = &all->classes.items[class], d->options = *options;
    d->sources = sn_alloc(most * sizeof *d->sources);
    add_inputs(d, d->schedule);
    for (size_t c = 0; c < all->classes.count; c++) add_inputs(d, &all->classes.items[c]);
    size_t errors = diags->errors;
    struct stat info;
    if (stat(options->path, &info) != 0) {
        sn_error(diags, "E0604", options->path, "check the path given with --data or --eval-data",
                 "there is no such file or folder");
    } else if (S_ISDIR(info.st_mode)) {
        open_folder(d, diags);
    } else {
        open_tokens(d, diags);
    }
    if (diags->errors == errors) check_enough(d, diags);
    if (diags->errors == errors) return d;
    sn_dataset_close(d);
    return NULL;
}

void sn_dataset_close(sn_dataset *d) {
    if (!d) return;
    for (size_t i = 0; i < d->count; i++) {
        sn_npy_close(&d->sources[i].npy);
        sn_str_free(&d->sources[i].path);
    }
    sn_file_unmap(&d->tokens);
    sn_free(d->sources);
    sn_free(d);
}

int64_t sn_dataset_samples(const sn_dataset *d) {
    return d->samples;
}

// The row of a folder that sample `sample` of the run is.
static int64_t row_of(const sn_dataset *d, int64_t sample) {
    int64_t at = sample % d->usable;
    if (!d->options.shuffle) return at;
    return sn_order_permuted(d->options.seed, (uint64_t)(sample / d->usable), d->samples, at);
}

static int64_t window_start(const sn_dataset *d, int64_t sample) {
    if (!d->options.shuffle) return sample % d->usable * d->window;
    return sn_order_uniform(d->options.seed, (uint64_t)sample, d->n_tokens - d->window);
}

static int64_t token_at(const sn_dataset *d, int64_t index) {
    return sn_load_i64(d->options.token_bytes == 2 ? SN_U16 : SN_U32, d->tokens.data, index);
}

// Elements of one sample.
static int64_t sample_size(const sn_data_input *in) {
    int64_t size = 1;
    for (size_t k = 0; k < in->shape.count; k++) size *= (int64_t)k == in->batch_dim ? 1 : in->shape.items[k];
    return size;
}

// Converts `count` elements; returns the index of one that does not fit, or -1.
static int64_t convert(sn_dtype from_type, const void *from, sn_dtype to_type, void *to, int64_t count) {
    if (from_type == to_type) {
        memcpy(to, from, (size_t)count * sn_dtype_bytes(to_type));
        return -1;
    }
    size_t size = sn_dtype_bytes(from_type);
    for (int64_t i = 0; i < count; i++) {
        uint64_t element; // files need not be aligned
        memcpy(&element, (const char *)from + (size_t)i * size, size);
        if (sn_dtype_is_float(to_type)) {
            sn_store_f64(to_type, to, i, sn_load_f64(from_type, &element, 0));
            continue;
        }
        int64_t value = sn_load_i64(from_type, &element, 0);
        sn_store_i64(to_type, to, i, value);
        if (sn_load_i64(to_type, to, i) != value) return i;
    }
    return -1;
}

// Writes sample `sample` of input `i` to `to`, dense; *row is where it came from. Returns as convert does.
static int64_t read_sample(const sn_dataset *d, size_t i, int64_t sample, void *to, int64_t *row) {
    const sn_data_input *in = input_at(d, i);
    const source *s = &d->sources[i];
    sn_dtype dtype = wanted_type(d, i);
    int64_t size = sample_size(in);
    if (s->kind == FROM_NPY) {
        *row = in->batch_dim >= 0 ? row_of(d, sample) : 0;
        size_t bytes = sn_dtype_bytes(s->npy.dtype) * (size_t)size;
        return convert(s->npy.dtype, (const char *)s->npy.data + (size_t)*row * bytes, dtype, to, size);
    }
    *row = window_start(d, sample);
    for (int64_t k = 0; k < size; k++) {
        int64_t value = s->kind == ONES        ? 1
                        : s->kind == POSITIONS ? k
                                               : token_at(d, *row + k + (s->kind == FROM_NEXT_TOKENS));
        if (sn_dtype_is_float(dtype)) {
            sn_store_f64(dtype, to, k, (double)value);
        } else {
            sn_store_i64(dtype, to, k, value);
            if (sn_load_i64(dtype, to, k) != value) return k;
        }
    }
    return -1;
}

static bool in_range(const sn_data_input *in, int64_t value) {
    return (value >= in->lo && value < in->hi) || (in->has_ignore && value == in->ignore_index);
}

static void say_out_of_range(const sn_dataset *d, size_t i, int64_t row, int64_t value, sn_diags *diags) {
    const sn_data_input *in = input_at(d, i);
    const char *path = d->tokens.data ? d->options.path : sn_str_text(&d->sources[i].path);
    sn_str help = {0};
    if (in->has_ignore) sn_str_printf(&help, "%" PRId64 " marks what the loss ignores", in->ignore_index);
    sn_error(diags, "E0607", path, help.length ? sn_str_text(&help) : NULL,
             "%s %" PRId64 " holds %" PRId64 ", but input '%s' takes values from %" PRId64 " to %" PRId64,
             d->tokens.data ? "the window at token" : "row", row, value, in->name, in->lo, in->hi - 1);
    sn_str_free(&help);
}

static bool check_values(const sn_dataset *d, size_t i, const void *values, int64_t row, sn_diags *diags) {
    const sn_data_input *in = input_at(d, i);
    if (!in->has_range || !is_integer(wanted_type(d, i))) return true;
    int64_t size = sample_size(in);
    for (int64_t k = 0; k < size; k++) {
        int64_t value = sn_load_i64(wanted_type(d, i), values, k);
        if (in_range(in, value)) continue;
        say_out_of_range(d, i, row, value, diags);
        return false;
    }
    return true;
}

// Puts the rows of a sample where they belong when the batch is not the first dimension: `outer` blocks of `inner`
// bytes, one every `pitch`.
static void scatter(const char *from, char *to, int64_t outer, size_t inner, size_t pitch) {
    for (int64_t k = 0; k < outer; k++) memcpy(to + (size_t)k * pitch, from + (size_t)k * inner, inner);
}

typedef struct cut {
    const char *from;
    char *to;
    size_t element;
} cut;

static sn_status take_run(void *user, int64_t first, int64_t local, int64_t count) {
    cut *c = user;
    memcpy(c->to + (size_t)local * c->element, c->from + (size_t)first * c->element, (size_t)count * c->element);
    return SN_OK;
}

// What the rank holds of a dense sample, dense again; the batch dimension apart. Returns its elements.
static int64_t cut_sample(const sn_dataset *d, size_t i, int64_t rank, const char *whole, char *to) {
    const sn_data_input *in = input_at(d, i);
    int64_t dims[SN_SHARD_MAX_RANK], masks[SN_SHARD_MAX_RANK], size = 1;
    size_t n = in->shape.count;
    for (size_t k = 0; k < n; k++) {
        bool batch = (int64_t)k == in->batch_dim;
        dims[k] = batch ? 1 : in->shape.items[k];
        masks[k] = batch || !in->sharding.count ? 0 : in->sharding.items[k];
    }
    sn_dims shape = {dims, n}, sharding = {masks, n};
    sn_region region;
    sn_shard_region(d->schedule, rank, &shape, &sharding, &region);
    for (size_t k = 0; k < n; k++) size *= region.size[k];
    cut c = {whole, to, sn_dtype_bytes(wanted_type(d, i))};
    sn_status_free(sn_shard_runs(&shape, &region, take_run, &c)); // take_run does not fail
    return size;
}

bool sn_dataset_fill(const sn_dataset *d, int64_t first, size_t i, int64_t rank, void *to, sn_diags *diags) {
    const sn_data_input *in = input_at(d, i);
    const sn_dims *shape = &d->sources[i].buffer->shape; // local
    int64_t batch_dim = in->batch_dim, local = batch_dim < 0 ? 1 : shape->items[batch_dim], outer = 1, row;
    size_t element = sn_dtype_bytes(wanted_type(d, i)), bytes = (size_t)sample_size(in) * element;
    for (int64_t k = 0; k < batch_dim; k++) outer *= shape->items[k];
    char *whole = sn_alloc(2 * bytes + 1), *part = whole + bytes;
    int64_t axes = batch_dim >= 0 && in->sharding.count ? in->sharding.items[batch_dim] : 0;
    first += sn_schedule_place(d->schedule, rank, axes) * local;
    bool good = true;
    for (int64_t b = 0; b < local && good; b++) {
        int64_t misfit = read_sample(d, i, first + b, whole, &row);
        if (misfit >= 0) {
            sn_error(diags, "E0603", sn_str_text(&d->sources[i].path),
                     "correct the row, or export the model with a wider input type",
                     "row %" PRId64 " holds a value that %s of input '%s' cannot hold", row,
                     sn_dtype_name(wanted_type(d, i)), in->name);
            good = false;
        }
        good = good && check_values(d, i, whole, row, diags);
        if (!good) break;
        size_t inner = (size_t)cut_sample(d, i, rank, whole, part) / (size_t)(outer ? outer : 1) * element;
        scatter(part, (char *)to + (size_t)b * inner, outer, inner, inner * (size_t)local);
    }
    sn_free(whole);
    return good;
}
