// The parts of a training step: compiler and runtime mark what they run with them.
#pragma once

typedef enum sn_phase { SN_PHASE_FORWARD, SN_PHASE_BACKWARD, SN_PHASE_UPDATE, SN_PHASE_COUNT } sn_phase;
