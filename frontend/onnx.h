// ONNX models: opening one, what is in it, turning it into graph form, and writing trained weights back.
#pragma once
#include "base/diag.h"
#include "base/status.h"
#include "ir/graph.h"

// The opsets whose operator definitions are known. An operator whose definition is the same in an older or a newer
// opset is taken from there as well.
enum { SN_ONNX_MIN_OPSET = 13, SN_ONNX_MAX_OPSET = 24 };

typedef struct sn_onnx_model sn_onnx_model;

// Opens a model file. Tensor data stays in the file (mapped); external data is opened when it is needed, inside the
// model's folder alone. NULL when diags got errors.
sn_onnx_model *sn_onnx_open(const char *path, sn_diags *diags);
// The same for those who need shapes alone (`sennit plan`): external data that is not there is no error, its globals
// then have a path and no data.
sn_onnx_model *sn_onnx_open_shapes(const char *path, sn_diags *diags);
// The same from memory, which must outlive the model. `name` is used in diagnostics; there is no folder, so external
// data is an error.
sn_onnx_model *sn_onnx_open_memory(const void *data, size_t bytes, const char *name, sn_diags *diags);
// Modules imported from the model point into its mappings: close it after them.
void sn_onnx_close(sn_onnx_model *model);

typedef struct sn_onnx_dim {
    int64_t size;       // -1 when symbolic
    const char *symbol; // the name `--dim` binds; for an unnamed dim "input.axis"
} sn_onnx_dim;

// An input or output of the model.
typedef struct sn_onnx_port {
    const char *name;
    const char *problem; // why it cannot be a tensor here ("a sequence"), or NULL
    sn_dtype dtype;      // SN_DTYPE_COUNT when there is a problem, or when an output's type is not stated
    int rank;            // -1 when not stated
    sn_onnx_dim dim[SN_MAX_RANK];
} sn_onnx_port;

typedef enum sn_onnx_kind {
    SN_ONNX_UNMARKED,  // the exporter left no mark
    SN_ONNX_PARAMETER, // marked PARAMETER by torch.export
    SN_ONNX_BUFFER,    // marked BUFFER by torch.export
} sn_onnx_kind;

typedef struct sn_onnx_weight {
    const char *name;
    const char *problem; // why its data cannot be used ("element type 8 (string)"), or NULL
    sn_type type;
    sn_onnx_kind kind;
    bool external;
} sn_onnx_weight;

typedef struct sn_onnx_operator {
    const char *type, *domain; // domain "" is ONNX's own
    size_t nodes;              // of the main graph
    bool supported;            // by the importer, or by a function of the model
} sn_onnx_operator;

typedef struct sn_onnx_info {
    const char *path, *graph_name, *producer, *producer_version;
    int64_t ir_version, opset; // opset of the default domain; 0 when the model states none
    size_t n_inputs, n_outputs, n_weights, n_nodes, n_functions;
    size_t n_operators;
    const sn_onnx_operator *operators;    // by name
    const sn_onnx_port *inputs, *outputs; // inputs without those that are initializers
    const sn_onnx_weight *weights;
    bool marked; // some weight carries the exporter's mark: an unmarked one is something the exporter folded
} sn_onnx_info;
const sn_onnx_info *sn_onnx_info_of(const sn_onnx_model *model);

typedef enum sn_onnx_mode {
    SN_ONNX_AS_EXPORTED,
    SN_ONNX_TRAINING,  // every Dropout and BatchNormalization as in training
    SN_ONNX_INFERENCE, // every one as in inference
} sn_onnx_mode;

typedef struct sn_onnx_binding {
    const char *symbol;
    int64_t size;
} sn_onnx_binding;

typedef struct sn_onnx_shape {
    const char *input;
    int rank;
    int64_t dim[SN_MAX_RANK];
} sn_onnx_shape;

// Zero-initialise for: as exported, nothing bound.
typedef struct sn_onnx_options {
    int n_bindings, n_shapes;
    const sn_onnx_binding *bindings; // `--dim`
    const sn_onnx_shape *shapes;     // shapes of inputs, from the data; symbolic dims are bound to them
    sn_onnx_mode mode;
    // The value of an input, asked for where the value decides a shape (Reshape's second input, say); NULL when it
    // is not known before the run. May be NULL.
    const void *(*input_value)(void *user, const char *input, sn_type type);
    void *user;
} sn_onnx_options;

// The model in graph form: a function @main whose arguments are the model's inputs that are used (and "$seed" i64[],
// "$step" i64[] when something random is left), whose results are the outputs; globals are the initializers. When
// Dropout or BatchNormalization are in training mode there is a second function @infer with both in inference mode.
// Running statistics are updated by `assign` ops of the update phase in @main. Roles: PARAMETER for what may be
// trained, STATE for running statistics, FROZEN and CONSTANT for the rest; `why` says what decided. The data of
// globals lies in the model's files where it can, so it may start at any byte: read it by memcpy.
// NULL when diags got errors.
sn_module *sn_onnx_import(sn_onnx_model *model, const sn_onnx_options *options, sn_diags *diags);

// Warns of what is harmless for inference and wrong for training: parameters that the exporter folded away, BatchNorm
// folded into convolutions or in inference mode, Dropout in inference mode, each with the export recipe. Merged
// parameters and untied weights are repaired by the import, which warns of them itself. `module` is the import's
// result.
void sn_onnx_check_training(const sn_onnx_model *model, const sn_module *module, sn_onnx_mode mode, sn_diags *diags);

// Binds the dims alone: the types of the inputs, in the order of info.inputs, into `out` (n_inputs). False when diags
// got errors: a symbolic dim is left open, or shapes contradict each other.
bool sn_onnx_bind(const sn_onnx_model *model, const sn_onnx_options *options, sn_type *out, sn_diags *diags);

// A TensorProto on its own (the .pb files of ONNX's backend tests). The data lies in the arena. False, with a
// diagnostic, when the file is not one (a SequenceProto, say) or its element type has no place here.
bool sn_onnx_load_tensor(const char *path, sn_arena *arena, sn_type *type, void **data, sn_diags *diags);

typedef struct sn_onnx_replacement {
    const char *name; // of an initializer
    const void *data; // row-major, of the initializer's type
} sn_onnx_replacement;

// Writes the model with other values for some initializers, whole or not at all. Parameters that the import unmerged
// are initializers of their own in the result; copies of tied weights that it tied again follow the weight. External
// data goes into ONE file beside it (`path`.data) when the source used it or when the model would exceed protobuf's 2
// GiB.
SN_MUST_USE sn_status sn_onnx_export(const sn_onnx_model *model, int n, const sn_onnx_replacement *replacements,
                                     const char *path);
