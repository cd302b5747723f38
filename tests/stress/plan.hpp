#pragma once

#include "stress/history.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

/// What a soak does, all of it from one seed: each step is a function of the seed and of where it
/// stands, and of nothing that happened before. So a process that replaces a killed one goes on
/// where that was, a run with fewer operations is the beginning of a longer one, and leaving kinds
/// of steps out leaves the others as they were.
namespace stress {

/// What a thread may do. Each is one way to ask for a lease; what was got is released.
enum class deed : unsigned char {
    acquire,    ///< waits until it is granted
    try_once,   ///< takes it if it is free
    timed,      ///< waits for some milliseconds
    cancelled,  ///< waits until another thread requests a stop
    barging,    ///< timed, and takes no place in the queue
    deadline,   ///< a lease that ends by itself, perhaps before it is released
    guarded,    ///< a counter is written in a fenced transaction
    look,       ///< inspects, lists the queue
};
constexpr int deeds = 8;
[[nodiscard]] const char* to_string(deed what) noexcept;

struct step {
    deed what = deed::acquire;
    int name = 0;
    std::chrono::microseconds hold{0};
    std::chrono::microseconds patience{0};
};

/// What is done to the processes and the database.
enum class trouble : unsigned char { kill, pause, cut, force, reap, restart, crash };
constexpr int troubles = 7;
[[nodiscard]] const char* to_string(trouble what) noexcept;

struct disturbance {
    trouble what = trouble::kill;
    std::uint64_t choice = 0;  ///< which process, name, connection
    double share = 0;          ///< of the longest pause
    std::int64_t calls = 0;    ///< how many calls after the one before
};

/// The seed and what is left out.
class plan {
public:
    /// @param only kinds to use, as to_string() has them; empty: all
    plan(std::uint64_t seed, int names, const std::string& only);

    [[nodiscard]] step at(std::uint64_t slot, std::uint64_t thread, std::uint64_t number) const;
    [[nodiscard]] bool has(deed what) const { return wanted(to_string(what)); }
    [[nodiscard]] disturbance at(std::uint64_t number, std::int64_t calls_between) const;
    [[nodiscard]] bool has(trouble what) const { return wanted(to_string(what)); }

private:
    [[nodiscard]] bool wanted(const std::string& kind) const {
        return only_.empty() || only_.contains(kind);
    }

    std::uint64_t seed_;
    int names_;
    std::set<std::string> only_;
};

/// How far everybody is, in memory that the processes of a soak share, as a file.
class progress {
public:
    static constexpr std::size_t most_threads = 256;

    /// Made anew, or as somebody else has made it.
    explicit progress(const std::string& path);
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    ~progress();

    /// The next step of a thread of a slot.
    [[nodiscard]] std::atomic<std::uint64_t>& step_of(std::size_t slot, std::size_t thread) {
        return memory_->steps[(slot * 16 + thread) % most_threads];
    }
    /// Calls of the library so far, by all.
    [[nodiscard]] std::atomic<std::int64_t>& calls() { return memory_->calls; }

private:
    struct shared {
        std::atomic<std::int64_t> calls;
        std::atomic<std::uint64_t> steps[most_threads];
    };
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

    shared* memory_;
};

}  // namespace stress
