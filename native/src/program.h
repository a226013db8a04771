// A network as a sequence of stages, the state of some images, and the run of a chunk of steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "buffer.h"
#include "tables.h"

namespace ratenorm {

// The memory that the views of a route and of a stage point into.
struct RouteTable {
    Route view{};
    Buffer<uint32_t> windows, first, segments;
    Buffer<uint8_t> cut;
    Buffer<float> shares, factors, weights, units;
    Buffer<int16_t> shorts;
};

struct StageTable {
    Stage view{};
    Buffer<float> threshold, start, base, step_bias, skip_scale, units;
    Buffer<uint32_t> places, windows;
    Buffer<int16_t> table;
    Buffer<int64_t> fan_out;
    Buffer<int32_t> runs;
    std::vector<RouteTable> routes;
    std::vector<Route> route_views;
};

// The stages of a network, checked: no kernel can leave its arrays. It does not change.
class Program {
  public:
    // Throws std::invalid_argument where a table is not what the others say it must be.
    Program(std::vector<StageTable> stages, const std::string& instruction_set);
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    size_t size() const { return stages_.size(); }
    const Stage& operator[](size_t k) const { return stages_[k].view; }
    const Kernels& kernels() const { return *kernels_; }

  private:
    std::vector<StageTable> stages_;
    const Kernels* kernels_;
};

// Potentials and counts of some images.
class State {
  public:
    State(std::shared_ptr<const Program> program, int64_t images);

    // The same state; whoever of both is run first takes a copy of its own.
    State snapshot() const { return *this; }
    // The state of some of the images.
    State kept(const std::vector<int64_t>& chosen) const;

    int64_t images() const { return images_; }
    const Program& program() const { return *program_; }
    bool fresh = true; // nothing is in it yet

    View<float> potential(size_t stage) const;
    View<float> counts(size_t stage) const;
    void detach(); // before it is changed
    void begin();  // writes what stands for a fresh state, for those who read one

  private:
    struct Places {
        int64_t potential, potentials, counts, count; // where, and how many an image
    };
    Places places(size_t stage) const { return places_[stage]; }

    std::shared_ptr<const Program> program_;
    int64_t images_, size_ = 0;
    std::vector<Places> places_;
    std::shared_ptr<Buffer<float>> memory_;
};

enum class Why : int32_t {
    done = 0,
    compute = 1, // torch has a part of a current to compute
    dense = 2,   // torch computes a whole current faster than its spikes can be added
};

// Where a chunk stopped.
struct Stop {
    int64_t stage;
    Why why;
};

// The memory that a chunk of some images and steps needs, used again by the next chunk of that size.
class Chunk {
  public:
    static constexpr int MOST_STEPS = 63; // counting.h has six binary digits

    Chunk(std::shared_ptr<const Program> program, int64_t images, int64_t steps, int threads);
    Chunk(const Chunk&) = delete;
    Chunk& operator=(const Chunk&) = delete;

    // Runs the stages from `stage` on, until torch has something to compute or all is done. `bases` are the constant
    // currents of the stages that have none in their tables, in order. `extra` is what torch computed for `stage`,
    // where the last run stopped; empty at the beginning. With `choose`, a run may stop for `dense`.
    Stop run(State& state, const std::vector<View<const float>>& bases, int64_t first_step, int64_t stage,
             View<const float> extra, bool choose);

    const Program& program() const { return *program_; }
    int64_t images() const { return images_; }
    int64_t steps() const { return steps_; }
    int64_t rows() const { return images_ * steps_; }
    const uint16_t* words(size_t stage) const { return words_[stage].data(); }
    const int64_t* spikes(size_t stage) const { return tallies_.data() + 2 * int64_t(stage) * rows(); }
    const int64_t* operations(size_t stage) const { return spikes(stage) + rows(); }
    const float* output() const { return output_.data(); }

    struct Choice { // how the spikes of a stage were added
        bool events = true, fetch = false;
        int together = 1;            // steps
        std::vector<int32_t> slides; // by route: 1 where neighbouring windows shared their sums
    };
    const Choice& choice(size_t stage) const { return choices_[stage]; }

  private:
    class Runner;
    List list_of(size_t route) const {
        return {entries_[route].data(), marks_[route].data(), active_[route].data(), begins_[route].data()};
    }

    std::shared_ptr<const Program> program_;
    int64_t images_, steps_;
    int threads_;
    std::vector<Buffer<uint16_t>> words_;
    Buffer<int64_t> tallies_; // [stage, (spikes, operations), row]
    Buffer<float> output_;
    std::vector<Buffer<uint16_t>> entries_; // by route
    std::vector<Buffer<uint32_t>> marks_, active_;
    std::vector<Buffer<int64_t>> begins_;
    std::vector<Buffer<float>> total_; // by thread
    std::vector<Buffer<int32_t>> whole_;
    std::vector<Buffer<uint16_t>> planes_;
    std::vector<Choice> choices_; // by stage
};

// [row, pixel, channel] for torch.
void spikes_as_floats(const Chunk&, size_t stage, float* out);

} // namespace ratenorm
