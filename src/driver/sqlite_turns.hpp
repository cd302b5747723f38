#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace rowlock::sqlite {

/// The order of the writers of one SQLite file, over all processes of a machine: a ticket lock in a
/// file beside the database, `<database>-turns`, that each maps into its memory. SQLite's write
/// lock is given to the one that asks at the right moment, so of many writers some starve.
///
/// A turn is a courtesy and protects nothing: SQLite's lock alone excludes. So a turn that lasts
/// for longer than the patience (a process that was stopped, a long transaction), or that its
/// writer does not begin (it was killed), is skipped; a writer waits for half of its time at most;
/// and a damaged file costs order, nothing else.
///
/// The algorithm is the ticket lock of Reed and Kanodia (Synchronization with Eventcounts and
/// Sequencers, 1979), with a futex whose bits wake by ticket, and a mark for each ticket whose
/// writer has left the queue.
///
/// One thread at a time.
class write_turns {
public:
    struct patience {
        /// With a turn that has begun: more than a commit with a flush to a disk takes.
        std::chrono::milliseconds with_turn{50};
        /// With a writer that was woken for its turn.
        std::chrono::milliseconds with_writer{10};
    };

    /// Maps the file beside `database`, and makes it with the mode and owner of the database if
    /// there is none. Returns nullptr if that fails, or if a file of another kind or of a stranger
    /// is in its place: then writers have no order.
    static std::unique_ptr<write_turns> open(const char* database) noexcept {
        return open(database, patience{});
    }
    static std::unique_ptr<write_turns> open(const char* database, patience how) noexcept;

    write_turns(const write_turns&) = delete;
    write_turns& operator=(const write_turns&) = delete;
    ~write_turns();

    /// Waits for a turn: until those before us have left or were skipped, or half of the time until
    /// the deadline has passed; then we are in no turn.
    void enter(sql::deadline until) noexcept;
    /// Ends the turn. No effect outside one.
    void leave() noexcept;
    [[nodiscard]] bool inside() const noexcept { return inside_; }

private:
    struct shared;
    using time = std::chrono::steady_clock::time_point;

    write_turns(shared* mapped, patience how) noexcept : shared_{mapped}, patience_{how} {}
    void begin_turn(std::uint32_t whose, bool arrived) noexcept;
    void advance() noexcept;
    void give_up() noexcept;
    [[nodiscard]] time skip_at(std::uint32_t serving, time since, time now) const noexcept;

    shared* shared_;
    const patience patience_;
    std::uint32_t ticket_ = 0;
    bool inside_ = false;
};

}  // namespace rowlock::sqlite
