#include "lock/wakeup/mysql_wait.hpp"

#include "base/sha256.hpp"
#include "sql/connection_memory.hpp"
#include "sql/server_facts.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace rowlock::mysql_wait {
namespace {

constexpr int query_interrupted = 1317;
// The session's limit on a statement's time, which was set in spite of us.
constexpr int statement_timeout_mariadb = 1969;
constexpr int statement_timeout_mysql = 3024;

// Below the 64 characters that MySQL allows, and without letters whose case would matter. The
// numbers are random, 62 bits: no other user of the server has the same by chance.
std::string lock_of_session(session_id session) {
    return "'rowlock_wake_" + to_string(session) + "'";
}

std::string name_of_wait_lock(std::int64_t wait_lock) {
    return "'rowlock_wait_" + std::to_string(wait_lock) + "'";
}

// As woken_for computes it: 16 digits.
std::string lock_of_telling(durability_mark mark) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string name = "'rowlock_told_";
    for (int shift = 60; shift >= 0; shift -= 4) {
        name += digits[(static_cast<std::uint64_t>(mark) >> shift) & 15];
    }
    return name + "'";
}

bool take(sql::connection& db, const std::string& lock, int seconds, sql::deadline until) {
    const auto row =
        db.query("select get_lock(" + lock + ", " + std::to_string(seconds) + ")", until);
    return row.maybe_integer(0, 0) == 1;
}

// False if the server refused, which is not a failure here.
bool allowed(sql::connection& db, const std::string& statement, sql::deadline until) {
    try {
        db.query(statement, until);
        return true;
    } catch (const error&) {
        if (!db.alive()) throw;
        return false;
    }
}

}  // namespace

void prepare_to_sleep(sql::connection& db, session_id session, sql::deadline until) {
    db.discard();
    db.query(sql::facts_of(db, until).mariadb ? "set session max_statement_time = 0"
                                              : "set session max_execution_time = 0",
             until);
    const auto lock = lock_of_session(session);
    if (take(db, lock, 0, until)) return;
    // Only a sleeper of this session ever has it, and there is one at a time: the server has not
    // noticed yet that the previous one was given up.
    allowed(db, "kill is_used_lock(" + lock + ")", until);
    if (take(db, lock, 1, until)) return;
    throw error{errc::unsupported, "the server does not grant a user-level lock to sleep with"};
}

bool take_wait_lock(sql::connection& db, std::int64_t wait_lock, sql::deadline until) {
    if (!db.keeps_session_state() || sql::facts_of(db, until).member_of != sql::cluster::none) {
        return false;
    }
    try {
        return take(db, name_of_wait_lock(wait_lock), 0, until);
    } catch (const error&) {
        if (!db.alive()) throw;
        return false;
    }
}

void release_wait_lock(sql::connection& db, std::int64_t wait_lock, sql::deadline until) {
    db.query("do release_lock(" + name_of_wait_lock(wait_lock) + ")", until);
}

ending sleep_until_woken(sql::connection& db, session_id session, std::int64_t wait_lock,
                         std::chrono::seconds longest, sql::deadline until) {
    // The name of the column is for people, who read it in the process list.
    const auto count = std::max<std::int64_t>(longest.count(), 0);
    const std::string text = "select get_lock(" + name_of_wait_lock(wait_lock) + ", " +
                             std::to_string(count) + ") as rowlock_wake_" + to_string(session);
    try {
        // A killed GET_LOCK answers NULL, or fails. So does one that met a limit.
        const auto answer = db.query(text, until).maybe_integer(0, 0);
        if (!answer) return ending::woken;
        return *answer == 1 ? ending::lock_free : ending::slept;
    } catch (const error& failure) {
        if (!db.alive()) throw;
        const int code = failure.native_code();
        if (code == query_interrupted || code == statement_timeout_mariadb ||
            code == statement_timeout_mysql) {
            return ending::woken;
        }
        throw;
    }
}

durability_mark mark_durable(grant_id grant_id, std::string_view secret) {
    const auto digest = sha256(std::string{secret} + "durable " + to_string(grant_id));
    std::uint64_t mark = 0;
    for (std::size_t i = 0; i < sizeof mark; ++i) mark = mark << 8 | digest[i];
    return durability_mark{static_cast<std::int64_t>(mark)};
}

// If no connection holds the session's lock this is KILL QUERY NULL, which is refused: there is no
// connection 0. The lock of the grant is taken before that.
std::string as_text(sql::connection& db, session_id session, durability_mark of_grant) {
    const auto mysql_wait_thread = "is_used_lock(" + lock_of_session(session) + ")";
    const durability_mark last{sql::memory_of(db).wakeup_lock->load()};
    const auto say = "coalesce(release_lock(" + lock_of_telling(last) + "), 0) + get_lock(" +
                     lock_of_telling(of_grant) + ", 0)";
    return "kill query if(" + say + " >= 0, " + mysql_wait_thread + ", " + mysql_wait_thread + ")";
}

void note_woken(sql::connection& db, durability_mark of_grant) {
    *sql::memory_of(db).wakeup_lock = static_cast<std::int64_t>(of_grant);
}

bool wake(sql::connection& db, session_id session, durability_mark of_grant, sql::deadline until) {
    const auto text = as_text(db, session, of_grant);
    note_woken(db, of_grant);
    return allowed(db, text, until);
}

}  // namespace rowlock::mysql_wait
