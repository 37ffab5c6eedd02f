// One of ONNX's backend tests: a folder with model.onnx and test_data_set_N/{input_i,output_i}.pb.
#pragma once
#include "base/str.h"
#include "ir/interp.h"

typedef enum verdict { PASS, UNSUPPORTED, WRONG, CRASH, VERDICT_COUNT } verdict;

// Computes all results of @main (freed by the caller with sn_tensor_free). PASS, or another verdict with the reason.
typedef verdict executor(sn_module *module, const sn_func *func, const sn_tensor *args, sn_tensor *results,
                         sn_str *reason);
executor run_interpreted, run_compiled;

// What the test is about: its only node's operator, or how many nodes there are.
void case_subject(const char *folder, sn_str *out);
// Runs every data set of the test.
verdict run_case(const char *folder, executor *execute, sn_str *reason);
