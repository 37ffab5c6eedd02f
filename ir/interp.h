// The reference interpreter: what every operator of ir/ops.def means, written for being obviously right. It folds
// constants in the frontend and is the oracle that gradients, passes and generated kernels are tested against.
//
// Floats are computed and accumulated in double and rounded once to the result's element type; integers wrap in their
// width. Not thread-safe for one sn_interp; sn_evaluate is.
#pragma once
#include "ir/graph.h"

typedef struct sn_tensor {
    sn_type type;
    void *data; // row-major
} sn_tensor;

sn_tensor sn_tensor_new(sn_type type); // zeroed; free with sn_tensor_free
void sn_tensor_free(sn_tensor *tensor);

// Computes the results of one op. `operands` has op->n_operands tensors; the caller sets the types and allocates the
// data of `results` (the op's result types, but float types may be other ones, as long as they are so consistently).
// Collectives act as on a mesh of one rank; a kernel runs its body. Returns NULL, or a phrase that says what is wrong
// with the values ("index out of range").
const char *sn_evaluate(const sn_op *op, const sn_tensor *operands, sn_tensor *results);

// Runs functions of a module and holds its globals, which start from their sources and are changed by `assign`.
typedef struct sn_interp sn_interp;

sn_interp *sn_interp_new(const sn_module *module); // the module must outlive it
void sn_interp_free(sn_interp *interp);
// Computes in f64 whatever float type the program states (for central differences). Globals that were read or set
// before are converted.
void sn_interp_set_f64(sn_interp *interp, bool on);

// A global's whole tensor, owned by the interpreter; the caller may write to the data. NULL with *problem set when its
// source cannot be read.
sn_tensor *sn_interp_global(sn_interp *interp, const sn_global *global, const char **problem);

// Runs a function of any form. Arguments and results are whole tensors: on a mesh, arguments are cut as their layouts
// say, all ranks run in lockstep, and results are joined. `args` has one tensor per argument, of any float type where
// the argument is a float. `results` receives new tensors that the caller frees. `assign` takes effect at the end of
// the function, in order. Returns NULL, or what is wrong (valid until the next run), with no results.
const char *sn_interp_run(sn_interp *interp, const sn_func *func, const sn_tensor *args, sn_tensor *results);
// Runs functions that wait for each other, as the stages of a pipeline do: each goes on until a `recv` finds that
// nothing was sent on its channel. args[i] and results[i] are those of funcs[i]. What was sent and not received stays
// for later runs; a channel's values are received in order. Assignments take effect when all have ended.
const char *sn_interp_run_all(sn_interp *interp, int n, sn_func *const *funcs, const sn_tensor *const *args,
                              sn_tensor *const *results);
// Whether something was sent on the channel of each `recv` of the function.
bool sn_interp_is_ready(const sn_interp *interp, const sn_func *func);
