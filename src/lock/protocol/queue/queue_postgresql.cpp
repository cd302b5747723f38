#include "base/ablation.hpp"
#include "lock/protocol/queue/queue_dialects.hpp"
#include "sql/array_text.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

#include <iterator>
#include <map>
#include <utility>

namespace rowlock::protocol {
namespace {

using base::fast_path;
using std::chrono::microseconds;

/// A lease that the statement itself has handed over; it wakes the waiter.
std::optional<handed_over> read_handed_over(const sql::result& row, std::size_t column) {
    if (row.is_null(0, column)) return std::nullopt;
    return handed_over{.session = row.integer<session_id>(0, column),
                       .grant_id = row.integer<grant_id>(0, column + 1),
                       .token = row.integer(0, column + 2),
                       .woken = true};
}

/// Runs `send(notify)`, and again without the notification if the server could not take that up:
/// its queue of notifications is full, which fails the commit and undoes all that it did.
/// @return the result, and whether it notified
template <typename Send>
std::pair<sql::result, bool> notify_if_possible(bool wanted, Send send) {
    constexpr std::string_view queue_is_full = "54000";
    try {
        return {send(wanted ? 1 : 0), wanted};
    } catch (const error& failure) {
        if (!wanted || failure.sqlstate() != queue_is_full) throw;
        return {send(0), false};
    }
}

/// For held_leases, once for a connection. A plan is kept as it was made, so this comes before it.
/// Where it is refused (a proxy), the plan is the server's choice.
void avoid_scans(sql::connection& db, sql::deadline until) {
    bool& avoids = sql::memory_of(db).avoids_scans;
    if (avoids || !db.keeps_session_state()) return;
    try {
        db.query("set enable_seqscan = off", until);
    } catch (const error&) {
        if (!db.alive()) throw;
    }
    avoids = true;
}

/// How many tickets before the last served one a queue scan begins: fragment in_queue.
constexpr std::int64_t looks_back = 256;

/// Reads the rows of confirm_and_read_next. A waiter that is promised the next token comes first.
/// The one behind it is promised nothing if it was overtaken so far that no scan would find it, or
/// if its limit is near: while no client would serve it, the promise would keep all others waiting.
std::optional<next_waiter> read_next_in_line(const sql::result& rows) {
    std::map<std::pair<bool, ticket_no>, std::size_t> line;
    const auto promised = rows.maybe_integer<grant_id>(0, 3);
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (rows.is_null(row, 4)) continue;
        line.try_emplace(
            {rows.integer<grant_id>(row, 6) != promised, rows.integer<ticket_no>(row, 4)}, row);
    }
    if (line.empty()) return std::nullopt;
    const std::size_t row = line.begin()->second;
    next_waiter next{.ticket = rows.integer<ticket_no>(row, 4),
                     .session = rows.integer<session_id>(row, 5),
                     .grant_id = rows.integer<grant_id>(row, 6),
                     .thread = std::string{rows.text(row, 7)},
                     .note = std::string{rows.text(row, 8)},
                     .deadline_us = rows.maybe_integer(row, 9),
                     .to = read_address(rows, row, 11),
                     .alive = microseconds{rows.integer(row, 10)},
                     .promised = rows.integer<grant_id>(row, 6) == promised,
                     .after = {},
                     .looks_from = rows.maybe_integer<ticket_no>(row, 2)};
    if (line.size() > 1) {
        const std::size_t behind = std::next(line.begin())->second;
        const bool leaves_soon = rows.integer(behind, 14) != 0;
        if (!leaves_soon && rows.integer(behind, 4) > rows.integer(row, 4) - looks_back)
            next.after = rows.integer<grant_id>(behind, 6);
    }
    return next;
}

/// The ticket was cancelled while hand_over_to waited for it, which rolled all of it back.
bool has_gone(const error& failure) {
    return failure.sqlstate() == "22P02" &&
           failure.server_message().find("rowlock: the waiter has gone") != std::string::npos;
}

/// Hands over in one statement. PostgreSQL shows a commit once it is on disk, or keeps a promise
/// that is (docs/adr/0023).
class postgresql_queue_protocol final : public queue_protocol {
public:
    explicit postgresql_queue_protocol(const queue_parts& of)
        : queue_protocol{of},
          cancel_{of.statements("cancel")},
          delete_entries_of_{of.statements("delete_entries_of")},
          entries_by_id_{of.statements("entries_by_id")},
          reset_watermark_{of.statements("reset_watermark")},
          grant_next_{of.statements("grant_next")},
          grant_counted_{of.statements("grant_counted")},
          release_unwaited_{of.statements("release_unwaited")},
          hand_over_{of.statements("hand_over")},
          confirm_and_read_next_{of.statements("confirm_and_read_next")},
          hand_over_to_{of.statements("hand_over_to")},
          leave_{of.statements("leave")} {}

    [[nodiscard]] bool release_seeks_waiters() const noexcept override { return true; }

    std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                 sql::deadline until) const override {
        if (grant_ids.empty()) return {};
        return first_column(run(db, cancel_, until, array_of(grant_ids)));
    }

    bool delete_entries_of(sql::connection& db, session_id session,
                           sql::deadline until) const override {
        run(db, delete_entries_of_, until, session);
        return false;
    }

    queue_entries entries_at(sql::connection& db, session_id session,
                             std::span<const grant_id> grant_ids,
                             sql::deadline until) const override {
        return read_entries(run(db, entries_by_id_, until, session, array_of(grant_ids)));
    }

    void reset_watermark(sql::connection& db, std::string_view name, ticket_no ticket,
                         sql::deadline until) const override {
        run(db, reset_watermark_, until, name, ticket);
    }

    std::vector<served_row> held_of(sql::connection& db, session_id session,
                                    std::span<const std::string> names,
                                    sql::deadline until) const override {
        sql::array_text all;
        for (const auto& name : names) all.add(name);
        avoid_scans(db, until);
        return read_held(run(db, held_leases_, until, session, all.close()));
    }

    [[nodiscard]] served_waiters serve(sql::connection& db, std::string_view name,
                                       queue_head expected, sql::deadline until) const override {
        for (;; check_time(until)) {
            if (expected == queue_head::counted) {
                auto [done, may_be_sole] = serve_counted(db, name, until);
                if (!done.waiters.empty() || !may_be_sole) return std::move(done);
            }
            expected = queue_head::sole;
            const auto [row, notified] = notify_if_possible(
                true, [&](int notify) { return run(db, grant_next_, until, name, notify); });
            if (auto next = read_handed_over(row, 2)) {
                if (!notified) find_address(db, *next, until);
                return {.waiters = {*std::move(next)}};
            }
            const auto found = row.integer(0, 0);
            if (row.integer(0, 1) != 0) {
                restore_lease(db, name, until);
            } else if (found == 0) {
                return {};
            }
            if (found < 2) continue;
            expected = queue_head::counted;
            if (const auto ended = row.maybe_integer<session_id>(0, 7)) {
                clear_sole(db, name, row.integer(0, 6), *ended, until);
            }
        }
    }

    release_outcome release(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, bool contended, sql::deadline until) const override {
        const int may_be_asynchronous = db.keeps_session_state() ? 1 : 0;
        if (!contended &&
            run(db, release_unwaited_, until, name, session, grant_id, may_be_asynchronous)
                    .affected() > 0) {
            return {true, std::nullopt};
        }
        const auto [row, notified] = notify_if_possible(true, [&](int notify) {
            return run(db, hand_over_, until, name, session, grant_id, may_be_asynchronous, notify);
        });
        release_outcome done{.freed = row.integer(0, 0) != 0,
                             .next = read_handed_over(row, 1),
                             .counted_waits = row.integer(0, 6) != 0};
        if (done.next && !notified) find_address(db, *done.next, until);
        return done;
    }

    std::optional<confirmed_grant> confirm_and_read_next(sql::connection& db, std::string_view name,
                                                         session_id session, grant_id grant_id,
                                                         bool durably,
                                                         sql::deadline until) const override {
        const auto rows =
            run(db, confirm_and_read_next_, until, name, session, grant_id, durably ? 1 : 0);
        if (rows.empty()) return std::nullopt;
        return confirmed_grant{{rows.integer(0, 0), rows.maybe_integer(0, 1)},
                               read_next_in_line(rows)};
    }

    std::optional<handed_over> hand_over_to(sql::connection& db, std::string_view name,
                                            session_id session, grant_id grant_id,
                                            const next_waiter& next, const hand_over_options& how,
                                            sql::deadline until) const override;

    std::vector<std::string> leave(sql::connection& db, session_id session,
                                   std::span<const std::string> names,
                                   sql::deadline until) const override {
        if (names.empty()) {
            leases_.sessions().remove(db, session, until);
            return {};
        }
        return distinct_names(db, leave_, std::array{sql::value{session}}, names, until);
    }

private:
    struct counted_served {
        served_waiters done;
        bool may_be_sole;  ///< nobody was served: the first waiter may be a sole one
    };
    [[nodiscard]] counted_served serve_counted(sql::connection& db, std::string_view name,
                                               sql::deadline until) const {
        constexpr std::size_t at_once = 256;
        const auto rows = run(db, grant_counted_, until, name);
        counted_served found{{.waiters = {}, .more = rows.rows() == at_once},
                             rows.integer(0, 0) != 0};
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (rows.is_null(row, 1)) continue;
            found.done.waiters.push_back({.session = rows.integer<session_id>(row, 1),
                                          .grant_id = rows.integer<grant_id>(row, 2),
                                          .token = rows.integer(row, 3),
                                          .to = read_address(rows, row, 4)});
        }
        return found;
    }

    /// For a waiter that the statement did not wake: notify_grantee() may reach it by datagram.
    void find_address(sql::connection& db, handed_over& next, sql::deadline until) const noexcept {
        try {
            const auto waiter = leases_.sessions().change_of(db, next.session, until);
            if (!waiter) return;
            next.to = waiter->to;
            next.woken = false;
        } catch (...) {
            // The grant is committed. The waiter finds it with its next poll.
        }
    }

    void wake(sql::connection& db, const handed_over& next, std::string_view message,
              sql::deadline until) const override {
        notify(db, next.to, message, until);
    }

    void notify(sql::connection& db, const wakeup::wake_address& to, std::string_view message,
                sql::deadline until) const override {
        static const sql::statement statement{"select pg_notify($1, $2)"};
        run(db, statement, until, wakeup::notification_channel(to), message);
    }

    const sql::statement cancel_, delete_entries_of_, entries_by_id_, reset_watermark_, grant_next_,
        grant_counted_, release_unwaited_, hand_over_, confirm_and_read_next_, hand_over_to_,
        leave_;
};

std::optional<handed_over> postgresql_queue_protocol::hand_over_to(
    sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
    const next_waiter& next, const hand_over_options& how, sql::deadline until) const {
    const bool reserves = uses(fast_path::reserved_token);
    const bool asynchronous =
        reserves && next.promised && how.may_be_asynchronous && db.keeps_session_state();
    try {
        const auto [row, notified] = notify_if_possible(how.notify, [&](int notify) {
            return run(db, hand_over_to_, until, name, session, grant_id, next.ticket, next.session,
                       next.grant_id, sql::text_or_null(next.thread), sql::text_or_null(next.note),
                       next.deadline_us, asynchronous ? 1 : 0, reserves ? next.after : std::nullopt,
                       next.looks_from, notify, next.to.number, next.to.secret);
        });
        if (row.empty()) return std::nullopt;
        return handed_over{next.session, next.grant_id, row.integer(0, 0),
                           notified,     asynchronous,  next.to};
    } catch (const error& failure) {
        if (!has_gone(failure)) throw;
        return std::nullopt;
    }
}

}  // namespace

std::unique_ptr<const queue_protocol> make_postgresql_queue(const queue_parts& of) {
    return std::make_unique<const postgresql_queue_protocol>(of);
}

}  // namespace rowlock::protocol
