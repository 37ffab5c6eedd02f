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
