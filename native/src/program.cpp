#include "program.h"

#include <algorithm>
#include <stdexcept>

#include "isa.h"
#include "team.h"

namespace ratenorm {

namespace {

// Checks of one stage of a program.
struct Checked {
    size_t stage;
    const std::vector<StageTable>& stages;

    void require(bool holds, const char* what) const {
        if (!holds) throw std::invalid_argument("stage " + std::to_string(stage) + " of the program: " + what);
    }
    void source(int64_t number) const {
        require(number >= 0 && number < int64_t(stage), "a source must be an earlier stage");
        require(stages[size_t(number)].view.kind != StageKind::output, "an output does not spike");
    }
    void population() const;
    void relay() const;
    void looked_up() const;
    void route(const Route& r) const;
};

// The last index that distances reach from 0.
bool fits(size_t size, int64_t reached) { return reached >= 0 && size_t(reached) <= size; }

void Checked::population() const {
    const Stage& s = stages[stage].view;
    require(s.pixels > 0 && s.blocks > 0 && s.width > 0 && s.width % 16 == 0, "its layout has an empty side");
    require(s.channels > 0 && s.channels <= s.lanes() && s.lanes() <= 0x10000, "its channels do not fit its blocks");
    const int64_t block = s.blocks - 1, pixel = s.pixels - 1;
    if (!s.base.empty())
        require(fits(s.base.size, block * s.base_block + pixel * s.base_pixel + s.width), "base is too short");
    if (s.kind == StageKind::output) return;
    int64_t covered = 0;
    for (size_t r = 0; r < s.runs.size; ++r) {
        require(s.runs[r] > 0, "a run has no words");
        covered += s.runs[r];
    }
    require(s.runs.empty() ? s.fan_out.size == size_t(s.size()) : covered == s.row() && s.fan_out.size == s.runs.size,
            "fan_out needs an entry for each run of words, or for each neuron");
    if (s.kind == StageKind::relay) return;
    require(fits(s.threshold.size, block * s.threshold_block + pixel * s.threshold_pixel + s.width),
            "threshold is too short");
    require(s.start.empty() || s.start.size == size_t(s.size()), "start needs a number a neuron");
    if (!s.step_bias.empty())
        require(fits(s.step_bias.size, (s.bias_rows - 1) * s.bias_row + block * s.bias_block + pixel * s.bias_pixel +
                                           s.width) && s.bias_rows > 0, "step_bias is too short");
}

void Checked::relay() const {
    const Stage& s = stages[stage].view;
    source(s.source);
    const Stage& before = stages[size_t(s.source)].view;
    require(before.lanes() == s.lanes(), "a relay has the channels of its source");
    require(s.members > 0 && s.windows.size == size_t(s.pixels) * size_t(s.members), "windows need members");
    for (size_t i = 0; i < s.windows.size; ++i)
        require(s.windows[i] == NOWHERE || s.windows[i] < uint32_t(before.pixels), "a window leaves its source");
}

void Checked::looked_up() const {
    const Stage& s = stages[stage].view;
    source(s.source);
    const Stage& before = stages[size_t(s.source)].view;
    require(s.lanes() == 16 && before.lanes() == 16, "looked up stages have at most 16 channels");
    require(s.table.size == 9 * 2 * 256 * 16 && s.units.size == 16, "table and units have one size");
    require(s.line > 0 && s.pixels % s.line == 0 && s.source_width > 0 &&
                int64_t(s.source_height) * s.source_width == before.pixels, "pictures and pixels differ");
    require(s.top >= 0 && s.left >= 0 && s.top + s.source_height <= s.pixels / s.line + 2 &&
                s.left + s.source_width <= s.line + 2, "the source's picture leaves the padded one");
}

void Checked::route(const Route& r) const {
    const Stage& s = stages[stage].view;
    source(r.source);
    const Stage& before = stages[size_t(r.source)].view;
    const bool shorts = r.kind == RouteKind::window || r.kind == RouteKind::points;
    require(r.grid > 0 && r.inputs > 0 && r.taps > 0 && r.digits > 0 && r.digits <= 16, "a route has an empty side");
    require(r.members >= 0 && r.digit_shift > 0 && r.digit_shift <= 16, "a route's digits do not fit its entries");
    if (r.members > 0) {
        require(r.windows.size == size_t(r.grid) * size_t(r.members) && r.members < 1 << r.digits, "windows are wrong");
        for (size_t i = 0; i < r.windows.size; ++i) require(r.windows[i] < uint32_t(before.pixels), "a window leaves");
    } else {
        require(r.grid == before.pixels && r.digits == 1, "a route starts from the pixels of its source");
    }
    const int64_t last = int64_t(r.digits - 1) * r.apart + before.channels;
    require(before.channels <= r.inputs && last <= 0x10000 && r.apart >= (r.digits > 1 ? r.inputs : 0),
            "a route has fewer inputs than its source channels");
    const int64_t row = int64_t(r.taps) * s.width;
    if (shorts) {
        require(s.width == 32 && r.most > 0 && r.units.size == size_t(s.lanes()), "16-bit weights need blocks of 32");
        require(r.block >= int64_t(r.digits) * r.inputs * row && r.shorts.size == size_t(r.block * s.blocks) &&
                    (r.digits == 1 || r.apart == r.inputs), "16-bit weights are too few");
    } else {
        require(r.factors.size == size_t(r.digits), "factors need one a digit");
        require(r.digits == 1 || r.apart == 1 << r.digit_shift, "digits lie above the channels");
        if (r.kind == RouteKind::own)
            require(r.weights.size == size_t(r.inputs) * size_t(r.taps), "weights need one a channel and tap");
        else
            require(r.block >= r.inputs * row && r.weights.size == size_t(r.block * s.blocks), "weights are too few");
    }
    require(r.used <= r.block || r.kind == RouteKind::own, "more weights are used than there are");
    if (r.kind == RouteKind::window) {
        require(r.taps == 9 && r.first.size >= size_t(r.grid) && r.cut.size >= size_t(r.grid), "windows need pixels");
        const int64_t reach = 2 * r.line + 3 * 32;
        for (int32_t p = 0; p < r.grid; ++p) {
            require(int64_t(r.first[size_t(p)]) + reach <= s.total, "a window leaves the scratch");
            if (r.cut[size_t(p)] & RUN)
                require(r.run > 0 && p + r.run <= r.grid && r.first[size_t(p)] + reach + int64_t(r.run) * 32 <= s.total,
                        "a run leaves the scratch");
        }
        return;
    }
    require(r.first.size >= size_t(r.grid) + 1 && r.segments.size % 3 == 0, "segments need a first one a pixel");
    require(shorts || r.shares.size == r.segments.size / 3, "shares need one a segment");
    for (int32_t p = 0; p < r.grid; ++p)
        require(r.first[size_t(p)] <= r.first[size_t(p) + 1] && r.first[size_t(p) + 1] <= r.segments.size / 3,
                "segments of a pixel are out of order");
    for (size_t g = 0; g + 2 < r.segments.size; g += 3) {
        const int64_t target = r.segments[g], tap = r.segments[g + 1], length = r.segments[g + 2];
        require(target + length <= s.total && tap + length <= row && length % s.width == 0 && length > 0,
                "a segment leaves the scratch or the weights");
        require(r.kind != RouteKind::points || length == 32, "points are single pixels");
    }
}

} // namespace

Program::Program(std::vector<StageTable> stages, const std::string& instruction_set)
    : stages_(std::move(stages)), kernels_(&kernels_of(instruction_set)) {
    for (size_t k = 0; k < stages_.size(); ++k) {
        StageTable& table = stages_[k];
        table.route_views.clear();
        for (const RouteTable& route : table.routes) table.route_views.push_back(route.view);
        table.view.routes = {table.route_views.data(), table.route_views.size()};
        const Stage& s = table.view;
        const Checked checked{k, stages_};
        checked.population();
        if (s.kind == StageKind::relay) checked.relay();
        if (s.kind == StageKind::looked_up) checked.looked_up();
        if (s.skip >= 0) {
            checked.source(s.skip);
            checked.require(stages_[size_t(s.skip)].view.row() == s.row() && s.skip_scale.size == size_t(s.lanes()),
                            "a skip connection ends where it starts");
        }
        for (const Route& route : table.route_views) checked.route(route);
        checked.require(s.places.size == size_t(s.pixels) || s.kind == StageKind::still ||
                            s.kind == StageKind::looked_up || s.kind == StageKind::relay, "places need one a pixel");
        for (size_t p = 0; p < s.places.size; ++p)
            checked.require(int64_t(s.places[p]) + s.width <= s.total, "a place leaves the scratch");
        const bool single = s.routes.size == 1 && s.routes[0].kind == RouteKind::window && s.skip < 0;
        checked.require(s.together == 1 || (s.together > 1 && single), "steps go together for one window only");
    }
}

State::State(std::shared_ptr<const Program> program, int64_t images) : program_(std::move(program)), images_(images) {
    for (size_t k = 0; k < program_->size(); ++k) {
        const Stage& s = (*program_)[k];
        Places own{size_, 0, 0, 0};
        if (s.kind != StageKind::output) {
            own.potentials = s.kind == StageKind::relay ? s.source_pixels * s.lanes() : s.size();
            own.counts = own.potential + images * own.potentials;
            own.count = s.size();
            size_ = own.counts + images * own.count;
        }
        places_.push_back(own);
    }
    memory_ = std::make_shared<Buffer<float>>(size_t(size_));
}

View<float> State::potential(size_t stage) const {
    return {memory_->data() + places_[stage].potential, size_t(images_ * places_[stage].potentials)};
}

View<float> State::counts(size_t stage) const {
    return {memory_->data() + places_[stage].counts, size_t(images_ * places_[stage].count)};
}

void State::detach() {
    if (memory_.use_count() == 1) return;
    memory_ = fresh ? std::make_shared<Buffer<float>>(size_t(size_))
                    : std::make_shared<Buffer<float>>(Buffer<float>::copy(memory_->data(), size_t(size_)));
}

void State::begin() {
    if (!fresh) return;
    detach();
    std::fill_n(memory_->data(), size_, 0.0f);
    for (size_t k = 0; k < places_.size(); ++k) {
        const Stage& s = (*program_)[k];
        for (int64_t image = 0; image < images_ && s.kind != StageKind::relay && !s.start.empty(); ++image)
            std::copy_n(s.start.data, s.start.size, potential(k).data + image * s.size());
    }
    fresh = false;
}

State State::kept(const std::vector<int64_t>& chosen) const {
    State made(program_, int64_t(chosen.size()));
    made.fresh = fresh;
    for (size_t k = 0; k < places_.size() && !fresh; ++k)
        for (size_t i = 0; i < chosen.size(); ++i) {
            if (chosen[i] < 0 || chosen[i] >= images_) throw std::invalid_argument("keeping images: no such image");
            const Places& p = places_[k];
            std::copy_n(potential(k).data + chosen[i] * p.potentials, p.potentials,
                        made.potential(k).data + int64_t(i) * p.potentials);
            std::copy_n(counts(k).data + chosen[i] * p.count, p.count, made.counts(k).data + int64_t(i) * p.count);
        }
    return made;
}

Chunk::Chunk(std::shared_ptr<const Program> program, int64_t images, int64_t steps, int threads)
    : program_(std::move(program)), images_(images), steps_(steps), threads_(threads) {
    if (images < 1 || steps < 1 || steps > MOST_STEPS || threads < 1)
        throw std::invalid_argument("a chunk has at least one image and thread, and 1 to 63 steps");
    size_t routes = 0;
    int64_t total = 0, whole = 0, planes = 0, output = 0;
    for (size_t k = 0; k < program_->size(); ++k) {
        const Stage& s = (*program_)[k];
        const bool spikes = s.kind != StageKind::output;
        words_.push_back(spikes ? Buffer<uint16_t>::zeros(size_t(rows() * s.row())) : Buffer<uint16_t>());
        if (!spikes) output = rows() * s.size();
        routes = std::max(routes, s.routes.size);
        total = std::max(total, s.total);
        whole = std::max(whole, s.total * std::min<int64_t>(s.together, steps));
        if (s.kind == StageKind::looked_up) planes = std::max(planes, (s.pixels / s.line + 2) * (s.line + int64_t(2)));
    }
    choices_.resize(program_->size());
    tallies_ = Buffer<int64_t>::zeros(size_t(2 * rows()) * program_->size());
    output_ = Buffer<float>(size_t(output));
    entries_.resize(routes), marks_.resize(routes), active_.resize(routes), begins_.resize(routes);
    for (size_t k = 0; k < routes; ++k) begins_[k] = Buffer<int64_t>(size_t(rows()));
    for (int t = 0; t < threads; ++t) {
        total_.emplace_back(size_t(total));
        whole_.emplace_back(size_t(whole));
        planes_.emplace_back(size_t(2 * planes * steps));
    }
}

// One run of a chunk.
class Chunk::Runner {
  public:
    Runner(Chunk& chunk, State& state, const std::vector<View<const float>>& bases, int64_t first_step, Team& team)
        : c_(chunk), program_(*chunk.program_), state_(state), bases_(bases), first_step_(first_step), team_(team) {}

    Stop run(int64_t stage, View<const float> extra, bool choose);

  private:
    Work work(size_t stage, View<const float> extra) const;
    View<const float> base(size_t stage) const;
    void list(const Stage& s);
    Why choose(const Stage& s, Choice& choice, bool free);
    void fire(const Work& work);
    void count(const Work& work, size_t stage);

    Chunk& c_;
    const Program& program_;
    State& state_;
    const std::vector<View<const float>>& bases_;
    int64_t first_step_;
    Team& team_;
    std::vector<List> lists_;
};

View<const float> Chunk::Runner::base(size_t stage) const {
    size_t number = 0;
    for (size_t k = 0; k < stage; ++k)
        number += program_[k].kind != StageKind::relay && program_[k].base.empty();
    if (number >= bases_.size()) throw std::invalid_argument("a stage has no constant current");
    return bases_[number];
}

Work Chunk::Runner::work(size_t stage, View<const float> extra) const {
    const Stage& s = program_[stage];
    Work w{};
    w.stage = &s, w.images = int32_t(c_.images_), w.steps = int32_t(c_.steps_), w.first_step = first_step_;
    w.fresh = state_.fresh;
    w.words = c_.words_[stage].data();
    w.potential = state_.potential(stage), w.counts = state_.counts(stage);
    w.base = s.base, w.base_image = s.base_image, w.base_block = s.base_block, w.base_pixel = s.base_pixel;
    if (s.kind != StageKind::relay && s.base.empty()) {
        w.base = base(stage);
        w.base_image = s.size(), w.base_block = s.width, w.base_pixel = s.lanes();
        if (w.base.size != size_t(c_.images_ * s.size())) throw std::invalid_argument("a constant current has another size");
    }
    if (!extra.empty() && extra.size != size_t(c_.rows() * s.size()))
        throw std::invalid_argument("a computed current has another size");
    w.extra = extra;
    if (s.kind == StageKind::relay || s.kind == StageKind::looked_up) w.source_words = c_.words_[size_t(s.source)].data();
    if (s.skip >= 0) w.skip_words = c_.words_[size_t(s.skip)].data();
    const Choice& choice = c_.choices_[stage];
    w.lists = lists_.data(), w.slides = choice.slides.data();
    w.events = choice.events, w.fetch = choice.fetch, w.together = choice.together;
    w.output = c_.output_.data();
    return w;
}

// Lists the spikes of all routes. A list has no more entries than its row has spikes, and some are written too many.
void Chunk::Runner::list(const Stage& s) {
    const int64_t rows = c_.rows();
    for (size_t k = 0; k < s.routes.size; ++k) {
        const Route& route = s.routes[k];
        const int64_t* spikes = c_.spikes(size_t(route.source));
        int64_t used = 0;
        for (int64_t row = 0; row < rows; ++row) {
            c_.begins_[k].data()[row] = used;
            used += spikes[row] + 16;
        }
        if (used > 0xFFFFFFFF) throw std::invalid_argument("a chunk has more spikes than its lists can number");
        if (c_.entries_[k].size() < size_t(used) + 64) c_.entries_[k] = Buffer<uint16_t>(size_t(used) * 5 / 4 + 64);
        const size_t marks = size_t(rows) * size_t(route.grid + 1);
        if (c_.marks_[k].size() < marks) c_.marks_[k] = Buffer<uint32_t>(marks), c_.active_[k] = Buffer<uint32_t>(marks);
        const List list = c_.list_of(k);
        const int parts = int(std::min<int64_t>(rows, team_.size()));
        team_.run(parts, [&](int part, int) {
            program_.kernels().list(program_[size_t(route.source)], route, c_.words(size_t(route.source)), list,
                                    rows * part / parts, rows * (part + 1) / parts);
        });
    }
}

// How the listed spikes are added, or that torch is to compute. `free`: it may be asked to compute all.
Why Chunk::Runner::choose(const Stage& s, Choice& choice, bool free) {
    constexpr int64_t WEIGHTS_A_SPIKE = 1024;      // of a block: where there are fewer, most are needed
    constexpr double MANY = 1.2, VERY_MANY = 3.0;  // spikes a pixel and step from which steps, or windows, go together
    const int64_t rows = c_.rows();
    choice = {true, false, 1, std::vector<int32_t>(s.routes.size, 0)};
    int64_t all = 0, cost = 0, weights = 0;
    for (size_t k = 0; k < s.routes.size; ++k) {
        const Route& route = s.routes[k];
        int64_t found = 0;
        for (int64_t row = 0; row < rows; ++row) {
            const uint32_t* mark = c_.marks_[k].data() + row * (route.grid + 1);
            found += mark[route.grid] - mark[0];
        }
        const double pixels = double(rows) * route.grid;
        choice.slides[k] = double(found) > VERY_MANY * pixels;
        if (double(found) > MANY * pixels) choice.together = int(std::min<int64_t>(s.together, c_.steps_));
        all += found, cost += found * route.spike_cost, weights += route.used;
    }
    choice.fetch = all * WEIGHTS_A_SPIKE > weights;
    if (free && s.routes.size > 0 && cost > rows * s.dense_row + s.dense_once) {
        choice.events = false, choice.together = 1;
        return Why::dense;
    }
    if (s.computed != 0) choice.together = 1;
    return s.computed != 0 ? Why::compute : Why::done;
}

void Chunk::Runner::fire(const Work& work) {
    const Stage& s = *work.stage;
    const bool looks_up = s.kind == StageKind::looked_up;
    const int64_t pieces = looks_up ? s.pixels / s.line : s.blocks, each = looks_up ? s.line : 1;
    const int parts = int(looks_up ? std::min<int64_t>(pieces, team_.size()) : pieces);
    const auto job = [&](int part, int member) {
        const size_t m = size_t(member);
        const Scratch scratch{c_.total_[m].data(), c_.whole_[m].data(), c_.planes_[m].data()};
        program_.kernels().run(work, scratch, pieces * part / parts * each, pieces * (part + 1) / parts * each);
    };
    if (team_.size() > 1)
        team_.run(parts, job);
    else
        program_.kernels().run(work, {c_.total_[0].data(), c_.whole_[0].data(), c_.planes_[0].data()}, 0, pieces * each);
}

void Chunk::Runner::count(const Work& work, size_t stage) {
    const int64_t rows = c_.rows(), words = work.stage->row();
    int64_t* tallies = c_.tallies_.data() + 2 * int64_t(stage) * rows;
    const int parts = words * rows < 4096 ? 1 : team_.size();
    team_.run(parts, [&](int part, int) {
        if (work.stage->kind != StageKind::relay)
            program_.kernels().count(work, words * part / parts, words * (part + 1) / parts);
        program_.kernels().tally(work, rows * part / parts, rows * (part + 1) / parts, tallies, tallies + rows);
    });
}

Stop Chunk::Runner::run(int64_t first, View<const float> extra, bool free) {
    const int64_t count = int64_t(program_.size());
    for (int64_t k = first; k < count; ++k) {
        const size_t stage = size_t(k);
        const Stage& s = program_[stage];
        const bool again = k == first && !extra.empty();
        if (again) {
            lists_.clear();
            for (size_t r = 0; r < s.routes.size; ++r)
                lists_.push_back(c_.list_of(r));
        } else {
            c_.choices_[stage] = {};
            if (s.kind == StageKind::driven || s.kind == StageKind::output) {
                list(s);
                lists_.clear();
                for (size_t r = 0; r < s.routes.size; ++r)
                    lists_.push_back(c_.list_of(r));
                if (const Why why = choose(s, c_.choices_[stage], free); why != Why::done) return {k, why};
            }
        }
        const Work w = work(stage, again ? extra : View<const float>{});
        if (s.kind == StageKind::relay) {
            const int parts = int(std::min<int64_t>(c_.images_, team_.size()));
            team_.run(parts, [&](int part, int) {
                program_.kernels().relay(w, program_[size_t(s.source)], c_.images_ * part / parts,
                                         c_.images_ * (part + 1) / parts);
            });
        } else {
            fire(w);
        }
        if (s.kind != StageKind::output) this->count(w, stage);
    }
    state_.fresh = false;
    return {count, Why::done};
}

Stop Chunk::run(State& state, const std::vector<View<const float>>& bases, int64_t first_step, int64_t stage,
                View<const float> extra, bool choose) {
    if (&state.program() != program_.get() || state.images() != images_)
        throw std::invalid_argument("the state belongs to other images or another program");
    if (stage < 0 || stage > int64_t(program_->size())) throw std::invalid_argument("there is no such stage");
    state.detach();
    const Lease lease(threads_ - 1);
    return Runner(*this, state, bases, first_step, *lease).run(stage, extra, choose);
}

void spikes_as_floats(const Chunk& chunk, size_t stage, float* out) {
    const Stage& s = chunk.program()[stage];
    const uint16_t* word = chunk.words(stage);
    for (int64_t place = 0; place < chunk.rows() * s.pixels; ++place, word += s.words())
        for (int32_t c = 0; c < s.channels; ++c) *out++ = float(word[c / 16] >> c % 16 & 1);
}

} // namespace ratenorm
