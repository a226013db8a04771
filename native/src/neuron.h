// The neuron: Eq. 3 of the paper for sixteen neurons, and the loops over pixels and steps around it.
#pragma once

#include "accumulate.h"
#include "tables.h"
#include "vectors.h"

namespace ratenorm::RATENORM_ISA {

// Eq. 3, the one place where it stands: m = v + current; a spike where m >= threshold; v = m - threshold * spike.
RATENORM_INLINE uint32_t integrate_and_fire(Sixteen& v, const Sixteen& current, const Sixteen& threshold) {
    uint32_t word = 0;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) {
        const Floats charged = v.part[i] + current.part[i];
        const Mask spikes = at_least(charged, threshold.part[i]);
        v.part[i] = choose(spikes, charged - threshold.part[i], charged); // both at once, while spikes are found
        word |= bits(spikes) << (i * LANES);
    });
    return word;
}

// Where sixteen neurons begin: state of an image, and what they share with others.
struct Place {
    int64_t state;       // in potentials
    const float* base;
    const float* threshold;
    const float* bias;   // of the first row; null: none
    uint16_t* word;      // of the first step
};

RATENORM_INLINE Place place_of(const Work& work, const Stage& s, int64_t image, int64_t block, int64_t pixel,
                               int64_t lane) {
    const int64_t row = image * work.steps;
    return {
        image * s.size() + (block * s.pixels + pixel) * s.width + lane,
        work.base.data + image * work.base_image + block * work.base_block + pixel * work.base_pixel + lane,
        s.threshold.data + block * s.threshold_block + pixel * s.threshold_pixel + lane,
        s.step_bias.empty() ? nullptr
                            : s.step_bias.data + block * s.bias_block + pixel * s.bias_pixel + lane,
        work.words + row * s.row() + pixel * s.words() + (block * s.width + lane) / WORD,
    };
}

// The current of a step is increased by row t of the step biases at step t; later steps take the last row.
RATENORM_INLINE Sixteen with_bias(const Work& work, const Stage& s, const Place& place, int64_t step,
                                  const Sixteen& current) {
    if (place.bias == nullptr) return current;
    const int64_t now = work.first_step + step, last = s.bias_rows - 1;
    return current + load16(place.bias + (now < last ? now : last) * s.bias_row);
}

// Before the first step potentials are those of `start`, or zero.
RATENORM_INLINE Sixteen potential_of(const Work& work, const Stage& s, const Place& place, int64_t image,
                                     int64_t step) {
    if (!work.fresh || step != 0) return load16(work.potential.data + place.state);
    if (s.start.empty()) return splat16(0.0f);
    return load16(s.start.data + (place.state - image * s.size()));
}

// N words of neurons, one after another in the state, over all steps under a constant current. Several at once hide
// the latency of each.
template <int N>
RATENORM_INLINE void still_words(const Work& work, const Stage& s, int64_t image, int64_t block, int64_t at) {
    Place place[N];
    Sixteen v[N], current[N], threshold[N];
    unroll<N>([&](auto n) __attribute__((always_inline)) {
        const int64_t pixel = (at + n * WORD) / s.width, lane = (at + n * WORD) % s.width;
        place[n] = place_of(work, s, image, block, pixel, lane);
        v[n] = potential_of(work, s, place[n], image, 0);
        current[n] = load16(place[n].base);
        threshold[n] = load16(place[n].threshold);
    });
    const bool biased = place[0].bias != nullptr;
    for (int64_t step = 0; step < work.steps; ++step)
        unroll<N>([&](auto n) __attribute__((always_inline)) {
            const Sixteen inflow = biased ? with_bias(work, s, place[n], step, current[n]) : current[n];
            place[n].word[step * s.row()] = static_cast<uint16_t>(integrate_and_fire(v[n], inflow, threshold[n]));
        });
    unroll<N>([&](auto n) __attribute__((always_inline)) { store16(work.potential.data + place[n].state, v[n]); });
}

// The tables are copied first: a local copy stays in registers, where every store could change the caller's.
inline void run_still(const Work& given, int64_t block0, int64_t block1) {
    constexpr int N = 4 / PARTS;
    const Work work = given;
    const Stage s = *work.stage;
    const int64_t size = int64_t(s.pixels) * s.width;
    for (int64_t image = 0; image < work.images; ++image)
        for (int64_t block = block0; block < block1; ++block) {
            int64_t at = 0;
            for (; at + N * WORD <= size; at += N * WORD) still_words<N>(work, s, image, block, at);
            for (; at < size; at += WORD) still_words<1>(work, s, image, block, at);
        }
}

// The neurons of a block read their currents of some steps and fire. WHOLE, TOTAL: where these are. MORE: there may be a
// skip connection, something that torch computed, or step biases.
template <bool WHOLE, bool TOTAL, bool MORE>
void fire_steps(const Work& given, Scratch scratch, const float* units, int64_t image, int64_t block, int64_t step0,
                int rows) {
    const Work work = given;
    const Stage s = *work.stage;
    const int64_t lane0 = block * s.width;
    for (int64_t pixel = 0; pixel < s.pixels; ++pixel)
        for (int64_t lane = 0; lane < s.width; lane += WORD) {
            const Place place = place_of(work, s, image, block, pixel, lane);
            Sixteen v = potential_of(work, s, place, image, step0);
            const Sixteen base = load16(place.base), threshold = load16(place.threshold);
            int64_t at = s.places[size_t(pixel)] + lane;
            for (int r = 0; r < rows; ++r, at += s.total) {
                const int64_t step = step0 + r, word = (place.word - work.words) + step * s.row();
                Sixteen current = base;
                if constexpr (WHOLE) {
                    current = floats16(scratch.whole + at) * load16(units + lane) + current;
                    clear16(scratch.whole + at);
                }
                if constexpr (TOTAL) {
                    current = load16(scratch.total + at) + current;
                    clear16(scratch.total + at);
                }
                if constexpr (MORE) {
                    if (s.skip >= 0)
                        current = pick16(work.skip_words[word], load16(s.skip_scale.data + lane0 + lane)) + current;
                    if (!work.extra.empty()) current = load16(work.extra.data + word * WORD) + current;
                    current = with_bias(work, s, place, step, current);
                }
                work.words[word] = static_cast<uint16_t>(integrate_and_fire(v, current, threshold));
            }
            store16(work.potential.data + place.state, v);
        }
}

inline void run_driven(const Work& work, Scratch scratch, int64_t block0, int64_t block1) {
    const Stage& s = *work.stage;
    const float* units = nullptr;
    int shorts = 0;
    for (size_t k = 0; work.events && k < s.routes.size; ++k)
        if (in_short(s.routes[k])) units = s.routes[k].units.data, ++shorts;
    const bool whole = shorts == 1, total = work.events && s.routes.size > (whole ? 1u : 0u);
    const bool more = s.skip >= 0 || !work.extra.empty() || !s.step_bias.empty();
    const auto fire = whole && !total ? more ? fire_steps<true, false, true> : fire_steps<true, false, false>
                      : whole         ? fire_steps<true, true, true>
                      : total         ? fire_steps<false, true, true>
                                      : fire_steps<false, false, true>;
    if (work.events) {
        std::memset(scratch.total, 0, size_t(s.total) * sizeof(float));
        std::memset(scratch.whole, 0, size_t(s.total) * size_t(work.together) * sizeof(int32_t));
    }
    for (int64_t block = block0; block < block1; ++block) {
        if (work.fetch) fetch_weights(s, block);
        for (int64_t image = 0; image < work.images; ++image)
            for (int64_t step = 0; step < work.steps; step += work.together) {
                const int64_t left = work.steps - step;
                const int rows = int(left < work.together ? left : work.together);
                if (work.events) accumulate(work, scratch, block, image * work.steps + step, rows, shorts > 1);
                fire(work, scratch, whole ? units + block * s.width : nullptr, image, block, step, rows);
            }
    }
}

// The currents of an output, which nobody integrates.
inline void run_output(const Work& work, Scratch scratch, int64_t block0, int64_t block1) {
    const Stage& s = *work.stage;
    std::memset(scratch.total, 0, size_t(s.total) * sizeof(float));
    std::memset(scratch.whole, 0, size_t(s.total) * sizeof(int32_t));
    for (int64_t block = block0; block < block1; ++block)
        for (int64_t row = 0; row < int64_t(work.images) * work.steps; ++row) {
            const int64_t image = row / work.steps;
            if (work.events) accumulate(work, scratch, block, row, 1, true);
            for (int64_t pixel = 0; pixel < s.pixels; ++pixel)
                for (int64_t lane = 0; lane < s.width; lane += WORD) {
                    const float* base = work.base.data + image * work.base_image + block * work.base_block;
                    float* total = scratch.total + s.places[size_t(pixel)] + lane;
                    Sixteen current = load16(total) + load16(base + pixel * work.base_pixel + lane);
                    const int64_t word = (row * s.pixels + pixel) * s.lanes() + block * s.width + lane;
                    if (!work.extra.empty()) current = load16(work.extra.data + word) + current;
                    store16(work.output + word, current);
                    clear16(total);
                }
        }
}

} // namespace ratenorm::RATENORM_ISA
