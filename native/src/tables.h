// What a network looks like to the kernels: plain structs that point into memory which others own.
//
// A population of C channels on P pixels is cut into blocks of `width` channels (lanes). Its state lies
// [image, block, pixel, lane]; its spikes are words of 16 bits, [row, pixel, word], where row = image * steps + step.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ratenorm {

template <class T> struct View {
    T* data = nullptr;
    size_t size = 0;
    T& operator[](size_t i) const { return data[i]; }
    bool empty() const { return size == 0; }
};

inline constexpr uint32_t NOWHERE = 0xFFFFFFFF; // a member of a window that lies in the padding
inline constexpr uint8_t RUN = 16;              // a bit of Route::cut: here a run of pixels begins

// How the spikes of a list find the currents that they add to.
enum class RouteKind : int32_t {
    window = 0, // 16-bit weights, to a window of 3x3 pixels, all channels
    points = 1, // 16-bit weights, to any pixels, all channels
    rows = 2,   // float32 weights, to runs of pixels, all channels
    own = 3,    // float32 weights, to any pixels, the spike's own channel only
};

// The spikes of one source on their way to the currents of a stage.
struct Route {
    RouteKind kind;
    int32_t source;      // the stage that spikes
    int32_t grid;        // pixels of its lists: those of the source, or the windows of a pool
    int32_t inputs;      // channels
    int32_t taps;        // rows of weights of a channel
    int32_t digits;      // binary digits of the largest count of a pool's window; 1 without a pool
    int32_t digit_shift; // entries of `rows` and `own`: bits below the digit
    int32_t apart;       // from one digit of a list entry to the next
    int32_t members;     // pixels of a pool's window; 0 without a pool
    int32_t most;        // spikes whose 16-bit weights can be added before 16 bits overflow
    int32_t run;         // pixels of a run, see RUN
    int64_t line;        // lanes from one row of a window to the next
    int64_t block;       // weights of one block of channels
    int64_t used;        // of those the first part, which most spikes read
    int64_t spike_cost;  // picoseconds
    View<const uint32_t> windows;  // [window, member] pixels of the source
    View<const uint32_t> first;    // window: where a pixel's window begins; others: its first segment, [grid + 1]
    View<const uint8_t> cut;       // window: what of it lies outside, see windows.h
    View<const uint32_t> segments; // [segment, (target, tap lanes, length in lanes)]
    View<const float> shares;      // [segment]
    View<const float> factors;     // [digit]
    View<const int16_t> shorts;    // [block, digit, channel, tap, lane]; the halves of a block's lanes in turn
    View<const float> weights;     // [block, channel, tap, lane]; own: [channel, tap]
    View<const float> units;       // [lane] what 1 stands for
};

enum class StageKind : int32_t {
    still = 0,     // neurons under a constant current
    driven = 1,    // neurons that spikes drive
    looked_up = 2, // the same with few channels: currents come out of a table
    relay = 3,     // a max-pool over spikes
    output = 4,    // currents that nobody integrates
};

// A population with everything that drives it; or a relay; or the output.
struct Stage {
    StageKind kind;
    int32_t pixels, blocks, width, channels;
    // The neuron. Distances of 0 say that all share a value.
    View<const float> threshold;
    int64_t threshold_block, threshold_pixel;
    View<const float> start; // potentials of an image before the first step; empty: zero
    View<const float> base;  // the current that no spike changes; empty: it differs between images
    int64_t base_image, base_block, base_pixel;
    View<const float> step_bias; // [row, …]; empty: none
    int64_t bias_rows, bias_row, bias_block, bias_pixel;
    // Its currents.
    View<const uint32_t> places; // where each pixel lies in the scratch of a block
    int64_t total;               // size of that scratch
    int32_t together;            // steps that are added before the neurons fire
    int32_t computed;            // 1: torch computes a part of the current
    int32_t skip;                // the source of a skip connection, or -1
    View<const float> skip_scale;
    int64_t dense_row, dense_once; // picoseconds that torch would take for each row, and once
    // Looked up.
    View<const int16_t> table; // [tap, half, byte, lane]
    View<const float> units;
    int32_t source, source_height, source_width, top, left, line; // line: pixels of a row of the stage
    // A relay: [pixel, member] pixels of the source, or NOWHERE.
    View<const uint32_t> windows;
    int32_t members, source_pixels;
    // Synapses of a spike: one number for each run of words; without runs one for each neuron, [pixel, lane].
    View<const int64_t> fan_out;
    View<const int32_t> runs; // how many words each has

    View<const Route> routes;

    int64_t lanes() const { return int64_t(blocks) * width; }
    int64_t words() const { return lanes() / 16; }    // of a pixel
    int64_t row() const { return pixels * words(); }  // words of a row of spikes
    int64_t size() const { return pixels * lanes(); } // numbers of one image's state
};

// The lists of a route in a chunk: entry = digit * apart + channel, pixel by pixel.
struct List {
    uint16_t* entries;
    uint32_t* marks;      // [row, grid + 1]: where the entries of each pixel begin
    uint32_t* active;     // [row, grid + 1]: how many pixels have entries, then which
    const int64_t* begin; // [row]
};

// One stage at work on a chunk of steps.
struct Work {
    const Stage* stage;
    int32_t images, steps;
    int64_t first_step; // steps done before
    bool fresh;         // potentials and counts begin now
    View<float> potential, counts; // of a relay: what has accumulated, and the largest of each window
    View<const float> base;
    int64_t base_image, base_block, base_pixel;
    View<const float> extra; // currents that torch computed, [row, pixel, lane]; empty: none
    uint16_t* words;
    const uint16_t* source_words; // spikes of the source of a looked up stage or relay
    const uint16_t* skip_words;   // spikes of the source of the skip connection
    const List* lists;            // a list for each route; unused where `events` is false
    const int32_t* slides;        // by route: 1 where neighbouring windows share their sums
    bool events;                  // spikes are added; else `extra` holds everything
    bool fetch;                   // read a block's weights in order before they are needed
    int32_t together;
    float* output; // of an output stage: [row, block, pixel, lane]
};

// Memory of one thread.
struct Scratch {
    float* total;   // currents of a block
    int32_t* whole; // the same in whole numbers, `together` planes
    uint16_t* planes;
};

// The kernels of one instruction set. Ranges are [first, last).
struct Kernels {
    const char* name;
    void (*list)(const Stage& source, const Route&, const uint16_t* words, List, int64_t row0, int64_t row1);
    void (*run)(const Work&, Scratch, int64_t first, int64_t last); // blocks; pixels of a looked up stage
    void (*relay)(const Work&, const Stage& source, int64_t image0, int64_t image1);
    void (*count)(const Work&, int64_t word0, int64_t word1);       // adds to counts
    void (*tally)(const Work&, int64_t row0, int64_t row1, int64_t* spikes, int64_t* operations);
};

} // namespace ratenorm
