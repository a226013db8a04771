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

// All steps of the neurons of a pixel at once: potentials stay in registers over a chunk. MORE: there may be a skip
// connection or step biases.
template <bool MORE>
RATENORM_INLINE void look_up_pixel(const Work& work, const Stage& s, const Place& place, const uint16_t* window,
                                   int64_t plane, const Sixteen& units, const Sixteen& brings, Sixteen v) {
    const Sixteen base = load16(place.base), threshold = load16(place.threshold);
    const uint16_t* skip = MORE && s.skip >= 0 ? work.skip_words + (place.word - work.words) : nullptr;
    uint16_t* word = place.word;
    for (int64_t step = 0; step < work.steps; ++step, word += s.row(), window += 2 * plane) {
        Sixteen current = looked_up_current(s.table.data, window, size_t(s.line + 2), units);
        if constexpr (MORE)
            if (skip != nullptr) current = current + pick16(skip[step * s.row()], brings);
        current = current + base;
        if constexpr (MORE) current = with_bias(work, s, place, step, current);
        *word = static_cast<uint16_t>(integrate_and_fire(v, current, threshold));
    }
    store16(work.potential.data + place.state, v);
}

// The pixels [pixel0, pixel1) of all images.
inline void run_looked_up(const Work& given, Scratch scratch, int64_t pixel0, int64_t pixel1) {
    const Work work = given;
    const Stage s = *work.stage;
    const int64_t plane = (s.pixels / s.line + 2) * int64_t(s.line + 2);
    const Sixteen units = load16(s.units.data);
    const Sixteen brings = s.skip >= 0 ? load16(s.skip_scale.data) : splat16(0.0f);
    for (int64_t image = 0; image < work.images; ++image) {
        into_planes(work, scratch.planes, image, plane);
        for (int64_t pixel = pixel0; pixel < pixel1; ++pixel) {
            const Place place = place_of(work, s, image, 0, pixel, 0);
            const uint16_t* window = scratch.planes + 2 * (pixel + 2 * (pixel / s.line));
            const Sixteen v = potential_of(work, s, place, image, 0);
            if (s.skip >= 0 || place.bias != nullptr)
                look_up_pixel<true>(work, s, place, window, plane, units, brings, v);
            else
                look_up_pixel<false>(work, s, place, window, plane, units, brings, v);
        }
    }
}

} // namespace ratenorm::RATENORM_ISA
