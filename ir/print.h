// The text of a module: one grammar for the three forms. The printed text parses back to a module that prints the same.
//
//   sennit 1 dist "gpt2"
//   mesh [dp=2, tp=4]
//   param @wo : f32[64,64]{tp,-} from "model.onnx.data" at 4096
//   func @step(%x: f32[8,64]{dp,-}) {
//     %o  = matmul(%x, @wo)            : f32[8,64]{dp,-}+tp  backward  !"/L.0/o/MatMul"
//     %o1 = all_reduce(%o) <axes="tp"> : f32[8,64]{dp,-}     stream 1  !"/L.0/o/MatMul" <- distribute
//     return %o1 "y"
//   }
//
// Names that are not identifiers are quoted: @"h.0/attn w". Comments run from // to the end of the line.
#pragma once
#include "base/file.h"
#include "base/status.h"
#include "ir/graph.h"

typedef struct sn_stored_constant {
    uint64_t hash;
    int64_t offset, bytes;
} sn_stored_constant;

// A side file for constants that are too large to be read; dumps of one run share it. Set `path`, zero the rest.
typedef struct sn_constant_store {
    const char *path;
    sn_atomic_file file;               // opened at the first constant
    int64_t bytes;                     // written
    SN_VEC(sn_stored_constant) stored; // equal data is stored once
    sn_status failure;                 // to open it: close says so
} sn_constant_store;
// Until then the file is not there, or the one that was.
SN_MUST_USE sn_status sn_constant_store_close(sn_constant_store *store);

// Appends the module's text. Constants in memory with more than 64 elements go to `store`; without one (NULL) they too
// are written out.
void sn_print(sn_str *out, sn_module *module, sn_constant_store *store);
SN_MUST_USE sn_status sn_print_file(sn_module *module, sn_constant_store *store, const char *path); // atomically
// For a debugger or the message of a bug: large constants are left out.
void sn_print_stderr(sn_module *module);
void sn_print_op(sn_str *out, sn_op *op); // one line, without its origin

const char *sn_form_name(sn_form form);
const char *sn_phase_name(sn_phase phase);
const char *sn_role_name(sn_role role); // the keyword: "param", …
