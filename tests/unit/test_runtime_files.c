// Checkpoints' file format, packages, run options, learning rates.
#include "base/alloc.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/lr_schedule.h"
#include "runtime/options.h"
#include "runtime/package.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];

static int set_up(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/sennit-file-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? 1 : close(fd);
}

static int tear_down(void **state) {
    (void)state;
    return unlink(path);
}

static void must(sn_status status) {
    assert_string_equal(sn_status_message(status), "");
}

static void assert_refused(sn_status status, const char *part) {
    if (!strstr(sn_status_message(status), part)) fail_msg("'%s' lacks '%s'", sn_status_message(status), part);
    sn_status_free(status);
}

static void tensors_read_back(void **state) {
    (void)state;
    int64_t shape[2] = {2, 3}, empty[2] = {0, 5};
    float values[6] = {1, 2, 3, 4, 5, -0.0f};
    int64_t step = 7;
    const sn_tensor_entry entries[] = {{"w \"1\"/é", SN_F32, {shape, 2}, NULL, 0},
                                       {"empty", SN_BF16, {empty, 2}, NULL, 0},
                                       {"step", SN_I64, {0}, NULL, 0}};
    const sn_tensor_note notes[] = {{"format", "x"}, {"loss", "1\n2"}};
    sn_safetensors_writer writer;
    must(sn_safetensors_create(path, entries, 3, notes, 2, &writer));
    sn_safetensors_append(&writer, values, 8);
    sn_safetensors_append(&writer, values + 2, 16);
    sn_safetensors_append(&writer, &step, sizeof step);
    must(sn_safetensors_commit(&writer));

    sn_safetensors file;
    must(sn_safetensors_open(path, &file));
    assert_int_equal(file.tensors.count, 3);
    const sn_tensor_entry *w = sn_safetensors_find(&file, entries[0].name);
    assert_int_equal(w->dtype, SN_F32);
    assert_int_equal(w->shape.items[1], 3);
    assert_memory_equal(w->data, values, sizeof values);
    assert_memory_equal(sn_safetensors_find(&file, "step")->data, &step, sizeof step);
    assert_int_equal((uintptr_t)w->data % 64, 0);
    assert_null(sn_safetensors_find(&file, "nothing"));
    assert_string_equal(sn_safetensors_note(&file, "loss"), "1\n2");
    sn_safetensors_close(&file);
}

static void write_raw(const char *header, size_t data_bytes) {
    sn_str text = {0};
    uint64_t length = strlen(header);
    sn_str_append(&text, (const char *)&length, 8);
    sn_str_puts(&text, header);
    for (size_t i = 0; i < data_bytes; i++) sn_str_putc(&text, 0);
    must(sn_file_write(path, text.data, text.length));
    sn_str_free(&text);
}

static void hostile_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        {"{", 0, "malformed header"},
        {"[]", 0, "malformed header"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "outside the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "tensor's size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "outside the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "shape is malformed"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,2,2],\"data_offsets\":[0,0]}}", 0, "large"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "large"},
        {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown type"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no type"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "no byte range"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "shape is malformed"},
        {"{\"a\":3}", 0, "no type"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
         "\"data_offsets\":[1,3]}}",
         3, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, "holes"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3, "belong to no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
         "\"data_offsets\":[0,1]}}",
         1, "malformed header"},
    };
    sn_safetensors file;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_raw(cases[i].header, cases[i].data);
        sn_status status = sn_safetensors_open(path, &file);
        if (!strstr(sn_status_message(status), cases[i].says))
            fail_msg("%s: '%s'", cases[i].header, sn_status_message(status));
        sn_status_free(status);
    }
    must(sn_file_write(path, "1234567", 7));
    assert_refused(sn_safetensors_open(path, &file), "too short");
    must(sn_file_write(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
    assert_refused(sn_safetensors_open(path, &file), "longer than the file");
}

static void a_discarded_file_leaves_nothing(void **state) {
    (void)state;
    must(sn_file_write(path, "before", 6));
    int64_t shape[1] = {4};
    sn_safetensors_writer writer;
    must(sn_safetensors_create(path, &(sn_tensor_entry){"w", SN_U8, {shape, 1}, NULL, 0}, 1, NULL, 0, &writer));
    sn_safetensors_append(&writer, "ab", 2);
    sn_safetensors_discard(&writer);
    sn_mapped_file file;
    must(sn_file_map(path, &file));
    assert_memory_equal(file.data, "before", 6);
    sn_file_unmap(&file);
}

// A rename would have replaced the pipe, or the link, by a plain file.
static void pipes_and_links_stay_what_they_are(void **state) {
    (void)state;
    char pipe_path[80], link_path[80], text[8] = "";
    snprintf(pipe_path, sizeof pipe_path, "%s.pipe", path);
    snprintf(link_path, sizeof link_path, "%s.link", path);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    int fd = open(pipe_path, O_RDWR); // with a reader, opening it to write does not wait
    assert_true(fd >= 0);
    must(sn_file_write(pipe_path, "through", 7));
    assert_int_equal(read(fd, text, 7), 7);
    assert_string_equal(text, "through");
    close(fd);
    struct stat info;
    assert_int_equal(lstat(pipe_path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(unlink(pipe_path), 0);

    assert_int_equal(symlink(path, link_path), 0);
    must(sn_file_write(link_path, "linked", 6));
    assert_int_equal(lstat(link_path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(unlink(link_path), 0);
    sn_mapped_file file;
    must(sn_file_map(path, &file));
    assert_memory_equal(file.data, "linked", 6);
    sn_file_unmap(&file);
}

static void packages_read_back(void **state) {
    (void)state;
    char out[80];
    snprintf(out, sizeof out, "%s.out", path);
    must(sn_file_write(path, "#!program", 9));
    sn_package package = {.schedule = {"{}", 2}, .constants = {"abc", 3}}, read;
    must(sn_package_write(&package, path, out));
    struct stat info;
    assert_int_equal(stat(out, &info), 0);
    assert_true(info.st_mode & S_IXUSR);
    must(sn_package_open(out, &read));
    assert_int_equal(read.schedule.bytes, 2);
    assert_memory_equal(read.schedule.data, "{}", 2);
    assert_int_equal(read.kernels.bytes, 0);
    assert_memory_equal(read.constants.data, "abc", 3);
    assert_memory_equal(read.file.data, "#!program", 9);
    sn_package_close(&read);
    assert_refused(sn_package_open(path, &read), "carries no training program");
    assert_int_equal(truncate(out, info.st_size - 1), 0);
    assert_refused(sn_package_open(out, &read), "carries no training program");
    unlink(out);
}

static sn_status parse(sn_run_options *options, int argc, const char *const *argv) {
    sn_run_options_init(options);
    sn_status status = sn_run_options_parse(options, argc, (char **)(uintptr_t)argv);
    return status ? status : sn_run_options_check(options);
}
#define PARSE(...)                                                                                                     \
    parse(&options, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *const[]){__VA_ARGS__})

static void options_parse(void **state) {
    (void)state;
    sn_run_options options;
    must(PARSE("--data", "d", "--steps=10", "--lr", "1e-3", "--no-shuffle", "--schedule=cosine", "--seed", "-4",
               "--save-gradients", "3:a:b"));
    assert_int_equal(options.steps, 10);
    assert_true(options.lr == 1e-3 && options.no_shuffle);
    assert_int_equal(options.seed, -4);
    assert_int_equal(options.token_bytes, 2);
    int64_t step;
    const char *file;
    sn_run_options_gradients(&options, &step, &file);
    assert_int_equal(step, 3);
    assert_string_equal(file, "a:b");
    must(sn_run_options_set(&options, "no-shuffle", "false"));
    assert_false(options.no_shuffle);
    assert_refused(PARSE("--data", "d"), "--steps is missing");
    assert_refused(PARSE("--steps", "1"), "--data is missing");
    assert_refused(PARSE("--steps"), "wants N");
    assert_refused(PARSE("--step", "1"), "no option --step; did you mean --steps");
    assert_refused(PARSE("steps", "1"), "not an option");
    assert_refused(PARSE("--steps", "1x"), "not an integer");
    assert_refused(PARSE("--steps", "-1"), "negative");
    assert_refused(PARSE("--lr", "nan"), "not a number");
    assert_refused(PARSE("--schedule", "lin"), "not one of");
    assert_refused(PARSE("--data", "d", "--steps", "2", "--lr", "1e-3", "--min-lr", "1e-2"), "is above --lr 0.001");
    must(PARSE("--data", "d", "--steps", "2", "--lr", "1e-3", "--min-lr", "1e-3"));
    assert_refused(PARSE("--schedule", "constant|cosine"), "not one of");
    assert_refused(PARSE("--data", "d", "--steps", "2", "--save-gradients", "3:x"), "STEP:FILE");
    assert_refused(PARSE("--data", "d", "--steps", "2", "--eval-every", "3"), "--eval-data");
    assert_refused(PARSE("--data", "d", "--steps", "2", "--checkpoint-every", "3"), "--checkpoint DIR");
    assert_refused(PARSE("--data", "d", "--steps", "2", "--token-bytes", "3"), "2 or 4");
    assert_refused(PARSE("--no-shuffle=maybe"), "takes no value");
}

static void learning_rates(void **state) {
    (void)state;
    sn_lr_schedule s = {SN_LR_COSINE, 1e-3, 1e-4, 100, 2000};
    assert_true(fabs(sn_lr_at(&s, 0) - 1e-5) < 1e-15);
    assert_true(fabs(sn_lr_at(&s, 99) - 1e-3) < 1e-15);
    assert_true(fabs(sn_lr_at(&s, 100) - 1e-3) < 1e-15);
    assert_true(fabs(sn_lr_at(&s, 1050) - 5.5e-4) < 1e-15);
    assert_true(fabs(sn_lr_at(&s, 2000) - 1e-4) < 1e-15);
    s.shape = SN_LR_LINEAR;
    assert_true(fabs(sn_lr_at(&s, 1050) - 5.5e-4) < 1e-15);
    assert_true(fabs(sn_lr_at(&s, 5000) - 1e-4) < 1e-15);
    s.shape = SN_LR_CONSTANT;
    assert_true(sn_lr_at(&s, 1050) == 1e-3);
    s.warmup = 0;
    assert_true(sn_lr_at(&s, 0) == 1e-3);
    assert_int_equal(sn_lr_shape_from_name("linear"), SN_LR_LINEAR);
    assert_int_equal(sn_lr_shape_from_name("cubic"), SN_LR_SHAPE_COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_read_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_headers_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_discarded_file_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pipes_and_links_stay_what_they_are, set_up, tear_down),
        cmocka_unit_test_setup_teardown(packages_read_back, set_up, tear_down),
        cmocka_unit_test(options_parse),
        cmocka_unit_test(learning_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
