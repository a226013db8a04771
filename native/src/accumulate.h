// Listed spikes to the currents of one block of channels: each adds its rows of weights to the pixels it reaches.
#pragma once

#include "tables.h"
#include "vectors.h"
#include "windows.h"

namespace ratenorm::RATENORM_ISA {

// Calls f(pixel, begin, end) with the entries of every pixel of a row that has some.
template <class F> RATENORM_INLINE void for_active(const List& list, const Route& route, int64_t row, F&& f) {
    const size_t first = size_t(row) * size_t(route.grid + 1);
    const uint32_t *marks = list.marks + first, *active = list.active + first;
    const uint16_t* entries = list.entries;
    for (uint32_t n = active[0]; n != 0; --n) {
        const size_t pixel = *++active;
        f(pixel, entries + marks[pixel], entries + marks[pixel + 1]);
    }
}

// total[0 : length] += factor * weights[0 : length], `length` a multiple of 16.
RATENORM_INLINE void add_row(float* total, const float* weights, size_t length, float factor) {
    const Sixteen by = splat16(factor);
    for (size_t i = 0; i < length; i += WORD) store16(total + i, load16(total + i) + load16(weights + i) * by);
}

// Windows of 16-bit weights.
inline void add_windows(const Route& given, const List& list, int32_t* whole, const int16_t* weights, int64_t row) {
    const Route route = given;
    for_active(list, route, row, [&](size_t p, const uint16_t* begin, const uint16_t* end) __attribute__((always_inline)) {
        add_cut_window(whole, route, p, weights, size_t(route.taps) * WIDE, begin, end);
    });
}

// The same with the inner pixels of a line sharing their sums.
inline void slide_windows(const Route& given, const List& list, int32_t* whole, const int16_t* weights, int64_t row) {
    const Route route = given;
    const size_t length = size_t(route.taps) * WIDE;
    const uint32_t* marks = list.marks + row * (route.grid + 1);
    for (size_t p = 0; p < size_t(route.grid); ++p)
        if (route.cut[p] & RUN) {
            add_run(whole + route.first[p], size_t(route.line), weights, length, list.entries, marks + p, route.run,
                    route.most);
            p += size_t(route.run) - 1;
        } else if (marks[p] != marks[p + 1]) {
            add_cut_window(whole, route, p, weights, length, list.entries + marks[p], list.entries + marks[p + 1]);
        }
}

// The same of several steps, each to a plane of its own: a pixel's spikes are mostly those of the same neurons.
inline void add_windows_of_steps(const Route& given, const List& list, int32_t* whole, int64_t plane,
                                 const int16_t* weights, int64_t row, int rows) {
    const Route route = given;
    const uint32_t* marks = list.marks + row * (route.grid + 1);
    for (size_t p = 0; p < size_t(route.grid); ++p)
        for (int r = 0; r < rows; ++r) {
            const uint32_t* mark = marks + p + size_t(r) * size_t(route.grid + 1);
            if (mark[0] != mark[1])
                add_cut_window(whole + r * plane, route, p, weights, size_t(route.taps) * WIDE, list.entries + mark[0],
                               list.entries + mark[1]);
        }
}

// 16-bit weights to pixels anywhere, four of them at a time.
inline void add_to_points(const Route& given, const List& list, int32_t* whole, const int16_t* weights, int64_t row) {
    const Route route = given;
    const size_t length = size_t(route.taps) * WIDE;
    for_active(list, route, row, [&](size_t p, const uint16_t* begin, const uint16_t* end) __attribute__((always_inline)) {
        const uint32_t *segment = route.segments.data + 3 * size_t(route.first[p]),
                       *last = route.segments.data + 3 * size_t(route.first[p + 1]);
        for (; last - segment >= 12; segment += 12)
            add_points<4>(whole, segment, weights, length, begin, end, route.most);
        if (last - segment >= 6) {
            add_points<2>(whole, segment, weights, length, begin, end, route.most);
            segment += 6;
        }
        if (segment != last) add_points<1>(whole, segment, weights, length, begin, end, route.most);
    });
}

// Calls f(channel, target, tap lanes, length, factor) for each segment that each entry of a row reaches.
template <class F> RATENORM_INLINE void for_segments(const List& list, const Route& given, int64_t row, F&& f) {
    const Route route = given;
    for_active(list, route, row, [&](size_t p, const uint16_t* begin, const uint16_t* end) __attribute__((always_inline)) {
        for (const uint16_t* entry = begin; entry != end; ++entry) {
            const uint32_t digit = uint32_t(*entry) >> route.digit_shift;
            for (uint32_t g = route.first[p]; g < route.first[p + 1]; ++g) {
                const uint32_t* segment = route.segments.data + 3 * size_t(g);
                f(*entry - (digit << route.digit_shift), segment[0], segment[1], segment[2],
                  route.factors[digit] * route.shares[g]);
            }
        }
    });
}

// float32 weights along the segments of a pixel, to all channels.
inline void add_rows_of_floats(const Route& route, const List& list, float* total, const float* weights, int32_t width,
                               int64_t row) {
    const size_t length = size_t(route.taps) * size_t(width);
    for_segments(list, route, row, [&](uint32_t channel, uint32_t target, uint32_t tap, uint32_t count, float factor)
                                       __attribute__((always_inline)) {
        add_row(total + target, weights + channel * length + tap, count, factor);
    });
}

// The same where a spike reaches its own channel only; channels of other blocks are passed over.
inline void add_to_own_channel(const Route& route, const List& list, float* total, int32_t width, int64_t block,
                               int64_t row) {
    const uint32_t channel0 = uint32_t(block * width), lanes = uint32_t(width);
    for_segments(list, route, row, [&](uint32_t channel, uint32_t target, uint32_t tap, uint32_t count, float factor)
                                       __attribute__((always_inline)) {
        if (channel - channel0 >= lanes) return; // unsigned: also below channel0
        const float* own = route.weights.data + channel * size_t(route.taps) + tap / lanes;
        for (uint32_t j = 0; j < count / lanes; ++j) total[target + (channel - channel0) + j * lanes] += factor * own[j];
    });
}

RATENORM_INLINE bool in_short(const Route& route) {
    return route.kind == RouteKind::window || route.kind == RouteKind::points;
}

// total += units * whole, which is cleared: where whole numbers of several units meet, or floats are asked for.
inline void settle(const Stage& stage, const Route& route, Scratch scratch, int64_t block) {
    for (size_t p = 0; p < stage.places.size; ++p)
        for (int32_t j = 0; j < stage.width; j += WORD) {
            const size_t at = stage.places[p] + size_t(j);
            const Sixteen unit = load16(route.units.data + block * stage.width + j);
            store16(scratch.total + at, load16(scratch.total + at) + floats16(scratch.whole + at) * unit);
            clear16(scratch.whole + at);
        }
}

// What the spikes of a row bring to a block. Several `rows` at once only where one route of 16-bit windows is all.
inline void accumulate(const Work& work, Scratch scratch, int64_t block, int64_t row, int rows, bool settling) {
    const Stage& stage = *work.stage;
    for (size_t k = 0; k < stage.routes.size; ++k) {
        const Route& route = stage.routes[k];
        const List& list = work.lists[k];
        const int16_t* shorts = route.shorts.data + block * route.block;
        switch (route.kind) {
        case RouteKind::window:
            if (rows > 1)
                add_windows_of_steps(route, list, scratch.whole, stage.total, shorts, row, rows);
            else if (work.slides[k] != 0 && REGISTERS >= 32)
                slide_windows(route, list, scratch.whole, shorts, row);
            else
                add_windows(route, list, scratch.whole, shorts, row);
            break;
        case RouteKind::points: add_to_points(route, list, scratch.whole, shorts, row); break;
        case RouteKind::rows:
            add_rows_of_floats(route, list, scratch.total, route.weights.data + block * route.block, stage.width, row);
            break;
        case RouteKind::own: add_to_own_channel(route, list, scratch.total, stage.width, block, row); break;
        }
        if (settling && in_short(route)) settle(stage, route, scratch, block);
    }
}

// Reads a block of weights through once, in order: many random first reads would each wait for memory.
template <class T> void fetch(const T* from, size_t count) {
    for (size_t i = 0; i < count; i += 64 / sizeof(T)) (void)*static_cast<const volatile T*>(from + i);
}

inline void fetch_weights(const Stage& stage, int64_t block) {
    for (size_t k = 0; k < stage.routes.size; ++k) {
        const Route& route = stage.routes[k];
        if (in_short(route)) fetch(route.shorts.data + block * route.block, size_t(route.used));
        if (route.kind == RouteKind::rows) fetch(route.weights.data + block * route.block, size_t(route.used));
    }
}

} // namespace ratenorm::RATENORM_ISA
