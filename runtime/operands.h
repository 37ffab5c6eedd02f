// What an instruction touches in memory, the same for all who need to know: which buffers, how far, read or written.
#pragma once
#include "base/vec.h"
#include "runtime/schedule.h"

enum { SN_OPERAND_DIMS = SN_SCHEDULE_COPY_DIMS + 2 };

// Elements at 0 … sum((dims - 1)·strides) from the view, `element` bytes each; strides in elements.
typedef struct sn_operand {
    const char *name; // as in the instruction's struct: "a", "from"
    sn_view view;
    int access; // SN_ACCESS_*
    int64_t element;
    int rank;
    int64_t dims[SN_OPERAND_DIMS], strides[SN_OPERAND_DIMS];
} sn_operand;

typedef SN_VEC(sn_operand) sn_operands;

// Appends the operands of an instruction that passed sn_schedule_check; optional ones that are absent are left out.
// Events have none.
void sn_instr_operands(const sn_schedule *schedule, const sn_instr *instr, sn_operands *out);
// Bytes from the view to the end of the last element; 0 when there is none.
int64_t sn_operand_extent(const sn_operand *operand);
