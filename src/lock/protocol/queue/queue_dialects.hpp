#pragma once

#include "lock/protocol/hold/tickets.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "sql/statements.hpp"
#include "sql/value_list.hpp"
#include <rowlock/ids.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

/// What the implementations of queue_protocol share. For them alone: others call
/// make_queue_protocol().
namespace rowlock::protocol {

/// What an implementation is made of; see make_queue_protocol.
struct queue_parts {
    const sql::statement_set& statements;
    const lease_protocol& leases;
    bool by_datagram;
};

[[nodiscard]] std::unique_ptr<const queue_protocol> make_postgresql_queue(const queue_parts& of);
[[nodiscard]] std::unique_ptr<const queue_protocol> make_mysql_queue(const queue_parts& of);
[[nodiscard]] std::unique_ptr<const queue_protocol> make_sqlite_queue(const queue_parts& of);

/// MySQL and SQLite hand over in two steps: they read the lease and its first waiter, then grant it
/// to that waiter in a short transaction, by compare-and-set on what was read.
class two_step_queue_protocol : public queue_protocol {
public:
    queue_entries entries_at(sql::connection& db, session_id session,
                             std::span<const grant_id> grant_ids,
                             sql::deadline until) const override;
    void reset_watermark(sql::connection& db, std::string_view name, ticket_no ticket,
                         sql::deadline until) const override;
    std::vector<served_row> held_of(sql::connection& db, session_id session,
                                    std::span<const std::string> names,
                                    sql::deadline until) const override;
    [[nodiscard]] served_waiters serve(sql::connection& db, std::string_view name,
                                       queue_head expected, sql::deadline until) const override;
    std::optional<handed_over> hand_over_to(sql::connection& db, std::string_view name,
                                            session_id session, grant_id grant_id,
                                            const next_waiter& next, const hand_over_options& how,
                                            sql::deadline until) const override;
    std::vector<std::string> leave(sql::connection& db, session_id session,
                                   std::span<const std::string> names,
                                   sql::deadline until) const override;

protected:
    explicit two_step_queue_protocol(const queue_parts& of);

    /// A lease and the first live ticket of its queue: the row of the statement next_waiter.
    class queue_look {
    public:
        explicit queue_look(sql::result row) : row_{std::move(row)} {}

        /// Whether there is a token floor.
        [[nodiscard]] bool may_grant() const { return !row_.is_null(0, 0); }
        [[nodiscard]] bool present() const { return row_.integer(0, 1) != 0; }
        [[nodiscard]] bool free() const { return row_.integer(0, 3) != 0; }
        [[nodiscard]] bool is_grant(session_id session, grant_id grant_id) const {
            return row_.maybe_integer<session_id>(0, 4) == session &&
                   row_.maybe_integer<rowlock::grant_id>(0, 5) == grant_id;
        }
        [[nodiscard]] bool waited() const { return !row_.is_null(0, 6); }
        /// Whether the first entry is one of a request for several locks, not served alone.
        [[nodiscard]] bool waited_for_several() const {
            return waited() && row_.integer(0, 15) > 1;
        }
        /// Whether the first entry wants a part of the lock.
        [[nodiscard]] bool waited_for_part() const { return waited() && !row_.is_null(0, 19); }
        /// Whether a sole waiter that is the first can be handed what is released.
        [[nodiscard]] bool waited_for_all() const {
            return waited() && !waited_for_several() && !waited_for_part();
        }
        /// Whether no live holder has all of the lock.
        [[nodiscard]] bool holder_gone() const { return row_.integer(0, 16) != 0; }
        /// The session of a sole holder, alive or not.
        [[nodiscard]] std::optional<session_id> holder() const {
            return row_.maybe_integer<session_id>(0, 4);
        }
        [[nodiscard]] std::int64_t room() const { return row_.maybe_integer(0, 17).value_or(0); }
        [[nodiscard]] std::int64_t weight() const { return row_.integer(0, 19); }
        [[nodiscard]] bool is_upgrade() const { return !row_.is_null(0, 20); }
        [[nodiscard]] std::int64_t token() const { return row_.integer(0, 2); }
        [[nodiscard]] next_waiter next() const;

    private:
        sql::result row_;
    };

    [[nodiscard]] queue_look look_at(sql::connection& db, std::string_view name,
                                     sql::deadline until) const;
    /// Hands our lease to its first waiter. `freed` is false if there is none that can be handed
    /// it, or the lease is not ours.
    [[nodiscard]] release_outcome hand_over(sql::connection& db, std::string_view name,
                                            session_id session, grant_id grant_id,
                                            sql::deadline until) const;
    /// The text that wakes the session of `next`, to run behind the commit that grants it the
    /// lease. Empty if nothing is to run there.
    /// @param giver the caller's session, which needs no notification; 0 if none
    [[nodiscard]] virtual std::string waking_text(sql::connection& db, const next_waiter& next,
                                                  session_id giver) const = 0;
    /// Grants a lease that is free to the first waiter of its queue. Returns nullopt if what was
    /// seen has changed.
    [[nodiscard]] virtual std::optional<handed_over> grant_first(sql::connection& db,
                                                                 std::string_view name,
                                                                 const queue_look& seen,
                                                                 sql::deadline until) const {
        return grant_to(db, name, seen.next(), session_id{}, until);
    }
    [[nodiscard]] std::optional<handed_over> grant_to(sql::connection& db, std::string_view name,
                                                      const next_waiter& next, session_id giver,
                                                      sql::deadline until) const;

private:
    /// Grants a part of the lock to the counted waiter that was seen. Returns false, and changes
    /// nothing, if that has gone, or the room has.
    [[nodiscard]] bool grant_part(sql::connection& db, std::string_view name,
                                  const queue_look& seen, sql::deadline until) const;
    /// Serves one waiter; `served` learns of it. Returns whether there may be another.
    [[nodiscard]] bool serve_first(sql::connection& db, std::string_view name,
                                   std::vector<handed_over>& served, sql::deadline until) const;

    const sql::statement delete_served_, next_waiter_, take_, use_, insert_hold_, upgrade_;
};

/// No parameters before the list.
inline constexpr std::array<sql::value, 0> alone{};

/// The first column of `what` for all `names`, each once.
template <std::size_t Count>
std::vector<std::string> distinct_names(sql::connection& db, const sql::statement& what,
                                        const std::array<sql::value, Count>& first,
                                        std::span<const std::string> names, sql::deadline until) {
    std::vector<std::string> found;
    sql::for_each_list(db, what, first, names, until, [&](const sql::result& rows) {
        for (std::size_t row = 0; row < rows.rows(); ++row) found.emplace_back(rows.text(row, 0));
    });
    std::ranges::sort(found);
    // Not that of std::ranges: clang 14 cannot compile what it returns.
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

/// Reads the columns of `entries`: one row for each entry, or one with NULLs.
[[nodiscard]] queue_entries read_entries(const sql::result& rows);

/// Reads the rows of `held_leases`.
[[nodiscard]] std::vector<served_row> read_held(const sql::result& rows);

/// Reads the three address columns of a session that is to be woken.
[[nodiscard]] wakeup::wake_address read_address(const sql::result& rows, std::size_t row,
                                                std::size_t column);

/// A client that loses a race reads again; each time another client made progress. The deadline
/// bounds it.
void check_time(sql::deadline until);

}  // namespace rowlock::protocol
