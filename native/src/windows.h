// Rows of 16-bit weights added to windows of pixels: the kernels that take most of the time.
//
// The weights of a converted network are whole multiples of a power of two. A few of them are added in 16 bits; the
// sum is then widened to the currents, which are whole numbers of 32 bits. The 32 lanes of a row of weights lie in
// turn, one of the first half and one of the second: a pair of them is a 32-bit lane, so widening is one operation
// for each half. A machine with narrower vectors takes the row in slices.
#pragma once

#include "tables.h"
#include "vectors.h"

namespace ratenorm::RATENORM_ISA {

// The sum of the rows of some entries, at the places `offset(n)` of each row.
template <int N, class Offset>
RATENORM_INLINE const uint16_t* sum_rows(Shorts (&sum)[N], const int16_t* weights, size_t row, const uint16_t* entry,
                                         const uint16_t* stop, Offset offset) {
    unroll<N>([&](auto n) __attribute__((always_inline)) { sum[n] = Shorts{}; });
    do {
        const int16_t* source = weights + *entry * row;
        unroll<N>([&](auto n) __attribute__((always_inline)) { sum[n] += load<Shorts>(source + offset(n)); });
        ++entry;
    } while (entry != stop);
    return entry;
}

// `whole` at a pixel and slice += a sum.
RATENORM_INLINE void add_to(int32_t* whole, int slice, Shorts sum) {
    int32_t* at = whole + slice * LANES;
    Ints low = load<Ints>(at), high = load<Ints>(at + WIDE / 2);
    widen_add(low, high, sum);
    store(at, low);
    store(at + WIDE / 2, high);
}

// N target pixels: target(n) is where one lies in `whole`, offset(n) where its weights lie in a row.
template <int N, class Target, class Offset>
RATENORM_INLINE void add_rows(int32_t* whole, const int16_t* weights, size_t row, const uint16_t* entry,
                              const uint16_t* end, int most, Target target, Offset offset) {
    for (int slice = 0; slice < SLICES; ++slice) {
        for (const uint16_t* at = entry; at != end;) {
            const uint16_t* stop = end - at > most ? at + most : end;
            Shorts sum[N];
            at = sum_rows<N>(sum, weights + slice * SHORTS, row, at, stop, offset);
            unroll<N>([&](auto n) __attribute__((always_inline)) { add_to(whole + target(n), slice, sum[n]); });
        }
    }
}

// R rows of C pixels of a 3x3 window.
template <int R, int C>
[[gnu::noinline]] void add_window(int32_t* whole, size_t line, const int16_t* weights, size_t row,
                                  const uint16_t* entry, const uint16_t* end, int most) {
    add_rows<R * C>(
        whole, weights, row, entry, end, most,
        [line](auto n) __attribute__((always_inline)) { return (n / C) * line + (n % C) * WIDE; },
        [](auto n) __attribute__((always_inline)) { return (3 * (n / C) + n % C) * WIDE; });
}

// N pixels anywhere, from the table [(target, tap lanes, length)].
template <int N>
RATENORM_INLINE void add_points(int32_t* whole, const uint32_t* segment, const int16_t* weights, size_t row,
                                  const uint16_t* entry, const uint16_t* end, int most) {
    add_rows<N>(
        whole, weights, row, entry, end, most,
        [segment](auto n) __attribute__((always_inline)) { return size_t(segment[3 * n]); },
        [segment](auto n) __attribute__((always_inline)) { return size_t(segment[3 * n + 1]); });
}

// A run of pixels side by side, whose windows overlap in two of three columns. The sums of three columns stay in
// registers: from one pixel to the next one column is done and another begins. So there are three kinds of turns, one
// for each column that can be the first. `marks` says where the entries of each pixel begin and end.
[[gnu::noinline]] inline void add_run(int32_t* whole, size_t line, const int16_t* weights, size_t row,
                                      const uint16_t* entries, const uint32_t* marks, int pixels, int most) {
    for (int slice = 0; slice < SLICES; ++slice) {
        Ints held[3][3][2]; // column, row, half
        int32_t* here = whole + slice * LANES;
        const int16_t* from = weights + slice * SHORTS;
        auto take_up = [&](auto column, const int32_t* at) __attribute__((always_inline)) {
            unroll<3>([&](auto r) __attribute__((always_inline)) {
                held[column][r][0] = load<Ints>(at + r * line);
                held[column][r][1] = load<Ints>(at + r * line + WIDE / 2);
            });
        };
        auto put_down = [&](auto column, int32_t* at) __attribute__((always_inline)) {
            unroll<3>([&](auto r) __attribute__((always_inline)) {
                store(at + r * line, held[column][r][0]);
                store(at + r * line + WIDE / 2, held[column][r][1]);
            });
        };
        auto turn = [&](auto first, int pixel) __attribute__((always_inline)) {
            const uint16_t *at = entries + marks[pixel], *end = entries + marks[pixel + 1];
            while (at != end) {
                const uint16_t* stop = end - at > most ? at + most : end;
                Shorts sum[9];
                at = sum_rows<9>(sum, from, row, at, stop,
                                 [](auto n) __attribute__((always_inline)) { return n * WIDE; });
                unroll<9>([&](auto n) __attribute__((always_inline)) {
                    constexpr int column = (decltype(first)::value + decltype(n)::value % 3) % 3;
                    widen_add(held[column][n / 3][0], held[column][n / 3][1], sum[n]);
                });
            }
            put_down(first, here);
            here += WIDE;
            take_up(first, here + 2 * WIDE);
        };
        using Zero = std::integral_constant<int, 0>;
        using One = std::integral_constant<int, 1>;
        using Two = std::integral_constant<int, 2>;
        take_up(Zero{}, here);
        take_up(One{}, here + WIDE);
        take_up(Two{}, here + 2 * WIDE);
        int pixel = 0;
        for (;;) { // the third column was only taken up
            if (pixel == pixels) { put_down(Zero{}, here), put_down(One{}, here + WIDE); break; }
            turn(Zero{}, pixel++);
            if (pixel == pixels) { put_down(One{}, here), put_down(Two{}, here + WIDE); break; }
            turn(One{}, pixel++);
            if (pixel == pixels) { put_down(Two{}, here), put_down(Zero{}, here + WIDE); break; }
            turn(Two{}, pixel++);
        }
    }
}

// One pixel's spikes to its window. `cut` says which of its rows and columns lie inside the picture, where two do: bit
// 0 two rows, bit 1 two columns, bits 2 and 3: the first of them is the second one. Where only one lies inside, all
// three are computed, in the margin of the scratch.
RATENORM_INLINE void add_cut_window(int32_t* whole, const Route& route, size_t pixel, const int16_t* weights,
                                    size_t row, const uint16_t* entry, const uint16_t* end) {
    const unsigned cut = route.cut[pixel], down = cut >> 2 & 1, right = cut >> 3 & 1;
    const size_t line = size_t(route.line);
    int32_t* at = whole + route.first[pixel] + down * line + right * WIDE;
    const int16_t* from = weights + (3 * down + right) * WIDE;
    switch (cut & 3) {
    case 0: return add_window<3, 3>(at, line, from, row, entry, end, route.most);
    case 1: return add_window<2, 3>(at, line, from, row, entry, end, route.most);
    case 2: return add_window<3, 2>(at, line, from, row, entry, end, route.most);
    default: return add_window<2, 2>(at, line, from, row, entry, end, route.most);
    }
}

} // namespace ratenorm::RATENORM_ISA
