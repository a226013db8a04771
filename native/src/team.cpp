#include "team.h"

#include <map>
#include <memory>
#include <system_error>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace ratenorm {

namespace {

constexpr int PATIENCE = 1 << 14; // looks at the ticket before a helper sleeps, or before the leader gives way

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

constexpr uint64_t TURN = uint64_t(1) << 32, PART = uint64_t(1) << 16;

int part_of(uint64_t ticket) { return static_cast<int>(ticket >> 16 & 0xFFFF); }
int parts_of(uint64_t ticket) { return static_cast<int>(ticket & 0xFFFF); }

} // namespace

Team::Team(int helpers) {
    try {
        for (int member = 1; member <= helpers; ++member) threads_.emplace_back([this, member] { help(member); });
    } catch (const std::system_error&) { // no more threads to be had: fewer do the same work
    }
}

Team::~Team() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Team::wake() {
    if (threads_.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        resting_ = false;
    }
    changed_.notify_all();
}

void Team::rest() { resting_ = true; }

bool Team::claim(uint64_t& ticket, int& part) {
    while (part_of(ticket) < parts_of(ticket)) {
        part = part_of(ticket);
        if (ticket_.compare_exchange_weak(ticket, ticket + PART)) return true;
    }
    return false;
}

void Team::share(int parts, Call call, const void* job) {
    call_ = call, job_ = job, done_ = 0;
    uint64_t ticket = (ticket_ & ~(TURN - 1)) + TURN + static_cast<uint64_t>(parts);
    ticket_ = ticket;
    if (asleep_ > 0) {
        const std::lock_guard lock(mutex_); // whoever is about to sleep looks at the ticket first
        changed_.notify_all();
    }
    for (int part = 0; claim(ticket, part); ++done_) call_(job_, part, 0);
    for (int tries = 0; done_ != parts; ++tries) tries < PATIENCE ? pause() : std::this_thread::yield();
}

void Team::help(int member) {
    uint64_t ticket = 0;
    int part = 0;
    while (!over_) {
        int tries = 0;
        ticket = ticket_;
        while (part_of(ticket) >= parts_of(ticket)) {
            if (resting_ || ++tries > PATIENCE) {
                std::unique_lock lock(mutex_);
                ++asleep_;
                changed_.wait(lock, [&] {
                    ticket = ticket_;
                    return over_ || part_of(ticket) < parts_of(ticket) || (!resting_ && tries <= PATIENCE);
                });
                --asleep_;
                if (over_) return;
                tries = 0;
            }
            pause();
            ticket = ticket_;
        }
        for (; claim(ticket, part); ++done_) call_(job_, part, member);
    }
}

namespace {

struct Resting {
    std::mutex mutex;
    std::multimap<int, std::unique_ptr<Team>> teams; // by the number of helpers
};

// Never destroyed: its threads may outlive the objects of a process that ends.
Resting*& resting() {
    static Resting* teams = [] {
#if defined(__unix__) || defined(__APPLE__)
        pthread_atfork(nullptr, nullptr, [] { resting() = new Resting; }); // the threads stay with the parent
#endif
        return new Resting;
    }();
    return teams;
}

} // namespace

Lease::Lease(int helpers) {
    Resting& idle = *resting();
    std::unique_ptr<Team> found;
    {
        const std::lock_guard lock(idle.mutex);
        if (const auto place = idle.teams.find(helpers); place != idle.teams.end()) {
            found = std::move(place->second);
            idle.teams.erase(place);
        }
    }
    team_ = found ? found.release() : new Team(helpers);
    team_->wake();
}

Lease::~Lease() {
    team_->rest();
    Resting& idle = *resting();
    const std::lock_guard lock(idle.mutex);
    idle.teams.emplace(team_->size() - 1, std::unique_ptr<Team>(team_));
}

} // namespace ratenorm
