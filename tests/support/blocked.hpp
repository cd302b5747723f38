#pragma once

#include "support/lock_database.hpp"

#include <chrono>
#include <random>
#include <string>
#include <thread>

namespace support {

/// Waits until at least `count` connections at the server of `db` wait for a row's lock, held by
/// the test, in statements whose text contains `what`, or which use a table whose name does:
/// PostgreSQL cuts a text that it shows. `db` has no transaction open: PostgreSQL shows to each
/// transaction one state of the activity, that of its first look.
inline bool waiting_for_rows(rowlock::sql::connection& db, const std::string& what, int count = 1) {
    const bool postgresql = db.speaks() == rowlock::sql::dialect::postgresql;
    const std::string waiting =
        postgresql ? "select count(distinct pid) from pg_locks l join pg_stat_activity a "
                     "using (pid) where not l.granted and (a.query like '%" +
                         what +
                         "%' or exists (select from pg_locks u join pg_class c on c.oid = "
                         "u.relation where u.pid = l.pid and c.relname like '%" +
                         what + "%'))"
                   : "select count(*) from information_schema.innodb_trx "
                     "where trx_state = 'LOCK WAIT' and trx_query like '%" +
                         what + "%'";
    return eventually([&] {
        // InnoDB renews this view only if it was not read for 100 ms, by this or another program.
        if (!postgresql) {
            thread_local std::minstd_rand random{std::random_device{}()};
            std::this_thread::sleep_for(std::chrono::milliseconds{150 + random() % 250});
        }
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
        return db.query(waiting, until).integer(0, 0) >= count;
    });
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
