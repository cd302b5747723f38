#pragma once

#include "stress/history.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

/// The steps of a soak, all from one seed: each step is a function of the seed and its position,
/// and of nothing that happened before. So a process that replaces a killed one continues its
/// steps, a run with fewer operations is the start of a longer one, and leaving kinds of steps out
/// does not change the others.
namespace stress {

/// The steps of a thread. Each is one way to request a lease, which is then released.
enum class deed : unsigned char {
    acquire,    ///< waits until it is granted
    try_once,   ///< acquires it if it is free
    timed,      ///< waits for some milliseconds
    cancelled,  ///< waits until another thread requests a stop
    barging,    ///< timed, without a queue entry
    deadline,   ///< a lease with its own deadline, perhaps before its release
    guarded,    ///< a counter is written in a fenced transaction
    look,       ///< inspects and lists the queue
};
constexpr int deeds = 8;
[[nodiscard]] const char* to_string(deed what) noexcept;

struct step {
    deed what = deed::acquire;
    int name = 0;
    std::chrono::microseconds hold{0};
    std::chrono::microseconds patience{0};
};

/// The disturbances of the processes and the database.
enum class trouble : unsigned char { kill, pause, cut, force, reap, restart, crash };
constexpr int troubles = 7;
[[nodiscard]] const char* to_string(trouble what) noexcept;

struct disturbance {
    trouble what = trouble::kill;
    std::uint64_t choice = 0;  ///< selects a process, name or connection
    double share = 0;          ///< the share of the longest pause
    std::int64_t calls = 0;    ///< the calls since the disturbance before
};

/// The seed and the kinds that are left out.
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

/// The progress of all threads, in memory that the processes of a soak share, as a file.
class progress {
public:
    static constexpr std::size_t most_threads = 256;

    /// Creates the file, or opens the existing one.
    explicit progress(const std::string& path);
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    ~progress();

    /// The next step of a thread of a slot.
    [[nodiscard]] std::atomic<std::uint64_t>& step_of(std::size_t slot, std::size_t thread) {
        return memory_->steps[(slot * 16 + thread) % most_threads];
    }
    /// The number of calls of the library so far, by all.
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
