// Data sets: .npy headers, the order of samples, folders and token files, and what is refused.
#include "base/alloc.h"
#include "runtime/data/dataset.h"
#include "runtime/data/npy.h"
#include "runtime/data/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *data, size_t bytes) {
    sn_status status = sn_file_write(path_of(name), data, bytes);
    assert_string_equal(sn_status_message(status), "");
}

// Version 1, 2 or 3 with this dictionary.
static void write_npy(const char *name, int version, const char *dictionary, const void *data, size_t bytes) {
    sn_str file = {0};
    size_t length = strlen(dictionary);
    sn_str_append(&file, "\x93NUMPY", 6);
    sn_str_putc(&file, (char)version), sn_str_putc(&file, 0);
    sn_str_putc(&file, (char)length), sn_str_putc(&file, (char)(length >> 8));
    if (version > 1) sn_str_append(&file, "\0\0", 2);
    sn_str_puts(&file, dictionary);
    sn_str_append(&file, data, bytes);
    write_file(name, file.data, file.length);
    sn_str_free(&file);
}

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/sennit-data-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void npy_headers(void **state) {
    (void)state;
    float data[6] = {1, 2, 3, 4, 5, 6};
    sn_npy npy;
    for (int version = 1; version <= 3; version++) {
        write_npy("a.npy", version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", data,
                  sizeof data);
        assert_null(sn_npy_open(path_of("a.npy"), &npy));
        assert_int_equal(npy.dtype, SN_F32);
        assert_int_equal(npy.rank, 2);
        assert_int_equal(npy.shape[0] * 10 + npy.shape[1], 23);
        assert_memory_equal(npy.data, data, sizeof data);
        sn_npy_close(&npy);
    }
    write_npy("a.npy", 1, "{\"shape\":(6,),'fortran_order':False,'descr':'<f4'}", data, sizeof data);
    assert_null(sn_npy_open(path_of("a.npy"), &npy));
    assert_int_equal(npy.rank, 1);
    sn_npy_close(&npy);
    write_npy("a.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", data, 4);
    assert_null(sn_npy_open(path_of("a.npy"), &npy));
    assert_int_equal(npy.rank, 0);
    sn_npy_close(&npy);
}

static void bad_npy_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }", "Fortran order"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", "element type"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", "records"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }", "does not hold"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-6,), }", "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,4), }", "large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,6), }", "shape"},
        {"{'descr': '<f4', 'shape': (6,), }", "malformed header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)", "malformed header"},
        {"{'descr", "malformed header"},
        {"", "no header"},
    };
    float data[6] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_npy npy;
        write_npy("bad.npy", 1, cases[i].header, data, sizeof data);
        sn_status status = sn_npy_open(path_of("bad.npy"), &npy);
        if (!strstr(sn_status_message(status), cases[i].says))
            fail_msg("%s: '%s'", cases[i].header, sn_status_message(status));
        sn_status_free(status);
    }
    for (size_t length = 0; length < 12; length++) { // cut inside the fixed part
        sn_npy npy;
        write_file("bad.npy", "\x93NUMPY\1\0\xff\0{'", length);
        sn_status status = sn_npy_open(path_of("bad.npy"), &npy);
        assert_non_null(status);
        sn_status_free(status);
    }
}

static void permutations_are_permutations(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t n = sizes[k], moved = 0;
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            char *seen = sn_alloc((size_t)n);
            for (int64_t i = 0; i < n; i++) {
                int64_t at = sn_order_permuted(11, epoch, n, i);
                assert_in_range(at, 0, n - 1);
                assert_false(seen[at]);
                seen[at] = 1;
                moved += at != sn_order_permuted(11, epoch + 1, n, i);
            }
            sn_free(seen);
        }
        if (n >= 16) assert_true(moved > n); // epochs differ in most places
    }
}

static void windows_are_spread(void **state) {
    (void)state;
    int counts[10] = {0};
    for (uint64_t i = 0; i < 10000; i++) {
        int64_t x = sn_order_uniform(3, i, 1000);
        assert_in_range(x, 0, 999);
        counts[x / 100]++;
    }
    for (int k = 0; k < 10; k++) assert_in_range(counts[k], 850, 1150); // five deviations
    assert_int_equal(sn_order_uniform(3, 5, 1), 0);
    assert_int_not_equal(sn_order_uniform(3, 5, 1 << 30), sn_order_uniform(4, 5, 1 << 30));
}

static int64_t first_axis[] = {1, 0}; // dimension 0 over axis 0

// The schedule of one class.
static sn_dataset *open_schedule(const sn_schedule *s, const sn_dataset_options *options, sn_diags *diags) {
    static sn_schedules all;
    all = (sn_schedules){SN_SCHEDULE_VERSION, {(sn_schedule *)(uintptr_t)s, 1}};
    return sn_dataset_open(&all, 0, options, diags);
}

// Inputs "x" i64[4, 3], "labels" i32[4] and "scale" f32[2] (fixed), the batch cut over two ranks.
typedef struct model {
    int64_t x[2], x_local[2], labels[1], labels_local[1], scale[1];
    sn_schedule_axis mesh[1];
    sn_buffer buffers[3];
    sn_data_input inputs[3];
    sn_schedule schedule;
} model;

static void make_model(model *m) {
    *m = (model){.x = {4, 3}, .x_local = {2, 3}, .labels = {4}, .labels_local = {2}, .scale = {2}};
    m->mesh[0] = (sn_schedule_axis){"dp", 2};
    m->buffers[0] = (sn_buffer){"x", SN_I64, {m->x_local, 2}, 0, 48, 1, 0, {0}};
    m->buffers[1] = (sn_buffer){"labels", SN_I32, {m->labels_local, 1}, 64, 8, 1, 0, {0}};
    m->buffers[2] = (sn_buffer){"scale", SN_F32, {m->scale, 1}, 128, 8, 1, 0, {0}};
    m->inputs[0] = (sn_data_input){.name = "x", .buffer = 0, .shape = {m->x, 2}, .sharding = {first_axis, 2}};
    m->inputs[1] = (sn_data_input){.name = "labels",
                                   .buffer = 1,
                                   .shape = {m->labels, 1},
                                   .sharding = {first_axis, 1},
                                   .is_label = true,
                                   .has_range = true,
                                   .hi = 50,
                                   .has_ignore = true,
                                   .ignore_index = -100};
    m->inputs[2] = (sn_data_input){.name = "scale", .buffer = 2, .shape = {m->scale, 1}, .batch_dim = -1};
    m->schedule = (sn_schedule){.mesh = {m->mesh, 1},
                                .ranks = 2,
                                .micro_batches = 1,
                                .step_samples = 4,
                                .arena_bytes = 192,
                                .buffers = {m->buffers, 3},
                                .inputs = {m->inputs, 3}};
}

enum { ROWS = 11 };

static void write_folder(int64_t bad_label) {
    int32_t x[ROWS][3];
    int64_t labels[ROWS];
    double scale[2] = {0.5, 2};
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 3; k++) x[i][k] = 10 * i + k;
        labels[i] = i == 5 ? bad_label : i;
    }
    write_npy("x.npy", 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (11, 3), }", x, sizeof x);
    write_npy("labels.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (11,), }", labels, sizeof labels);
    write_npy("scale.npy", 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", scale, sizeof scale);
}

static sn_dataset *open_path(const model *m, const char *path, bool shuffle, sn_diags *diags) {
    sn_dataset_options options = {.path = path, .token_bytes = 2, .seed = 9, .batch = 4, .shuffle = shuffle};
    return open_schedule(&m->schedule, &options, diags);
}

static void folders_feed_ranks(void **state) {
    (void)state;
    model m;
    make_model(&m);
    write_folder(-100);
    sn_diags diags = {0};
    for (int shuffle = 0; shuffle <= 1; shuffle++) {
        sn_dataset *d = open_path(&m, folder, shuffle, &diags);
        assert_non_null(d);
        assert_int_equal(sn_dataset_samples(d), ROWS);
        bool seen[ROWS] = {0};
        for (int64_t step = 0; step < 4; step++) { // two epochs of two batches; three rows are left over
            for (int64_t rank = 0; rank < 2; rank++) {
                int64_t x[2][3];
                int32_t labels[2];
                float scale[2];
                assert_true(sn_dataset_fill(d, 4 * step, 0, rank, x, &diags));
                assert_true(sn_dataset_fill(d, 4 * step, 1, rank, labels, &diags));
                assert_true(sn_dataset_fill(d, 4 * step, 2, rank, scale, &diags));
                assert_true(scale[0] == 0.5f && scale[1] == 2);
                for (int b = 0; b < 2; b++) {
                    int64_t row = x[b][0] / 10;
                    assert_int_equal(x[b][2], 10 * row + 2);
                    assert_int_equal(labels[b], row == 5 ? -100 : row); // the inputs stay together
                    if (!shuffle) assert_int_equal(row, (4 * step) % 8 + 2 * rank + b);
                    if (step < 2) {
                        assert_false(seen[row]);
                        seen[row] = true;
                    }
                }
            }
        }
        sn_dataset_close(d);
    }
    assert_int_equal(diags.errors, 0);
    sn_diags_free(&diags);
}

static void assert_says(sn_diags *diags, const char *code, const char *text) {
    bool found = false;
    for (size_t i = 0; i < diags->count; i++) {
        const sn_diag *d = &diags->items[i];
        found = found || (!strcmp(d->code, code) && (strstr(d->message, text) || (d->help && strstr(d->help, text))));
    }
    if (!found) {
        sn_diags_print(diags, 0, true, stdout);
        fail_msg("no %s with '%s'", code, text);
    }
    sn_diags_free(diags);
}

static void bad_folders_are_refused(void **state) {
    (void)state;
    model m;
    sn_diags diags = {0};
    make_model(&m);
    write_folder(50); // a label that the model does not have
    sn_dataset *d = open_path(&m, folder, false, &diags);
    int32_t labels[2];
    assert_true(sn_dataset_fill(d, 0, 1, 0, labels, &diags));
    assert_false(sn_dataset_fill(d, 4, 1, 0, labels, &diags));
    assert_says(&diags, "E0607", "row 5 holds 50, but input 'labels' takes values from 0 to 49");
    sn_dataset_close(d);

    write_folder(INT64_C(1) << 40);
    d = open_path(&m, folder, false, &diags);
    assert_false(sn_dataset_fill(d, 4, 1, 0, labels, &diags));
    assert_says(&diags, "E0603", "row 5");
    sn_dataset_close(d);

    m.x[1] = m.x_local[1] = 4;
    assert_null(open_path(&m, folder, false, &diags));
    assert_says(&diags, "E0602", "has shape [11, 3], but input 'x' wants i64[samples, 4]");
    make_model(&m);
    m.buffers[0].dtype = SN_F32;
    assert_null(open_path(&m, folder, false, &diags));
    assert_says(&diags, "E0603", "holds i32");
    make_model(&m);
    m.inputs[2].name = "weight";
    assert_null(open_path(&m, folder, false, &diags));
    assert_says(&diags, "E0601", "weight.npy f32[2]");
    make_model(&m);
    m.x[0] = m.labels[0] = 12;
    sn_dataset_options options = {.path = folder, .batch = 12};
    assert_null(open_schedule(&m.schedule, &options, &diags));
    assert_says(&diags, "E0608", "11 samples");
    int64_t short_labels[3] = {0};
    write_npy("labels.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", short_labels, 24);
    make_model(&m);
    assert_null(open_path(&m, folder, false, &diags));
    assert_says(&diags, "E0605", "'labels' has 3 rows");
    assert_null(open_path(&m, "/nowhere", false, &diags));
    assert_says(&diags, "E0604", "no such file");
}

static void extra_files_are_named_once(void **state) {
    (void)state;
    model m;
    sn_diags diags = {0};
    make_model(&m);
    write_folder(0);
    write_npy("unused.npy", 1, "{}", NULL, 0);
    sn_dataset_close(open_path(&m, folder, false, &diags));
    assert_int_equal(diags.count, 1);
    assert_says(&diags, "W0601", "unused.npy");
}

// The batch as the second dimension: columns are samples.
static void batch_dimension_need_not_be_first(void **state) {
    (void)state;
    int64_t shape[2] = {3, 4}, local[2] = {3, 2}, second_axis[] = {0, 1};
    sn_schedule_axis mesh[1] = {{"dp", 2}};
    sn_buffer buffer = {"x", SN_I32, {local, 2}, 0, 24, 1, 0, {0}};
    sn_data_input input = {.name = "x", .shape = {shape, 2}, .batch_dim = 1, .sharding = {second_axis, 2}};
    sn_schedule s = {.mesh = {mesh, 1}, .ranks = 2, .step_samples = 4, .buffers = {&buffer, 1}, .inputs = {&input, 1}};
    write_folder(0);
    sn_diags diags = {0};
    sn_dataset_options options = {.path = folder, .batch = 4};
    sn_dataset *d = open_schedule(&s, &options, &diags);
    assert_non_null(d);
    int32_t x[3][2];
    assert_true(sn_dataset_fill(d, 0, 0, 1, x, &diags));
    for (int k = 0; k < 3; k++) {
        for (int b = 0; b < 2; b++) assert_int_equal(x[k][b], 10 * (2 + b) + k);
    }
    sn_dataset_close(d);
    sn_diags_free(&diags);
}

static void token_files_make_windows(void **state) {
    (void)state;
    int64_t ids[2] = {4, 5}, local[2] = {2, 5};
    sn_schedule_axis mesh[1] = {{"dp", 2}};
    sn_buffer buffers[4] = {{"input_ids", SN_I64, {local, 2}, 0, 80, 1, 0, {0}},
                            {"labels", SN_I64, {local, 2}, 128, 80, 1, 0, {0}},
                            {"attention_mask", SN_F32, {local, 2}, 256, 40, 1, 0, {0}},
                            {"position_ids", SN_I64, {local, 2}, 0, 80, 1, 0, {0}}};
    sn_data_input inputs[4] = {
        {.name = "input_ids", .buffer = 0, .shape = {ids, 2}, .sharding = {first_axis, 2}, .has_range = true, .hi = 52},
        {.name = "labels", .buffer = 1, .shape = {ids, 2}, .sharding = {first_axis, 2}, .is_label = true},
        {.name = "attention_mask", .buffer = 2, .shape = {ids, 2}, .sharding = {first_axis, 2}},
        {.name = "position_ids", .buffer = 3, .shape = {ids, 2}, .sharding = {first_axis, 2}}};
    sn_schedule s = {.mesh = {mesh, 1}, .ranks = 2, .step_samples = 4, .buffers = {buffers, 4}, .inputs = {inputs, 4}};
    uint16_t tokens[52];
    for (int i = 0; i < 52; i++) tokens[i] = (uint16_t)i;
    write_file("tokens.bin", tokens, sizeof tokens);
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("tokens.bin"));
    sn_diags diags = {0};
    for (int shuffle = 0; shuffle <= 1; shuffle++) {
        sn_dataset_options options = {.path = path, .token_bytes = 2, .batch = 4, .shuffle = shuffle, .seed = 1};
        sn_dataset *d = open_schedule(&s, &options, &diags);
        assert_non_null(d);
        assert_int_equal(sn_dataset_samples(d), 10);
        int64_t x[2][5], next[2][5], position[2][5];
        float mask[2][5];
        for (int64_t step = 0; step < 30; step++) {
            assert_true(sn_dataset_fill(d, 4 * step, 0, 1, x, &diags) &&
                        sn_dataset_fill(d, 4 * step, 1, 1, next, &diags));
            assert_true(sn_dataset_fill(d, 4 * step, 2, 1, mask, &diags));
            assert_true(sn_dataset_fill(d, 4 * step, 3, 1, position, &diags));
            for (int b = 0; b < 2; b++) {
                for (int k = 0; k < 5; k++) {
                    assert_int_equal(x[b][k], x[b][0] + k);
                    assert_int_equal(next[b][k], x[b][k] + 1);
                    assert_true(mask[b][k] == 1 && position[b][k] == k);
                }
                if (!shuffle) assert_int_equal(x[b][0], ((4 * step) % 8 + 2 + b) * 5);
            }
        }
        sn_dataset_close(d);
    }
    tokens[7] = 60;
    write_file("tokens.bin", tokens, sizeof tokens);
    sn_dataset_options options = {.path = path, .token_bytes = 2, .batch = 4};
    sn_dataset *d = open_schedule(&s, &options, &diags);
    int64_t x[2][5];
    assert_false(sn_dataset_fill(d, 0, 0, 0, x, &diags));
    assert_says(&diags, "E0607", "the window at token 5 holds 60");
    sn_dataset_close(d);
    write_file("tokens.bin", tokens, 5 * sizeof *tokens);
    assert_null(open_schedule(&s, &options, &diags));
    assert_says(&diags, "E0608", "0 samples");
    inputs[2].name = "pixels";
    assert_null(open_schedule(&s, &options, &diags));
    assert_says(&diags, "E0606", "cannot feed input 'pixels'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(npy_headers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_npy_is_refused, set_up, tear_down),
        cmocka_unit_test(permutations_are_permutations),
        cmocka_unit_test(windows_are_spread),
        cmocka_unit_test_setup_teardown(folders_feed_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_folders_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(extra_files_are_named_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(batch_dimension_need_not_be_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(token_files_make_windows, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
