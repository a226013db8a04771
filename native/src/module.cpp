// The Python module: named tables in, arrays out. Types, shapes and contiguity are checked here, sizes in Program.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "isa.h"
#include "program.h"

namespace nb = nanobind;
using namespace ratenorm;

namespace {

template <class T> using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<nb::numpy, T, nb::ndim<3>>;

// The fields of a table by name; each is read once, and none may be left.
class Fields {
  public:
    Fields(nb::dict fields, std::string owner) : fields_(std::move(fields)), owner_(std::move(owner)) {}

    template <class T> void number(const char* name, T& to) {
        int64_t value = 0;
        if (!nb::try_cast(field(name), value, true)) wrong(name, "a whole number");
        if constexpr (sizeof(T) < sizeof value)
            if (int64_t(T(value)) != value) wrong(name, "a number that fits");
        to = T(value);
    }
    template <class T> void array(const char* name, Buffer<T>& owner, View<const T>& to) {
        In<T> value;
        if (!nb::try_cast(field(name), value, false))
            wrong(name, ("a contiguous one-dimensional array of " + type<T>()).c_str());
        owner = Buffer<T>::copy(value.data(), value.size());
        to = owner.constant();
    }
    nb::object field(const char* name) {
        if (!fields_.contains(name)) wrong(name, "given");
        ++read_;
        return nb::borrow(fields_[name]);
    }
    void end() const {
        if (read_ != fields_.size()) throw nb::type_error(("a " + owner_ + " has other fields than given").c_str());
    }

  private:
    template <class T> static std::string type() {
        const std::string bits = std::to_string(8 * sizeof(T));
        return (std::is_floating_point_v<T> ? "float" : std::is_signed_v<T> ? "int" : "uint") + bits;
    }
    [[noreturn]] void wrong(const char* name, const char* wanted) const {
        throw nb::type_error((owner_ + "." + name + " must be " + wanted).c_str());
    }

    nb::dict fields_;
    std::string owner_;
    size_t read_ = 0;
};

#define NUMBER(name) fields.number(#name, v.name)
#define ARRAY(name) fields.array(#name, table.name, v.name)

RouteTable route_of(nb::dict given) {
    Fields fields(std::move(given), "route");
    RouteTable table;
    Route& v = table.view;
    int32_t kind = 0;
    fields.number("kind", kind);
    if (kind < 0 || kind > int32_t(RouteKind::own)) throw nb::value_error("route.kind is unknown");
    v.kind = RouteKind(kind);
    NUMBER(source), NUMBER(grid), NUMBER(inputs), NUMBER(taps), NUMBER(digits), NUMBER(digit_shift), NUMBER(apart);
    NUMBER(members), NUMBER(most), NUMBER(run), NUMBER(line), NUMBER(block), NUMBER(used), NUMBER(spike_cost);
    ARRAY(windows), ARRAY(first), ARRAY(cut), ARRAY(segments), ARRAY(shares), ARRAY(factors), ARRAY(shorts);
    ARRAY(weights), ARRAY(units);
    fields.end();
    return table;
}

StageTable stage_of(nb::dict given) {
    Fields fields(std::move(given), "stage");
    StageTable table;
    Stage& v = table.view;
    int32_t kind = 0;
    fields.number("kind", kind);
    if (kind < 0 || kind > int32_t(StageKind::output)) throw nb::value_error("stage.kind is unknown");
    v.kind = StageKind(kind);
    NUMBER(pixels), NUMBER(blocks), NUMBER(width), NUMBER(channels);
    ARRAY(threshold), NUMBER(threshold_block), NUMBER(threshold_pixel), ARRAY(start);
    ARRAY(base), NUMBER(base_image), NUMBER(base_block), NUMBER(base_pixel);
    ARRAY(step_bias), NUMBER(bias_rows), NUMBER(bias_row), NUMBER(bias_block), NUMBER(bias_pixel);
    ARRAY(places), NUMBER(total), NUMBER(together), NUMBER(computed), NUMBER(skip), ARRAY(skip_scale);
    NUMBER(dense_row), NUMBER(dense_once), ARRAY(table), ARRAY(units);
    NUMBER(source), NUMBER(source_height), NUMBER(source_width), NUMBER(top), NUMBER(left), NUMBER(line);
    ARRAY(windows), NUMBER(members), NUMBER(source_pixels), ARRAY(fan_out), ARRAY(runs);
    for (nb::handle route : fields.field("routes"))
        table.routes.push_back(route_of(nb::cast<nb::dict>(route.attr("__dict__"))));
    fields.end();
    return table;
}

template <class T> Out<T> array(std::unique_ptr<T[]> data, size_t a, size_t b, size_t c) {
    T* raw = data.release();
    const nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Out<T>(raw, {a, b, c}, owner);
}

// State [image, block, pixel, lane] as [image, channel, pixel].
Out<float> channels_first(const Stage& s, const float* from, int64_t images) {
    const int64_t size = int64_t(s.channels) * s.pixels;
    auto out = std::make_unique_for_overwrite<float[]>(size_t(images * size));
    for (int64_t image = 0; image < images; ++image)
        for (int64_t c = 0; c < s.channels; ++c) {
            const float* lane = from + image * s.size() + c / s.width * s.pixels * s.width + c % s.width;
            float* to = out.get() + image * size + c * s.pixels;
            for (int64_t p = 0; p < s.pixels; ++p) to[p] = lane[p * s.width];
        }
    return array(std::move(out), size_t(images), size_t(s.channels), size_t(s.pixels));
}

size_t population(const Program& program, size_t stage) {
    if (stage >= program.size() || program[stage].kind == StageKind::output ||
        program[stage].kind == StageKind::relay)
        throw nb::index_error("there is no such population");
    return stage;
}

nb::tuple run(Chunk& chunk, State& state, const std::vector<In<float>>& bases, int64_t first_step, int64_t stage,
              std::optional<In<float>> extra, bool choose) {
    std::vector<View<const float>> views;
    for (const In<float>& base : bases) views.push_back({base.data(), base.size()});
    View<const float> computed;
    if (extra) computed = {extra->data(), extra->size()};
    Stop stop{};
    {
        const nb::gil_scoped_release released;
        stop = chunk.run(state, views, first_step, stage, computed, choose);
    }
    return nb::make_tuple(stop.stage, int(stop.why));
}

// [stage, (spikes, operations), step], all images together.
Out<int64_t> tallies(const Chunk& chunk) {
    const size_t stages = chunk.program().size(), steps = size_t(chunk.steps());
    auto sums = std::make_unique<int64_t[]>(stages * 2 * steps);
    for (size_t k = 0; k < 2 * stages; ++k)
        for (int64_t row = 0; row < chunk.rows(); ++row)
            sums[k * steps + size_t(row % chunk.steps())] += chunk.spikes(0)[int64_t(k) * chunk.rows() + row];
    return array(std::move(sums), stages, 2, steps);
}

Out<float> output(const Chunk& chunk) {
    const Stage& s = chunk.program()[chunk.program().size() - 1];
    if (s.kind != StageKind::output) throw nb::value_error("the last stage is a population, and no output");
    const size_t size = size_t(s.channels) * size_t(s.pixels);
    auto out = std::make_unique_for_overwrite<float[]>(size_t(chunk.rows()) * size);
    for (int64_t row = 0; row < chunk.rows(); ++row)
        for (int64_t c = 0; c < s.channels; ++c)
            for (int64_t p = 0; p < s.pixels; ++p)
                out[size_t(row) * size + size_t(c * s.pixels + p)] = chunk.output()[(row * s.pixels + p) * s.lanes() + c];
    return array(std::move(out), size_t(chunk.rows()), size_t(s.channels), size_t(s.pixels));
}

} // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false); // programs are kept for the life of their network, which may be a global
    m.attr("MOST_STEPS") = Chunk::MOST_STEPS;
    m.attr("NOWHERE") = NOWHERE;
    m.attr("RUN") = RUN;
    m.def("instruction_sets", &instruction_sets);

    nb::class_<Program>(m, "Program")
        .def("__init__",
             [](Program* self, nb::list tables, const std::string& instruction_set) {
                 std::vector<StageTable> stages;
                 for (nb::handle table : tables)
                     stages.push_back(stage_of(nb::cast<nb::dict>(table.attr("__dict__"))));
                 new (self) Program(std::move(stages), instruction_set);
             }, nb::arg("stages"), nb::arg("instruction_set") = "")
        .def_prop_ro("instruction_set", [](const Program& p) { return p.kernels().name; });

    nb::class_<State>(m, "State")
        .def("__init__", [](State* self, std::shared_ptr<Program> program, int64_t images) {
            if (images < 1) throw nb::value_error("a state has at least one image");
            new (self) State(std::move(program), images);
        }, nb::arg("program"), nb::arg("images"))
        .def_prop_ro("images", &State::images)
        .def("snapshot", &State::snapshot)
        .def("kept", &State::kept, nb::arg("images"))
        .def("potential", [](State& s, size_t k) {
            s.begin();
            return channels_first(s.program()[population(s.program(), k)], s.potential(k).data, s.images());
        }, nb::arg("stage"))
        .def("counts", [](State& s, size_t k) {
            s.begin();
            return channels_first(s.program()[population(s.program(), k)], s.counts(k).data, s.images());
        }, nb::arg("stage"));

    nb::class_<Chunk>(m, "Chunk")
        .def("__init__", [](Chunk* self, std::shared_ptr<Program> program, int64_t images, int64_t steps, int threads) {
            new (self) Chunk(std::move(program), images, steps, threads);
        }, nb::arg("program"), nb::arg("images"), nb::arg("steps"), nb::arg("threads"))
        .def("run", &run, nb::arg("state"), nb::arg("bases"), nb::arg("first_step"), nb::arg("stage") = 0,
             nb::arg("extra").none() = nb::none(), nb::arg("choose") = false)
        .def("choice", [](const Chunk& chunk, size_t k) { // (events, steps together, shared windows) of the last run
            if (k >= chunk.program().size()) throw nb::index_error("there is no such stage");
            const Chunk::Choice& choice = chunk.choice(k);
            return nb::make_tuple(choice.events, choice.together, choice.slides);
        }, nb::arg("stage"))
        .def("tallies", &tallies)
        .def("output", &output)
        .def("spikes", [](const Chunk& chunk, size_t k) {
            if (k >= chunk.program().size() || chunk.program()[k].kind == StageKind::output)
                throw nb::index_error("there is no such population");
            const Stage& s = chunk.program()[k];
            const size_t rows = size_t(chunk.rows()), pixels = size_t(s.pixels), channels = size_t(s.channels);
            auto out = std::make_unique_for_overwrite<float[]>(rows * pixels * channels);
            spikes_as_floats(chunk, k, out.get());
            return array(std::move(out), rows, pixels, channels);
        }, nb::arg("stage"));
}
