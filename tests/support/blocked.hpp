#pragma once

#include "support/lock_database.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <string_view>

namespace support {

/// How many transactions wait for a lock, by InnoDB's monitor: in statements whose text contains
/// `what`, or on a table whose name does. MySQL leaves out some that only read.
inline int innodb_lock_waits(rowlock::sql::connection& db, std::string_view what) {
    const auto shown = db.query("show engine innodb status", soon());
    std::string_view text = shown.text(0, 2);
    constexpr std::string_view list{"LIST OF TRANSACTIONS"};
    constexpr std::string_view begin{"---TRANSACTION "};
    text.remove_prefix(std::min(text.find(list), text.size()));
    int waiting = 0;
    for (auto at = text.find(begin); at != std::string_view::npos;) {
        const auto next = text.find(begin, at + begin.size());
        const auto one = text.substr(at, next - at);
        if (one.find("LOCK WAIT") != std::string_view::npos &&
            one.find(what) != std::string_view::npos) {
            ++waiting;
        }
        at = next;
    }
    return waiting;
}

/// Waits until the monitor shows that many, or the view does, which has all of them, and is renewed
/// only if no program has read it for 100 ms.
inline bool innodb_waits(rowlock::sql::connection& db, const std::string& what, int count) {
    using clock = std::chrono::steady_clock;
    std::minstd_rand random{std::random_device{}()};
    const auto soon_again = [&] {
        return clock::now() + std::chrono::milliseconds{150 + random() % 250};
    };
    auto next = soon_again();
    return eventually([&] {
        if (innodb_lock_waits(db, what) >= count) return true;
        if (clock::now() < next) return false;
        next = soon_again();
        try {
            return db.query(
                         "select count(*) from information_schema.innodb_trx where trx_state = "
                         "'LOCK WAIT' and trx_query like '%" +
                             what + "%'",
                         soon())
                       .integer(0, 0) >= count;
        } catch (const rowlock::error& failure) {
            // MySQL, while the statement of any transaction has a character that utf8mb3 lacks.
            if (failure.native_code() != 3854) throw;
            return false;
        }
    });
}

/// Waits until at least `count` connections at the server of `db` wait for a row's lock, held by
/// the test, in statements whose text contains `what`, or which use a table whose name does:
/// PostgreSQL cuts a text that it shows. `db` has no transaction open: PostgreSQL shows to each
/// transaction one state of the activity, that of its first look.
inline bool waiting_for_rows(rowlock::sql::connection& db, const std::string& what, int count = 1) {
    if (db.speaks() == rowlock::sql::dialect::mysql) {
        return innodb_waits(db, what, count);
    }
    const std::string waiting =
        "select count(distinct pid) from pg_locks l join pg_stat_activity a "
        "using (pid) where not l.granted and (a.query like '%" +
        what +
        "%' or exists (select from pg_locks u join pg_class c on c.oid = "
        "u.relation where u.pid = l.pid and c.relname like '%" +
        what + "%'))";
    return eventually([&] { return db.query(waiting, soon()).integer(0, 0) >= count; });
}

/// Likewise for rows of this test's tables.
inline bool waiting_for_rows(lock_database& database, int count) {
    return waiting_for_rows(database.admin(), database.prefix(), count);
}

inline bool somebody_waits_for_a_row(lock_database& database) {
    return waiting_for_rows(database, 1);
}

/// Whether a statement that reads, then waits for a row and finds it changed, fails with 1020, and
/// its transaction with it: innodb_snapshot_isolation, on by default from MariaDB 11.6 on.
inline bool isolates_snapshots(rowlock::sql::connection& db) {
    if (db.speaks() != rowlock::sql::dialect::mysql) return false;
    const auto row = db.query("show variables like 'innodb_snapshot_isolation'", soon());
    return !row.empty() && row.text(0, 1) == "ON";
}

}  // namespace support
