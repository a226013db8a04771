// Threads that share the parts of a job.
//
// Helpers wait awake while a chunk runs: to wake one takes as long as a small layer. Parts are claimed one by one, so a
// helper that comes late costs nothing: the others have done its parts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ratenorm {

class Team {
  public:
    explicit Team(int helpers);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return 1 + static_cast<int>(threads_.size()); }

    // Calls job(part, member) for every part below `parts`, 65,535 at most; `member` is below size() and differs between
    // threads. The job must not throw.
    template <class Job> void run(int parts, const Job& job) {
        if (parts <= 1 || threads_.empty()) {
            for (int part = 0; part < parts; ++part) job(part, 0);
            return;
        }
        share(parts, [](const void* self, int part, int member) { (*static_cast<const Job*>(self))(part, member); },
              &job);
    }

    void wake(); // before a chunk: helpers wait awake from now on
    void rest(); // after it: they sleep

  private:
    using Call = void (*)(const void*, int, int);

    void share(int parts, Call call, const void* job);
    bool claim(uint64_t& ticket, int& part);
    void help(int member);

    // Turn in the upper 32 bits, then the next part, then the number of parts.
    std::atomic<uint64_t> ticket_{0};
    std::atomic<int> done_{0};
    std::atomic<bool> resting_{true}, over_{false};
    std::atomic<int> asleep_{0};
    Call call_ = nullptr;
    const void* job_ = nullptr;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::thread> threads_;
};

// A team for a while. Teams are kept for the next chunk; a forked child has none of its parent's and starts its own.
class Lease {
  public:
    explicit Lease(int helpers);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Team& operator*() const { return *team_; }

  private:
    Team* team_;
};

} // namespace ratenorm
