#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace rowlock::sqlite {

/// The order of the writers of one SQLite file, over all processes of a machine: a ticket lock in a
/// file beside the database, `<database>-turns`, that each maps into its memory. SQLite's write
/// lock is given to the one that asks at the right moment, so of many writers some starve.
///
/// A turn is a courtesy and protects nothing: SQLite's lock alone excludes. So a turn that lasts
/// for longer than the patience (a process that was killed or stopped, a long transaction) is
/// skipped, a writer waits for half of its time at most, and a damaged file costs order, nothing
/// else.
///
/// The algorithm is the ticket lock of Reed and Kanodia (Synchronization with Eventcounts and
/// Sequencers, 1979), with a futex whose bits wake by ticket, and a mark for each ticket whose
/// writer has left the queue.
///
/// One thread at a time.
class write_turns {
public:
    /// More than a commit with a flush to a disk takes.
    static constexpr std::chrono::milliseconds usual_patience{50};

    /// Maps the file beside `database`, and makes it with the mode and owner of the database if
    /// there is none. Returns nullptr if that fails, or if a file of another kind or of a stranger
    /// is in its place: then writers have no order.
    static std::unique_ptr<write_turns> open(
        const std::string& database, std::chrono::nanoseconds patience = usual_patience) noexcept;

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
    enum class end : unsigned char { left, skipped };

    write_turns(shared* mapped, std::chrono::nanoseconds patience) noexcept
        : shared_{mapped}, patience_{patience} {}
    void advance(std::uint32_t from, end how) noexcept;
    void give_up() noexcept;
    [[nodiscard]] sql::deadline skip_at(std::uint32_t ahead, sql::deadline now) const noexcept;

    shared* shared_;
    const std::chrono::nanoseconds patience_;
    std::uint32_t ticket_ = 0;
    bool inside_ = false;
};

}  // namespace rowlock::sqlite
