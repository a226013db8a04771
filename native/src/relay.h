// A max-pool over spikes: it passes M(t) - M(t-1), with M the largest number of spikes of a window so far.
//
// What comes in is 0 or 1, so M grows by 0 or 1 and what goes out is 0 or 1 too.
#pragma once

#include "tables.h"
#include "vectors.h"

namespace ratenorm::RATENORM_ISA {

RATENORM_INLINE Sixteen larger(const Sixteen& a, const Sixteen& b) {
    Sixteen x;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) {
        x.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
    });
    return x;
}

// `potential` is what has accumulated, [image, source pixel, lane]; `counts` the maxima, [image, pixel, lane].
inline void run_relay(const Work& work, const Stage& source, int64_t image0, int64_t image1) {
    const Stage& s = *work.stage;
    const int64_t words = s.words(), lanes = s.lanes();
    const Sixteen one = splat16(1.0f);
    for (int64_t image = image0; image < image1; ++image) {
        float* sums = work.potential.data + image * source.pixels * lanes;
        float* largest = work.counts.data + image * s.pixels * lanes;
        if (work.fresh) {
            std::memset(sums, 0, size_t(source.pixels * lanes) * sizeof(float));
            std::memset(largest, 0, size_t(s.pixels * lanes) * sizeof(float));
        }
        for (int64_t row = image * work.steps; row < (image + 1) * work.steps; ++row) {
            const uint16_t* in = work.source_words + row * source.row();
            for (int64_t w = 0; w < source.row(); ++w)
                if (in[w] != 0) store16(sums + w * WORD, load16(sums + w * WORD) + pick16(in[w], one));
            uint16_t* out = work.words + row * s.row();
            for (int64_t pixel = 0; pixel < s.pixels; ++pixel) {
                const uint32_t* member = s.windows.data + pixel * s.members;
                for (int64_t w = 0; w < words; ++w) {
                    float* maximum = largest + (pixel * words + w) * WORD;
                    Sixteen now = load16(maximum);
                    for (int m = 0; m < s.members; ++m)
                        if (member[m] != NOWHERE) now = larger(now, load16(sums + (member[m] * words + w) * WORD));
                    uint32_t passed = 0;
                    const Sixteen more = load16(maximum) + one;
                    unroll<PARTS>([&](auto i) __attribute__((always_inline)) {
                        passed |= bits(at_least(now.part[i], more.part[i])) << (i * LANES);
                    });
                    store16(maximum, now);
                    out[pixel * words + w] = static_cast<uint16_t>(passed);
                }
            }
        }
    }
}

} // namespace ratenorm::RATENORM_ISA
