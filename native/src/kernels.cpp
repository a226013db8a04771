// The kernels of one instruction set: CMakeLists.txt compiles this file once for each, with another RATENORM_ISA.
#include "accumulate.h"
#include "counting.h"
#include "lookup.h"
#include "neuron.h"
#include "relay.h"
#include "spike_lists.h"
#include "tables.h"
#include "windows.h"

#define RATENORM_TEXT_(x) #x
#define RATENORM_TEXT(x) RATENORM_TEXT_(x)

namespace ratenorm::RATENORM_ISA {

namespace {

void run(const Work& work, Scratch scratch, int64_t first, int64_t last) {
    switch (work.stage->kind) {
    case StageKind::still: return run_still(work, first, last);
    case StageKind::driven: return run_driven(work, scratch, first, last);
    case StageKind::looked_up: return run_looked_up(work, scratch, first, last);
    case StageKind::output: return run_output(work, scratch, first, last);
    case StageKind::relay: return; // has a kernel of its own
    }
}

} // namespace

extern const Kernels kernels;
const Kernels kernels{RATENORM_TEXT(RATENORM_ISA), list_spikes, run, run_relay, count_spikes, tally};

} // namespace ratenorm::RATENORM_ISA
