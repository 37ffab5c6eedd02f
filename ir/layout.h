// Meshes and layouts. A mesh has named axes; a layout says which axes shard each dim of a value and over which axes
// the value is a partial sum (or maximum). Zero-initialised: replicated.
#pragma once
#include "ir/type.h"

enum { SN_MAX_AXES = 8 };

typedef struct sn_mesh {
    int n_axes;
    char name[SN_MAX_AXES][16];
    int size[SN_MAX_AXES];
} sn_mesh;

typedef uint8_t sn_axes; // set of mesh axes, bit i for axis i; the lower axis is the outer one where several cut a dim

typedef enum sn_partial { SN_PARTIAL_SUM, SN_PARTIAL_MAX, SN_PARTIAL_MIN } sn_partial;

// An axis that cuts a dim takes one digit of its index: index = (before, coordinate, after) with `outer` values of
// `before`. Axes cut a dim in contiguous blocks, one inside the other in the order of the mesh, unless outer says
// otherwise: a fused weight (q k v) whose dim of 3 h is cut by heads has outer 3, rows of a merged (batch sequence) dim
// that are cut along the sequence have outer batch. What a rank holds stays in the order of the whole.
typedef struct sn_layout {
    sn_axes dim[SN_MAX_RANK];
    sn_axes partial;
    sn_partial partial_kind;
    int32_t outer[SN_MAX_AXES]; // of an axis that cuts a dim; 0: nested blocks
} sn_layout;

int sn_mesh_axis(const sn_mesh *mesh, const char *name);            // -1 when there is none
sn_axes sn_mesh_axes_named(const sn_mesh *mesh, const char *names); // comma-separated
int64_t sn_mesh_size(const sn_mesh *mesh, sn_axes axes);            // product of the sizes of axes
int64_t sn_mesh_ranks(const sn_mesh *mesh);
bool sn_layout_equal(sn_layout a, sn_layout b);
bool sn_layout_is_replicated(sn_layout layout);
sn_axes sn_layout_axes(sn_layout layout);         // that cut any dim
int sn_layout_dim_of(sn_layout layout, int axis); // which the axis cuts; -1: none
// The `outer` of each axis that cuts a dim, whether stated or not.
void sn_layout_outers(const sn_mesh *mesh, sn_layout layout, int dim, int64_t outer[SN_MAX_AXES]);
// States which axes cut a dim and where (`outer` of those axes is read), in the one form that sn_layout_equal compares.
void sn_layout_set_dim(const sn_mesh *mesh, sn_layout *layout, int dim, sn_axes axes, const int64_t outer[SN_MAX_AXES]);
// The same with one axis added to a dim, or taken from all; the others keep their places.
void sn_layout_add(const sn_mesh *mesh, sn_layout *layout, int dim, int axis, int64_t outer);
void sn_layout_remove(const sn_mesh *mesh, sn_layout *layout, sn_axes axes);
// The axes of a dim in the order of their digits, major first; returns how many.
int sn_layout_order(const sn_mesh *mesh, sn_layout layout, int dim, int order[SN_MAX_AXES]);
// Whether the axes of a dim of `size` elements cut it evenly.
bool sn_layout_divides(const sn_mesh *mesh, sn_layout layout, int dim, int64_t size);
// The index in the whole dim of a rank's local index; `coordinate` has the rank's coordinate on each axis.
int64_t sn_layout_index(const sn_mesh *mesh, sn_layout layout, int dim, int64_t size, const int64_t *coordinate,
                        int64_t local);
// A dim that axes cut at several digits is, to a rank, several dims: [3, h] for a fused dim of 3 h that is cut by
// heads, [batch, sequence] for merged rows that are cut along both. Each is cut in nested blocks in the order of the
// mesh.
typedef struct sn_piece {
    int64_t size, local; // of the whole, and of a rank's part
    int64_t after;       // elements of the dim that one step of the piece moves by
    sn_axes axes;
} sn_piece;
// The pieces of a dim, major first (none for size 1); returns how many.
int sn_layout_pieces(const sn_mesh *mesh, sn_layout layout, int dim, int64_t size, sn_piece out[SN_MAX_AXES + 1]);
// The shape that one rank holds; dims must divide.
sn_type sn_local_type(const sn_mesh *mesh, sn_type global, sn_layout layout);
// The whole shape of what ranks hold parts of.
sn_type sn_whole_type(const sn_mesh *mesh, sn_type local, sn_layout layout);
// "{dp,-,tp}+tp", "{dp,tp:3}" for outer 3 (in the order of the axes where several cut the dim: "{dp.cp:1:8}"); nothing
// for a replicated value.
void sn_layout_print(sn_str *out, const sn_mesh *mesh, sn_layout layout, int rank);
