// Memory that begins on a cache line, with room for one vector after its end.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "tables.h"

namespace ratenorm {

template <class T> class Buffer {
  public:
    Buffer() = default;
    // Not set to anything.
    explicit Buffer(size_t size) : size_(size), data_(allocated(size)) {}

    static Buffer zeros(size_t size) {
        Buffer made(size);
        std::memset(made.data(), 0, size * sizeof(T) + LINE);
        return made;
    }
    static Buffer copy(const T* from, size_t size) {
        Buffer made(size);
        if (size != 0) std::memcpy(made.data(), from, size * sizeof(T));
        return made;
    }

    T* data() const { return data_.get(); }
    size_t size() const { return size_; }
    View<T> view() const { return {data_.get(), size_}; }
    View<const T> constant() const { return {data_.get(), size_}; }

  private:
    static constexpr size_t LINE = 64;
    struct Free {
        void operator()(T* data) const { ::operator delete(data, std::align_val_t{LINE}); }
    };
    static T* allocated(size_t size) {
        return static_cast<T*>(::operator new(size * sizeof(T) + LINE, std::align_val_t{LINE}));
    }

    size_t size_ = 0;
    std::unique_ptr<T, Free> data_;
};

} // namespace ratenorm
