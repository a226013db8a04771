#include "isa.h"

#include <stdexcept>

namespace ratenorm {

#if defined(__x86_64__) || defined(_M_X64)
namespace avx512 { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace baseline { extern const Kernels kernels; }
#elif defined(__aarch64__)
namespace neon { extern const Kernels kernels; }
#else
namespace baseline { extern const Kernels kernels; }
#endif

namespace {

std::vector<const Kernels*> usable() {
    std::vector<const Kernels*> found;
#if defined(__x86_64__) || defined(_M_X64)
    __builtin_cpu_init();
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
    const bool basic = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                       __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi") &&
                       __builtin_cpu_supports("bmi2");
    if (wide && basic) found.push_back(&avx512::kernels);
    if (basic) found.push_back(&avx2::kernels);
    found.push_back(&baseline::kernels);
#elif defined(__aarch64__)
    found.push_back(&neon::kernels);
#else
    found.push_back(&baseline::kernels);
#endif
    return found;
}

} // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Kernels* kernels : usable()) names.emplace_back(kernels->name);
    return names;
}

const Kernels& kernels_of(const std::string& name) {
    std::string known;
    for (const Kernels* kernels : usable()) {
        if (name.empty() || name == kernels->name) return *kernels;
        known += (known.empty() ? "" : ", ") + std::string(kernels->name);
    }
    throw std::invalid_argument("the instruction set is '" + name + "'; this machine has " + known);
}

} // namespace ratenorm
