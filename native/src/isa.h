// Which of the compiled instruction sets this machine has, and which one is used.
#pragma once

#include <string>
#include <vector>

#include "tables.h"

namespace ratenorm {

// Names of those that run here, the best first.
std::vector<std::string> instruction_sets();

// The kernels of one of them; of the best for an empty name. Throws std::invalid_argument for any other.
const Kernels& kernels_of(const std::string& name);

} // namespace ratenorm
