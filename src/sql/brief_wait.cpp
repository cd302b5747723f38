#include "sql/brief_wait.hpp"

#include "sql/database_traits.hpp"

#include <algorithm>
#include <chrono>

namespace rowlock::sql {

void set_short_lock_timeout(sql::connection& db, sql::deadline until) {
    if (!db.keeps_session_state()) return;
    if (db.speaks() == sql::dialect::postgresql) db.query("set lock_timeout = 100", until);
    if (db.speaks() == sql::dialect::mysql) {
        db.query("set session innodb_lock_wait_timeout = 1", until);
    }
}

sql::deadline row_lock_deadline(const sql::connection& db, sql::deadline until,
                                std::chrono::nanoseconds patience) {
    if (sql::traits_of(db.speaks()).limits_lock_waits) return until;
    return std::min<sql::deadline>(until, std::chrono::steady_clock::now() + patience);
}

bool is_locked(const sql::connection& db, const error& failure) {
    return failure.retryable() && db.alive() && !db.discarded();
}

}  // namespace rowlock::sql
