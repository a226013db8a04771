// What a chunk of spikes amounts to: counts of neurons, spikes and synaptic operations of steps.
#pragma once

#include "tables.h"
#include "vectors.h"

namespace ratenorm::RATENORM_ISA {

inline constexpr int DIGITS = 6; // of the number of spikes of a neuron in a chunk

// Counts of the neurons of the words [word0, word1) of a row. The spikes of a chunk are first counted in binary, one
// vector for each digit of the numbers of as many neurons as a vector has bits.
inline void count_spikes(const Work& work, int64_t word0, int64_t word1) {
    const Stage& s = *work.stage;
    constexpr int64_t TOGETHER = BYTES / 2;
    for (int64_t image = 0; image < work.images; ++image)
        for (int64_t first = word0; first < word1; first += TOGETHER) {
            Bytes digits[DIGITS] = {};
            const uint16_t* from = work.words + image * work.steps * s.row() + first;
            for (int64_t step = 0; step < work.steps; ++step) {
                Bytes carry = load<Bytes>(from + step * s.row());
                unroll<DIGITS>([&](auto d) __attribute__((always_inline)) {
                    const Bytes both = digits[d] & carry;
                    digits[d] ^= carry;
                    carry = both;
                });
            }
            uint16_t found[DIGITS][TOGETHER];
            unroll<DIGITS>([&](auto d) __attribute__((always_inline)) { store(found[d], digits[d]); });
            for (int64_t w = first; w < first + TOGETHER && w < word1; ++w) {
                const int64_t pixel = w / s.words(), lane = w % s.words() * WORD;
                const int64_t block = lane / s.width;
                float* at = work.counts.data + image * s.size() + (block * s.pixels + pixel) * s.width + lane % s.width;
                Sixteen sum = work.fresh ? splat16(0.0f) : load16(at);
                unroll<DIGITS>([&](auto d) __attribute__((always_inline)) {
                    sum = sum + pick16(found[d][w - first], splat16(float(1 << d)));
                });
                store16(at, sum);
            }
        }
}

inline int64_t operations_of(uint32_t word, const int64_t* fan_out) {
    int64_t sum = 0;
    for (; word != 0; word &= word - 1) sum += fan_out[__builtin_ctz(word)];
    return sum;
}

// The number of spikes of some words.
RATENORM_INLINE int64_t ones(const uint16_t* word, int64_t count) {
    int64_t found = 0, i = 0;
    for (; i + 4 <= count; i += 4) found += __builtin_popcountll(load<uint64_t>(word + i));
    for (; i < count; ++i) found += __builtin_popcount(word[i]);
    return found;
}

// Spikes and synaptic operations of the rows [row0, row1): words that share their fan-out lie in runs.
inline void tally(const Work& work, int64_t row0, int64_t row1, int64_t* spikes, int64_t* operations) {
    const Stage s = *work.stage;
    for (int64_t row = row0; row < row1; ++row) {
        const uint16_t* word = work.words + row * s.row();
        int64_t number = 0, reached = 0;
        for (size_t r = 0; r < s.runs.size; word += s.runs[r++]) {
            const int64_t found = ones(word, s.runs[r]);
            number += found;
            reached += found * s.fan_out[r];
        }
        for (int64_t w = 0; s.runs.empty() && w < s.row(); ++w) {
            number += __builtin_popcount(word[w]);
            reached += operations_of(word[w], s.fan_out.data + w * WORD);
        }
        spikes[row] = number;
        operations[row] = reached;
    }
}

} // namespace ratenorm::RATENORM_ISA
