// Words of spikes to lists of spikes, plain or pooled.
#pragma once

#include "tables.h"
#include "vectors.h"

namespace ratenorm::RATENORM_ISA {

// For each byte the positions of its set bits, in order.
struct Positions {
    uint16_t of[256][8] = {};
    constexpr Positions() {
        for (int byte = 0; byte < 256; ++byte)
            for (int bit = 0, n = 0; bit < 8; ++bit)
                if (byte >> bit & 1) of[byte][n++] = static_cast<uint16_t>(bit);
    }
};
inline constexpr Positions POSITIONS;

// Writes first + the positions of the set bits of a word; returns the end. Sixteen entries are written whatever the
// bits, so that no branch depends on the spikes: what is too many is overwritten by the next call.
RATENORM_INLINE uint16_t* list_word(uint16_t* to, uint32_t word, uint32_t first) {
#if defined(RATENORM_AVX512)
    const __m512i numbers = _mm512_add_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(int(first)));
    const __m512i found = _mm512_maskz_compress_epi32(static_cast<__mmask16>(word), numbers);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(found));
    return to + __builtin_popcount(word);
#else
    using Eight = uint16_t __attribute__((vector_size(16)));
    const uint32_t low = word & 255, high = word >> 8;
    const Eight start = Eight{} + static_cast<uint16_t>(first);
    store(to, load<Eight>(POSITIONS.of[low]) + start);
    to += __builtin_popcount(low);
    store(to, static_cast<Eight>(load<Eight>(POSITIONS.of[high]) + start + static_cast<uint16_t>(8)));
    return to + __builtin_popcount(high);
#endif
}

template <class Wide> RATENORM_INLINE uint16_t* list_wide(uint16_t* to, Wide bits, uint32_t first) {
    for (unsigned part = 0; part < sizeof(Wide) / 2; ++part)
        to = list_word(to, uint32_t(bits >> (16 * part) & 0xFFFF), first + WORD * part);
    return to;
}

// Spikes pooled over disjoint windows. How many neurons of a window spike is counted for all channels of a word at
// once, in binary, one word for each digit; a channel is listed once for each digit of its number. Digit d weighs 2^d.
template <class Wide>
uint16_t* list_window(uint16_t* to, const uint16_t* spikes, size_t words, const Route& route, size_t window) {
    const uint32_t* member = route.windows.data + window * size_t(route.members);
    constexpr size_t PER = sizeof(Wide) / 2;
    for (size_t w = 0; w < words; w += PER) {
        Wide digits[16] = {};
        for (int m = 0; m < route.members; ++m) {
            Wide carry = load<Wide>(spikes + member[m] * words + w);
            for (int d = 0; carry != 0; ++d) {
                const Wide both = static_cast<Wide>(digits[d] & carry);
                digits[d] = static_cast<Wide>(digits[d] ^ carry);
                carry = both;
            }
        }
        for (int d = 0; d < route.digits; ++d)
            if (digits[d] != 0) to = list_wide(to, digits[d], uint32_t(w * WORD) + uint32_t(d) * uint32_t(route.apart));
    }
    return to;
}

// The same for windows of four, the usual ones, without a loop over digits.
template <class Wide>
uint16_t* list_window_of_four(uint16_t* to, const uint16_t* spikes, size_t words, const Route& route, size_t window) {
    const uint32_t* member = route.windows.data + 4 * window;
    constexpr size_t PER = sizeof(Wide) / 2;
    const uint32_t apart = uint32_t(route.apart);
    for (size_t w = 0; w < words; w += PER) {
        const Wide a = load<Wide>(spikes + member[0] * words + w), b = load<Wide>(spikes + member[1] * words + w);
        const Wide c = load<Wide>(spikes + member[2] * words + w), d = load<Wide>(spikes + member[3] * words + w);
        const uint32_t first = uint32_t(w * WORD);
        to = list_wide(to, Wide(a ^ b ^ c ^ d), first);
        to = list_wide(to, Wide((a & b) ^ (c & d) ^ ((a ^ b) & (c ^ d))), first + apart);
        const Wide four = a & b & c & d; // rare; but to guess wrong takes longer than to list a few words
        if (sizeof(Wide) < 8 || four != 0) to = list_wide(to, four, first + 2 * apart);
    }
    return to;
}

// Lists the pixels of a row, each by list_pixel(to, pixel), which returns the end of its entries.
template <class ListPixel>
RATENORM_INLINE void list_row(const List& list, int64_t row, size_t grid, ListPixel list_pixel) {
    uint32_t *marks = list.marks + size_t(row) * (grid + 1), *active = list.active + size_t(row) * (grid + 1);
    uint16_t *const entries = list.entries, *to = entries + list.begin[row];
    marks[0] = uint32_t(to - entries);
    uint32_t count = 0;
    for (size_t p = 0; p < grid; ++p) {
        const uint16_t* begin = to;
        to = list_pixel(to, p);
        marks[p + 1] = uint32_t(to - entries);
        active[1 + count] = uint32_t(p); // stays only if the next line keeps it
        count += to != begin;
    }
    active[0] = count;
}

template <class Wide>
void list_pooled(const uint16_t* spikes, size_t words, const Route& given, const List& list, int64_t row) {
    const Route route = given; // a local copy stays in registers
    const size_t grid = size_t(route.grid);
    if (route.members == 4)
        list_row(list, row, grid, [&](uint16_t* to, size_t window) __attribute__((always_inline)) {
            return list_window_of_four<Wide>(to, spikes, words, route, window);
        });
    else
        list_row(list, row, grid, [&](uint16_t* to, size_t window) __attribute__((always_inline)) {
            return list_window<Wide>(to, spikes, words, route, window);
        });
}

inline void list_spikes(const Stage& source, const Route& route, const uint16_t* all, List list, int64_t row0,
                        int64_t row1) {
    const size_t words = size_t(source.words()), grid = size_t(route.grid);
    for (int64_t row = row0; row < row1; ++row) {
        const uint16_t* spikes = all + row * source.row();
        if (route.members == 0)
            list_row(list, row, grid, [&](uint16_t* to, size_t) __attribute__((always_inline)) {
                for (size_t w = 0; w < words; ++w) to = list_word(to, *spikes++, uint32_t(w * WORD));
                return to;
            });
        else if (words % 4 == 0)
            list_pooled<uint64_t>(spikes, words, route, list, row);
        else if (words % 2 == 0)
            list_pooled<uint32_t>(spikes, words, route, list, row);
        else
            list_pooled<uint16_t>(spikes, words, route, list, row);
    }
}

} // namespace ratenorm::RATENORM_ISA
