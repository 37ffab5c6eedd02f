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

typedef struct sn_layout {
    sn_axes dim[SN_MAX_RANK];
    sn_axes partial;
    sn_partial partial_kind;
} sn_layout;

int sn_mesh_axis(const sn_mesh *mesh, const char *name); // -1 when there is none
int64_t sn_mesh_size(const sn_mesh *mesh, sn_axes axes); // product of the sizes of axes
int64_t sn_mesh_ranks(const sn_mesh *mesh);
bool sn_layout_equal(sn_layout a, sn_layout b);
bool sn_layout_is_replicated(sn_layout layout);
// The shape that one rank holds; dims must divide.
sn_type sn_local_type(const sn_mesh *mesh, sn_type global, sn_layout layout);
// "{dp,-,tp}+tp"; nothing for a replicated value.
void sn_layout_print(sn_str *out, const sn_mesh *mesh, sn_layout layout, int rank);
