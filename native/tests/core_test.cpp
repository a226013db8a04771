// The core against plain loops, on every instruction set of the machine: random programs of two or three stages whose
// sums are exact, threads of a team, and tables that Program must refuse.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>

#include "isa.h"
#include "program.h"
#include "team.h"

using namespace ratenorm;

namespace {

int failures = 0;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::printf("%s:%d: %s failed: ", __FILE__, __LINE__, #condition);                                         \
            std::printf(__VA_ARGS__);                                                                                  \
            std::printf("\n");                                                                                         \
            ++failures;                                                                                                \
        }                                                                                                              \
    } while (false)

template <class T> void give(Buffer<T>& owner, View<const T>& view, const std::vector<T>& values) {
    owner = Buffer<T>::copy(values.data(), values.size());
    view = owner.constant();
}

using Random = std::mt19937;

int below(Random& random, int count) { return int(random() % unsigned(count)); }

// A stage without anything that drives it. Thresholds and constant currents are multiples of 1/8.
StageTable population(Random& random, StageKind kind, int channels, int height, int width) {
    StageTable table;
    Stage& s = table.view;
    s.kind = kind, s.channels = channels, s.pixels = height * width;
    s.width = channels <= 16 ? 16 : 32, s.blocks = (channels + s.width - 1) / s.width;
    s.skip = -1, s.together = 1;
    const size_t lanes = size_t(s.lanes());
    std::vector<float> threshold(lanes, HUGE_VALF), base(lanes, 0.0f);
    for (int c = 0; c < channels; ++c) {
        threshold[size_t(c)] = float(4 + below(random, 16)) / 8;
        base[size_t(c)] = float(below(random, 12) - 2) / 8;
    }
    give(table.threshold, s.threshold, threshold);
    give(table.base, s.base, base);
    s.threshold_block = s.base_block = s.width;
    if (below(random, 2) == 0) {
        std::vector<float> start(size_t(s.size()));
        for (float& v : start) v = float(below(random, 9) - 4) / 8;
        give(table.start, s.start, start);
    }
    if (kind != StageKind::output && kind != StageKind::relay && below(random, 3) == 0) {
        s.bias_rows = 1 + below(random, 4), s.bias_row = int64_t(lanes), s.bias_block = s.width;
        std::vector<float> bias(lanes * size_t(s.bias_rows));
        for (float& v : bias) v = float(below(random, 9) - 4) / 8;
        give(table.step_bias, s.step_bias, bias);
    }
    std::vector<int64_t> fan_out;
    if (below(random, 2) == 0) {
        std::vector<int32_t> runs;
        for (int64_t left = s.row(); left > 0; left -= runs.back()) {
            runs.push_back(int32_t(std::min<int64_t>(left, 1 + below(random, 9))));
            fan_out.push_back(below(random, 100));
        }
        give(table.runs, s.runs, runs);
    } else {
        for (int64_t i = 0; i < s.size(); ++i) fan_out.push_back(below(random, 100));
    }
    give(table.fan_out, s.fan_out, fan_out);
    return table;
}

// A 3x3 convolution with padding 1, or any other connection, as a function of both ends: (source channel, source pixel)
// to (channel, pixel). Weights are whole numbers, in units of 1/8.
struct Connection {
    std::vector<int> weight; // [input, tap, channel]
    int inputs, channels, height, width, stride; // of the source
    int out_width() const { return (width - 1) / stride + 1; }
    int out_height() const { return (height - 1) / stride + 1; }
    int at(int input, int tap, int channel) const {
        return weight[size_t((input * 9 + tap) * channels + channel)];
    }
    // Calls f(target pixel, tap) for what a source pixel reaches; taps are numbered backwards, as targets grow with them.
    template <class F> void reached(int pixel, F f) const {
        for (int tap = 0; tap < 9; ++tap) {
            const int y = pixel / width + tap / 3 - 1, x = pixel % width + tap % 3 - 1;
            if (y < 0 || x < 0 || y % stride != 0 || x % stride != 0) continue;
            if (y / stride < out_height() && x / stride < out_width()) f(y / stride * out_width() + x / stride, tap);
        }
    }
};

Connection connection(Random& random, int inputs, int channels, int height, int width, int stride, bool own) {
    Connection made{{}, inputs, channels, height, width, stride};
    made.weight.resize(size_t(inputs * 9 * channels));
    for (int i = 0; i < inputs; ++i)
        for (int rest = 0; rest < 9 * channels; ++rest)
            made.weight[size_t(i * 9 * channels + rest)] = own && rest % channels != i ? 0 : below(random, 201) - 100;
    return made;
}

RouteTable route(const Connection& c, const Stage& s, const Stage& source, RouteKind kind, int64_t line) {
    RouteTable table;
    Route& r = table.view;
    r.kind = kind, r.source = 0, r.grid = source.pixels, r.inputs = c.inputs, r.taps = 9, r.digits = 1;
    r.digit_shift = 16, r.apart = 1 << 16, r.most = 16, r.block = int64_t(c.inputs) * 9 * s.width, r.used = r.block;
    const bool shorts = kind == RouteKind::window || kind == RouteKind::points;
    std::vector<float> weights;
    std::vector<int16_t> whole;
    for (int block = 0; block < s.blocks; ++block)
        for (int i = 0; i < c.inputs; ++i)
            for (int tap = 0; tap < 9; ++tap)
                for (int lane = 0; lane < s.width; ++lane) {
                    const int in_turn = lane / 2 + lane % 2 * 16; // 0 16 1 17 …
                    const int channel = block * s.width + (shorts ? in_turn : lane);
                    const int value = channel < s.channels ? c.at(i, tap, channel) : 0;
                    shorts ? whole.push_back(int16_t(value)) : weights.push_back(float(value) / 8);
                }
    if (kind == RouteKind::own) {
        weights.clear();
        for (int i = 0; i < c.inputs; ++i)
            for (int tap = 0; tap < 9; ++tap) weights.push_back(float(c.at(i, tap, i)) / 8);
        r.block = r.used = 0;
    }
    if (shorts) {
        give(table.shorts, r.shorts, whole);
        give(table.units, r.units, std::vector<float>(size_t(s.lanes()), 0.125f));
    } else {
        give(table.weights, r.weights, weights);
        give(table.factors, r.factors, std::vector<float>{1.0f});
    }
    std::vector<uint32_t> first, segments;
    std::vector<uint8_t> cut;
    for (int p = 0; p < source.pixels; ++p) {
        if (kind == RouteKind::window) {
            const int y = p / c.width, x = p % c.width;
            first.push_back(uint32_t((y * line + x) * 32));
            const bool low = y == 0, high = y == c.height - 1, left = x == 0, right = x == c.width - 1;
            const bool rows = low != high, columns = left != right; // two of three lie inside
            cut.push_back(uint8_t(rows | columns << 1 | (rows && low) << 2 | (columns && left) << 3));
            if (!low && !high && x == 1 && c.width > 2) cut.back() |= RUN;
            continue;
        }
        first.push_back(uint32_t(segments.size() / 3));
        c.reached(p, [&](int target, int tap) {
            segments.insert(segments.end(), {s.places[size_t(target)], uint32_t(tap * s.width), uint32_t(s.width)});
        });
    }
    if (kind == RouteKind::window) {
        r.line = line * 32, r.run = c.width > 2 ? c.width - 2 : 0;
        give(table.cut, r.cut, cut);
    } else {
        first.push_back(uint32_t(segments.size() / 3));
        give(table.segments, r.segments, segments);
        give(table.shares, r.shares, std::vector<float>(segments.size() / 3, 1.0f));
    }
    give(table.first, r.first, first);
    return table;
}

void place(StageTable& table, int width, int64_t line) { // with a margin after a window
    Stage& s = table.view;
    std::vector<uint32_t> places;
    for (int p = 0; p < s.pixels; ++p)
        places.push_back(uint32_t(line == 0 ? p * s.width : ((p / width + 1) * line + p % width + 1) * s.width));
    s.total = line == 0 ? int64_t(s.pixels) * s.width : ((s.pixels / width + 2) * line + 1) * s.width;
    give(table.places, s.places, places);
}

// The neurons of a population by plain loops, in double precision: all numbers are exact.
struct Reference {
    std::vector<double> potential;
    std::vector<int> counts;
};

using Spikes = std::vector<std::vector<char>>; // [row][channel * pixels + pixel]
using Current = std::function<double(int64_t row, int channel, int pixel)>;

Spikes fire(const Stage& s, int images, int steps, Reference& reference, const Current& current) {
    const size_t size = size_t(s.channels * s.pixels);
    Spikes spikes(size_t(images * steps), std::vector<char>(size));
    reference.potential.assign(size * size_t(images), 0.0), reference.counts.assign(size * size_t(images), 0);
    for (int image = 0; image < images; ++image)
        for (int c = 0; c < s.channels; ++c)
            for (int p = 0; p < s.pixels; ++p) {
                const int64_t neuron = (int64_t(c / s.width) * s.pixels + p) * s.width + c % s.width;
                double v = s.start.empty() ? 0.0 : double(s.start[size_t(neuron)]);
                const double threshold = double(s.threshold[size_t(c)]);
                const size_t at = size_t(image) * size + size_t(c * s.pixels + p);
                for (int step = 0; step < steps; ++step) {
                    const int64_t row = int64_t(image) * steps + step;
                    const int64_t bias_row = std::min<int64_t>(step, s.bias_rows - 1);
                    v += current(row, c, p) + double(s.base[size_t(c)]);
                    if (!s.step_bias.empty()) v += double(s.step_bias[size_t(bias_row * s.bias_row + c)]);
                    if (v >= threshold) {
                        v -= threshold, ++reference.counts[at];
                        spikes[size_t(row)][size_t(c * s.pixels + p)] = 1;
                    }
                }
                reference.potential[at] = v;
            }
    return spikes;
}

void compare(const Chunk& chunk, const State& state, size_t stage, const Spikes& spikes, const Reference* reference,
             const char* what) {
    const Stage& s = chunk.program()[stage];
    int wrong = 0;
    for (int64_t row = 0; row < chunk.rows(); ++row) {
        int64_t number = 0, operations = 0;
        std::vector<int64_t> fan_out;
        for (size_t r = 0; r < s.runs.size; ++r) fan_out.insert(fan_out.end(), size_t(s.runs[r]) * 16, s.fan_out[r]);
        for (int c = 0; c < s.channels; ++c)
            for (int p = 0; p < s.pixels; ++p) {
                const uint16_t word = chunk.words(stage)[(row * s.pixels + p) * s.words() + c / 16];
                const bool fired = spikes[size_t(row)][size_t(c * s.pixels + p)] != 0;
                wrong += (word >> c % 16 & 1) != fired;
                const size_t neuron = size_t(p * s.lanes() + c);
                if (fired) ++number, operations += s.runs.empty() ? s.fan_out[neuron] : fan_out[neuron];
            }
        wrong += chunk.spikes(stage)[row] != number || chunk.operations(stage)[row] != operations;
    }
    for (int64_t at = 0; reference != nullptr && at < int64_t(reference->counts.size()); ++at) {
        const int64_t image = at / (int64_t(s.channels) * s.pixels), c = at / s.pixels % s.channels, p = at % s.pixels;
        const size_t neuron = size_t(image * s.size() + (c / s.width * s.pixels + p) * s.width + c % s.width);
        wrong += double(state.potential(stage)[neuron]) != reference->potential[size_t(at)];
        wrong += int(state.counts(stage)[neuron]) != reference->counts[size_t(at)];
    }
    CHECK(wrong == 0, "%s: %d numbers differ", what, wrong);
}

// A source, a second stage of one kind, and what plain loops make of them.
void random_program(unsigned seed, const std::string& isa) {
    Random random(seed);
    const char* names[] = {"window", "points", "rows", "own", "lookup", "relay", "output"};
    const int what = int(seed % 7);
    const bool narrow = what == 4, own = what == 3;
    const int height = 1 + below(random, 6), width = 1 + below(random, 9);
    const int inputs = narrow ? 1 + below(random, 16) : 1 + below(random, 40);
    const bool shorts = what < 2;
    const int outputs = own ? inputs : narrow ? 1 + below(random, 16) : (shorts ? 17 : 1) + below(random, 60);
    const int stride = what == 1 || what == 2 ? 1 + below(random, 2) : 1;
    const Connection c = connection(random, inputs, what == 5 ? inputs : outputs, height, width, stride, own);
    const bool relay = what == 5, output = what == 6;
    std::vector<StageTable> stages;
    stages.push_back(population(random, StageKind::still, inputs, height, width));
    const StageKind kind = narrow ? StageKind::looked_up : relay ? StageKind::relay
                           : output ? StageKind::output : StageKind::driven;
    StageTable second = population(random, kind, relay ? inputs : outputs, c.out_height(), c.out_width());
    Stage& s = second.view;
    std::vector<uint32_t> windows;
    if (narrow) {
        s.source = 0, s.source_height = height, s.source_width = width, s.top = s.left = 1, s.line = width;
        std::vector<int16_t> table(9 * 2 * 256 * 16);
        for (int tap = 0; tap < 9; ++tap)
            for (int half = 0; half < 2; ++half)
                for (int byte = 0; byte < 256; ++byte)
                    for (int i = 0; i < 8; ++i)
                        for (int lane = 0; lane < outputs; ++lane)
                            if (byte >> i & 1 && half * 8 + i < inputs) // the window of a target: taps forwards
                                table[size_t(((tap * 2 + half) * 256 + byte) * 16 + lane)] +=
                                    int16_t(c.at(half * 8 + i, 8 - tap, lane));
        give(second.table, s.table, table);
        give(second.units, s.units, std::vector<float>(16, 0.125f));
    } else if (relay) {
        s.source = 0, s.members = 4, s.source_pixels = height * width;
        for (int p = 0; p < s.pixels; ++p)
            for (int m = 0; m < 4; ++m) {
                const int y = p / width + m / 2, x = p % width + m % 2;
                windows.push_back(y < height && x < width ? uint32_t(y * width + x) : NOWHERE);
            }
        give(second.windows, s.windows, windows);
    } else {
        const int64_t line = what == 0 ? width + 2 : 0;
        place(second, c.out_width(), line);
        const RouteKind kinds[] = {RouteKind::window, RouteKind::points, RouteKind::rows, RouteKind::own};
        const RouteKind by = output ? RouteKind::rows : kinds[what];
        second.routes.push_back(route(c, s, stages[0].view, by, line));
        if (what == 0 && below(random, 2) == 0) s.together = 8;
        if (inputs == outputs && stride == 1 && !output && s.together == 1 && below(random, 2) == 0) {
            s.skip = 0;
            give(second.skip_scale, s.skip_scale, std::vector<float>(size_t(s.lanes()), 0.5f));
        }
    }
    stages.push_back(std::move(second));
    const int images = 1 + below(random, 3), steps = 1 + below(random, Chunk::MOST_STEPS), threads = 1 + below(random, 3);
    const auto program = std::make_shared<const Program>(std::move(stages), isa);
    const Stage &first = (*program)[0], &last = (*program)[1];
    State state(program, images);
    Chunk chunk(program, images, steps, threads);
    const Stop stop = chunk.run(state, {}, 0, 0, {}, false);
    CHECK(stop.why == Why::done && stop.stage == 2, "stopped at %d", int(stop.stage));

    Reference reference;
    const Spikes before = fire(first, images, steps, reference, [](int64_t, int, int) { return 0.0; });
    const std::string label = std::string(names[what]) + " on " + isa + ", seed " + std::to_string(seed);
    compare(chunk, state, 0, before, &reference, label.c_str());
    if (relay) {
        Spikes passed(before.size(), std::vector<char>(size_t(inputs * s.pixels)));
        for (int image = 0; image < images; ++image)
            for (int channel = 0; channel < inputs; ++channel)
                for (int p = 0; p < last.pixels; ++p) {
                    std::vector<int> sums(4);
                    int largest = 0;
                    for (int step = 0; step < steps; ++step) {
                        const size_t row = size_t(image * steps + step);
                        for (int m = 0; m < 4; ++m)
                            if (const uint32_t at = windows[size_t(p * 4 + m)]; at != NOWHERE)
                                sums[size_t(m)] += before[row][size_t(channel * first.pixels) + at];
                        const int now = *std::max_element(sums.begin(), sums.end());
                        passed[row][size_t(channel * last.pixels + p)] = char(now - largest);
                        largest = now;
                    }
                }
        return compare(chunk, state, 1, passed, nullptr, label.c_str());
    }
    std::vector<std::vector<double>> currents(before.size(), std::vector<double>(size_t(outputs * last.pixels)));
    for (size_t row = 0; row < before.size(); ++row)
        for (int i = 0; i < inputs; ++i)
            for (int p = 0; p < first.pixels; ++p)
                if (before[row][size_t(i * first.pixels + p)] != 0)
                    c.reached(p, [&](int target, int tap) {
                        for (int o = 0; o < outputs; ++o)
                            currents[row][size_t(o * last.pixels + target)] += c.at(i, tap, o) / 8.0;
                    });
    const auto current = [&](int64_t row, int channel, int pixel) {
        const size_t at = size_t(channel * last.pixels + pixel);
        return currents[size_t(row)][at] + (last.skip == 0 && before[size_t(row)][at] != 0 ? 0.5 : 0.0);
    };
    if (output) {
        int wrong = 0;
        for (int64_t row = 0; row < chunk.rows(); ++row)
            for (int o = 0; o < outputs; ++o)
                for (int p = 0; p < last.pixels; ++p) {
                    const int64_t block = o / last.width, lane = o % last.width;
                    const int64_t at = (row * last.pixels + p) * last.lanes() + block * last.width + lane;
                    wrong += double(chunk.output()[at]) != current(row, o, p) + double(last.base[size_t(o)]);
                }
        CHECK(wrong == 0, "%s: %d numbers differ", label.c_str(), wrong);
        return;
    }
    compare(chunk, state, 1, fire(last, images, steps, reference, current), &reference, label.c_str());
}

void teams() {
    for (const int helpers : {0, 1, 3})
        for (int round = 0; round < 200; ++round) {
            const Lease lease(helpers);
            std::vector<std::atomic<int>> done(size_t(1 + round % 40));
            std::atomic<bool> in_range = true;
            for (int turn = 0; turn < 5; ++turn)
                (*lease).run(int(done.size()), [&](int part, int member) {
                    ++done[size_t(part)];
                    if (member < 0 || member > helpers) in_range = false;
                });
            int wrong = 0;
            for (const auto& count : done) wrong += count != 5;
            CHECK(wrong == 0 && in_range, "%d helpers: %d parts were not done 5 times", helpers, wrong);
        }
}

void refused() {
    const auto refuses = [](const char* what, const std::function<void(std::vector<StageTable>&)>& spoil) {
        Random random(1);
        std::vector<StageTable> stages;
        stages.push_back(population(random, StageKind::still, 20, 4, 4));
        const Connection c = connection(random, 20, 24, 4, 4, 1, false);
        StageTable second = population(random, StageKind::driven, 24, 4, 4);
        place(second, 4, 0);
        second.routes.push_back(route(c, second.view, stages[0].view, RouteKind::points, 0));
        stages.push_back(std::move(second));
        spoil(stages);
        bool thrown = false;
        try {
            const Program program(std::move(stages), "");
        } catch (const std::invalid_argument&) {
            thrown = true;
        }
        CHECK(thrown == (*what != '\0'), "a program %s", what);
    };
    refuses("", [](auto&) {});
    refuses("with a source after its stage", [](auto& s) { s[1].routes[0].view.source = 1; });
    refuses("with too few weights", [](auto& s) { s[1].routes[0].view.shorts.size -= 1; });
    refuses("with a target outside", [](auto& s) { s[1].routes[0].segments.data()[0] = 1 << 20; });
    refuses("with segments out of order", [](auto& s) { s[1].routes[0].first.data()[3] = 1; });
    refuses("with a place outside", [](auto& s) { s[1].places.data()[2] = 1 << 20; });
    refuses("with a short threshold", [](auto& s) { s[1].view.threshold.size = 8; });
    refuses("with fan-out of other neurons", [](auto& s) { s[0].view.fan_out.size -= 1; });
    refuses("with more channels than its route has inputs", [](auto& s) { s[1].routes[0].view.inputs = 19; });
    refuses("with an empty side", [](auto& s) { s[0].view.pixels = 0; });
}

} // namespace

int main(int count, char** words) {
    const unsigned programs = count > 1 ? unsigned(std::atoi(words[1])) : 700;
    for (const std::string& isa : instruction_sets()) {
        for (unsigned seed = 0; seed < programs; ++seed) random_program(seed, isa);
        std::printf("%u random programs on %s\n", programs, isa.c_str());
    }
    teams();
    refused();
    std::printf(failures == 0 ? "all passed\n" : "%d failed\n", failures);
    return failures == 0 ? 0 : 1;
}
