// Narrow layers look their currents up: what eight spikes bring together is written in a table.
//
// After a 3x3 convolution from at most sixteen channels to at most sixteen, a pixel's spikes are one word, and its
// window is nine words: eighteen bytes. For each place of a byte the table has, for all 256 values it can take, the sum
// of the weights of its spikes. Eighteen rows are added whatever the number of spikes, and no spike is listed.
#pragma once

#include "neuron.h"
#include "tables.h"
#include "vectors.h"

namespace ratenorm::RATENORM_ISA {

inline constexpr int BYTE_VALUES = 256, ROW = WORD * int(sizeof(int16_t)); // a row of the table, in bytes

// The words of an image's steps as pairs of offsets of rows, one for each byte. Each picture has its padding, where
// both are 0: a window begins at the place of its pixel.
inline void into_planes(const Work& work, uint16_t* planes, int64_t image, int64_t plane) {
    const Stage s = *work.stage;
    std::memset(planes, 0, size_t(plane) * size_t(work.steps) * 2 * sizeof(uint16_t));
    for (int64_t step = 0; step < work.steps; ++step)
        for (int64_t y = 0; y < s.source_height; ++y) {
            const uint16_t* from =
                work.source_words + ((image * work.steps + step) * s.source_height + y) * s.source_width;
            uint16_t* to = planes + 2 * (step * plane + (y + s.top) * (s.line + 2) + s.left);
            for (int64_t x = 0; x < s.source_width; ++x) {
                to[2 * x] = static_cast<uint16_t>((from[x] & 255) * ROW);
                to[2 * x + 1] = static_cast<uint16_t>((from[x] >> 8) * ROW);
            }
        }
}

// The sum over nine words; sixteen spikes fit 16 bits, the sum of all does not.
RATENORM_INLINE Sixteen looked_up_current(const int16_t* table, const uint16_t* window, size_t line,
                                          const Sixteen& units) {
    const char* rows = reinterpret_cast<const char*>(table);
    Ints total[2][PARTS] = {}; // two sums wait less for each other
    unroll<9>([&](auto tap) __attribute__((always_inline)) {
        const uint16_t* pair = window + 2 * ((tap / 3) * line + tap % 3);
        const char* low = rows + pair[0] + (2 * tap) * BYTE_VALUES * ROW;
        const char* high = rows + pair[1] + (2 * tap + 1) * BYTE_VALUES * ROW;
        unroll<PARTS>([&](auto i) __attribute__((always_inline)) {
            constexpr int at = i * int(sizeof(FewShorts));
            total[tap % 2][i] += widened(load<FewShorts>(low + at) + load<FewShorts>(high + at));
        });
    });
    Sixteen current;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) {
        current.part[i] = __builtin_convertvector(total[0][i] + total[1][i], Floats);
    });
    return current * units;
}

// All steps of the neurons of N pixels at once: potentials stay in registers over a chunk, and several pixels hide the
// latency of each. MORE: there may be a skip connection or step biases.
template <int N, bool MORE>
RATENORM_INLINE void look_up_pixels(const Work& work, const Stage& s, const uint16_t* planes, int64_t plane,
                                    int64_t image, int64_t pixel) {
    const Sixteen units = load16(s.units.data);
    const Sixteen brings = MORE && s.skip >= 0 ? load16(s.skip_scale.data) : splat16(0.0f);
    Place place[N];
    Sixteen v[N], base[N], threshold[N];
    const uint16_t* window[N];
    unroll<N>([&](auto n) __attribute__((always_inline)) {
        place[n] = place_of(work, s, image, 0, pixel + n, 0);
        window[n] = planes + 2 * (pixel + n + 2 * ((pixel + n) / s.line));
        v[n] = potential_of(work, s, place[n], image, 0);
        base[n] = load16(place[n].base), threshold[n] = load16(place[n].threshold);
    });
    const size_t line = size_t(s.line + 2);
    for (int64_t step = 0, at = 0, word = 0; step < work.steps; ++step, at += 2 * plane, word += s.row())
        unroll<N>([&](auto n) __attribute__((always_inline)) {
            Sixteen current = looked_up_current(s.table.data, window[n] + at, line, units) + base[n];
            if constexpr (MORE) {
                if (s.skip >= 0) current = current + pick16(work.skip_words[place[n].word - work.words + word], brings);
                current = with_bias(work, s, place[n], step, current);
            }
            place[n].word[word] = static_cast<uint16_t>(integrate_and_fire(v[n], current, threshold[n]));
        });
    unroll<N>([&](auto n) __attribute__((always_inline)) { store16(work.potential.data + place[n].state, v[n]); });
}

template <bool MORE>
void look_up_image(const Work& given, const uint16_t* planes, int64_t plane, int64_t image, int64_t pixel0,
                   int64_t pixel1) {
    const Work work = given;
    const Stage s = *work.stage;
    constexpr int N = REGISTERS / 16;
    int64_t pixel = pixel0;
    for (; pixel + N <= pixel1; pixel += N) look_up_pixels<N, MORE>(work, s, planes, plane, image, pixel);
    for (; pixel < pixel1; ++pixel) look_up_pixels<1, MORE>(work, s, planes, plane, image, pixel);
}

// The pixels [pixel0, pixel1) of all images.
inline void run_looked_up(const Work& work, Scratch scratch, int64_t pixel0, int64_t pixel1) {
    const Stage& s = *work.stage;
    const int64_t plane = (s.pixels / s.line + 2) * int64_t(s.line + 2);
    const bool more = s.skip >= 0 || !s.step_bias.empty();
    for (int64_t image = 0; image < work.images; ++image) {
        into_planes(work, scratch.planes, image, plane);
        (more ? look_up_image<true> : look_up_image<false>)(work, scratch.planes, plane, image, pixel0, pixel1);
    }
}

} // namespace ratenorm::RATENORM_ISA
