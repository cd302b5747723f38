#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

/// What threads of several processes believe that they hold, in memory that they share: the oracle
/// of the stress tests of shared_mutexes and semaphores, of several leases at once, of elections,
/// and of latches and double barriers.
namespace stress {

/// Locks that are counted: two shared_mutexes and a semaphore.
inline constexpr std::size_t counted_names = 3;
inline constexpr std::array<const char*, counted_names> names_on_board{"page", "index", "limit"};
inline constexpr std::int64_t semaphore_capacity = 5;

/// Leases, or further shared_mutexes, come behind them on the board: a lease is exclusive.
inline constexpr std::size_t leases_on_board = 12;
inline constexpr std::size_t all_names = counted_names + leases_on_board;

/// Of one thread. Its process writes it; if that is killed, the belief stands until its trust
/// window would have closed.
struct belief {
    std::atomic<std::int64_t> permits{0};
    std::atomic<std::int64_t> begun{0};   ///< how many beliefs there were
    std::atomic<std::int64_t> until{0};   ///< CLOCK_BOOTTIME, in microseconds
    std::atomic<std::int64_t> looked{0};  ///< when it last looked at its lock; of a quorum's
    std::atomic<std::int64_t> ran{0};     ///< when its process last ran; of a quorum's
};

/// What threads know of one generation of a latch or a double barrier.
struct meeting {
    std::atomic<std::int64_t> coming{0};  ///< to arrive, or to depart: counted before the call
    std::atomic<std::int64_t> inside{0};  ///< of a double barrier: as whom it opened
    std::atomic<std::int64_t> answer{0};  ///< 1 open, or empty; 2 broken: the first that was heard
};

struct board {
    static constexpr std::size_t threads = 4096;
    static constexpr std::size_t generations = 65'536;
    std::array<meeting, generations> latches, barriers, counting;
    std::array<std::array<belief, threads>, all_names> beliefs;
    std::atomic<std::int64_t> grants;
    std::atomic<std::int64_t> latest_grant;   ///< CLOCK_BOOTTIME, in microseconds
    std::atomic<std::int64_t> longest_pause;  ///< between two grants, in microseconds
    std::atomic<std::int64_t> latest_term;    ///< of the election, of a leader that believed it
    std::atomic<std::int64_t> upgrades;
    std::atomic<std::int64_t> lost;
    std::atomic<std::int64_t> deadlocks;  ///< waits that gave way to others
    std::atomic<std::int64_t> failures;
    std::atomic<std::int64_t> overlaps;
    /// Of a quorum: when a member was last restored or readmitted; max() while one is.
    std::atomic<std::int64_t> members_changed;
    std::array<char, 400> first_overlap;  ///< for people; written by the thread that counted it
};

/// How many permits are on a name of the board: those of a shared_mutex stand for its modes.
[[nodiscard]] std::int64_t capacity_of(std::size_t name);

/// Believes, for one thread, that it has so many permits of a name. The destructor ends that.
class held_belief {
public:
    held_belief(board& on, std::size_t name, std::size_t slot)
        : board_{on}, name_{name}, mine_{on.beliefs[name][slot]} {}
    held_belief(const held_belief&) = delete;
    held_belief& operator=(const held_belief&) = delete;
    ~held_belief() { mine_.permits = 0; }

    void set(std::int64_t permits) {
        if (permits != 0) ++mine_.begun;
        mine_.permits = permits;
    }
    /// All permits of the name: of a lease, that it is held.
    void set_all() { set(capacity_of(name_)); }
    /// The belief stands until then, by CLOCK_BOOTTIME in microseconds; 0: it is over.
    void last_until(std::int64_t time) { mine_.until = time; }
    /// The thread looked at its lock then. Where a change of the members ends a lock before its
    /// time, the belief stands until its process, which may give it up, has run for `margin` since.
    void looked(std::int64_t time) { mine_.looked = time; }
    /// Adds up what all threads believe. A sum above the capacity counts if all of these beliefs
    /// still stand after the last was read: so they all stood at one moment.
    /// @param margin the time for a holder to learn of an early end, in microseconds
    void check(std::int64_t margin = 0) const;

private:
    board& board_;
    const std::size_t name_;
    belief& mine_;
};

/// Ends a belief before what it is about is released: is made behind that.
class end_of_belief {
public:
    explicit end_of_belief(held_belief& of) : of_{of} {}
    end_of_belief(const end_of_belief&) = delete;
    end_of_belief& operator=(const end_of_belief&) = delete;
    ~end_of_belief() { of_.set(0); }

private:
    held_belief& of_;
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
