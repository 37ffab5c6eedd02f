// The time that passes, for measuring.
#pragma once

double sn_seconds(void); // monotonic, from some moment
