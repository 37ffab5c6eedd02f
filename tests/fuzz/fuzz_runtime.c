// libFuzzer target of what a train executable reads: the first byte picks a schedule, a .npy or a safetensors file.
// Each is refused with a message, or can be read where it says its data lies.
#include "backend/verify/verify.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/npy.h"
#include "runtime/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t sum(const void *data, size_t bytes) {
    uint8_t total = 0;
    for (size_t i = 0; i < bytes; i++) total += ((const uint8_t *)data)[i];
    return total;
}

static uint8_t read_npy(const char *path, sn_status *status) {
    sn_npy npy;
    *status = sn_npy_open(path, &npy);
    if (*status) return 0;
    size_t bytes = sn_dtype_bytes(npy.dtype);
    for (size_t i = 0; i < npy.rank; i++) bytes *= (size_t)npy.shape[i];
    uint8_t total = sum(npy.data, bytes);
    sn_npy_close(&npy);
    return total;
}

static uint8_t read_safetensors(const char *path, sn_status *status) {
    sn_safetensors file;
    *status = sn_safetensors_open(path, &file);
    if (*status) return 0;
    uint8_t total = 0;
    for (size_t i = 0; i < file.tensors.count; i++)
        total += sum(file.tensors.items[i].data, file.tensors.items[i].bytes);
    sn_safetensors_close(&file);
    return total;
}

// What is read must write and read back to the same text, and be proved or refuted.
static uint8_t read_schedule(const char *text, size_t size, sn_status *status) {
    sn_arena arena = {0};
    sn_schedules schedules;
    *status = sn_schedules_read(text, size, &arena, &schedules);
    if (!*status) {
        sn_str once = {0}, twice = {0};
        sn_schedules_write(&schedules, &once);
        sn_status again = sn_schedules_read(once.data, once.length, &arena, &schedules);
        if (again) SN_BUG("%s", sn_status_message(again));
        sn_schedules_write(&schedules, &twice);
        SN_CHECK(!strcmp(once.data, twice.data));
        sn_findings findings = {0};
        sn_schedules_verify(&schedules, 0, &arena, &findings);
        for (size_t i = 0; i < findings.count; i++) SN_CHECK(*findings.data[i].text);
        sn_vec_free(&findings);
        sn_str_free(&once), sn_str_free(&twice);
    }
    sn_arena_free(&arena);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static volatile uint8_t sink;
    if (!size) return 0;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)size - 1) abort();
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    sn_status status = SN_OK;
    switch (data[0] % 3) {
    case 0:
        sink = read_npy(path, &status);
        break;
    case 1:
        sink = read_safetensors(path, &status);
        break;
    case 2:
        sink = read_schedule((const char *)data + 1, size - 1, &status);
        break;
    }
    (void)sink;
    if (status && !*sn_status_message(status)) SN_BUG("refused without a message");
    sn_status_free(status);
    close(fd);
    return 0;
}
