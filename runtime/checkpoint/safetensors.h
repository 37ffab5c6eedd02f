// The safetensors format (huggingface.co/docs/safetensors): eight bytes of header length, a JSON header that gives each
// tensor's type, shape and byte range, then the data.
#pragma once
#include "base/dtype.h"
#include "base/file.h"
#include "base/status.h"
#include "runtime/schedule.h"

typedef struct sn_tensor_entry {
    const char *name;
    sn_dtype dtype;
    sn_dims shape;
    const void *data; // reader: inside the map, unaligned perhaps; writer: unused
    size_t bytes;     // writer: unused
} sn_tensor_entry;

typedef struct sn_tensor_note { // an entry of __metadata__
    const char *key, *value;
} sn_tensor_note;

typedef struct sn_safetensors {
    sn_mapped_file file;
    sn_arena arena;
    SN_LIST(sn_tensor_entry) tensors; // in the order of the data
    SN_LIST(sn_tensor_note) notes;
} sn_safetensors;

// Maps a file and checks its header completely: what is returned can be read without looking. Errors name the file.
SN_MUST_USE sn_status sn_safetensors_open(const char *path, sn_safetensors *out);
void sn_safetensors_close(sn_safetensors *file);
const sn_tensor_entry *sn_safetensors_find(const sn_safetensors *file, const char *name); // NULL when absent
const char *sn_safetensors_note(const sn_safetensors *file, const char *key);             // NULL when absent

// Writing: all entries are announced, then their data is appended in the same order. The file appears, complete, at
// the commit.
typedef struct sn_safetensors_writer {
    sn_atomic_file file;
    uint64_t missing; // bytes announced and not yet appended
} sn_safetensors_writer;
SN_MUST_USE sn_status sn_safetensors_create(const char *path, const sn_tensor_entry *entries, size_t count,
                                            const sn_tensor_note *notes, size_t n_notes, sn_safetensors_writer *out);
void sn_safetensors_append(void *writer, const void *data, size_t bytes); // of type sn_safetensors_writer
SN_MUST_USE sn_status sn_safetensors_commit(sn_safetensors_writer *writer);
void sn_safetensors_discard(sn_safetensors_writer *writer);
