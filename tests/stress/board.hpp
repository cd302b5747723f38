#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

/// What threads of several processes believe that they hold, in memory that they share: the oracle
/// of the stress test of shared_mutexes and semaphores.
namespace stress {

/// Locks that are counted: two shared_mutexes and a semaphore.
inline constexpr std::size_t counted_names = 3;
inline constexpr std::array<const char*, counted_names> names_on_board{"page", "index", "limit"};
inline constexpr std::int64_t semaphore_capacity = 5;

/// Of one thread. Its process writes it; if that is killed, the belief stands until its trust
/// window would have closed.
struct belief {
    std::atomic<std::int64_t> permits{0};
    std::atomic<std::int64_t> until{0};  ///< CLOCK_BOOTTIME, in microseconds
};

struct board {
    static constexpr std::size_t threads = 4096;
    std::array<std::array<belief, threads>, counted_names> beliefs;
    std::atomic<std::int64_t> grants;
    std::atomic<std::int64_t> upgrades;
    std::atomic<std::int64_t> lost;
    std::atomic<std::int64_t> failures;
    std::atomic<std::int64_t> overlaps;
};

/// A board in a file. Opens it, and makes it if it is not there.
class mapped_board {
public:
    explicit mapped_board(const std::string& path);
    mapped_board(const mapped_board&) = delete;
    mapped_board& operator=(const mapped_board&) = delete;
    ~mapped_board();

    [[nodiscard]] board& operator*() const noexcept { return *board_; }
    [[nodiscard]] board* operator->() const noexcept { return board_; }

private:
    board* board_;
};

}  // namespace stress
