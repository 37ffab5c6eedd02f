#include "runtime/comm/comm.h"

sn_status sn_comm_agree(sn_comm *comm, bool failed, bool *stop, int *first_failed) {
    int64_t most[2] = {failed ? comm->ranks - comm->rank : 0, *stop}; // the maximum belongs to the lowest rank
    sn_collective c = {
        .kind = SN_INSTR_ALL_REDUCE, .dtype = SN_I64, .reduce = SN_REDUCE_MAX, .count = 2, .from = most, .to = most};
    SN_TRY(comm->vtable->run_all(comm, &c));
    *first_failed = most[0] ? comm->ranks - (int)most[0] : -1;
    *stop = most[1] != 0;
    return SN_OK;
}

int64_t sn_mesh_group_size(const sn_schedule *s, int64_t axes) {
    int64_t size = 1;
    for (size_t i = 0; i < s->mesh.count; i++) size *= axes >> i & 1 ? s->mesh.items[i].size : 1;
    return size;
}

int64_t sn_mesh_coordinate(const sn_schedule *s, int64_t rank, size_t axis) {
    for (size_t i = s->mesh.count - 1; i > axis; i--) rank /= s->mesh.items[i].size;
    return rank % s->mesh.items[axis].size;
}

int64_t sn_mesh_member(const sn_schedule *s, int64_t rank, int64_t axes) {
    int64_t member = 0;
    for (size_t i = 0; i < s->mesh.count; i++) {
        if (axes >> i & 1) member = member * s->mesh.items[i].size + sn_mesh_coordinate(s, rank, i);
    }
    return member;
}
