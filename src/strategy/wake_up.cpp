#include "strategy/wake_up.hpp"

#include "sql/connection_memory.hpp"
#include "sql/server_facts.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <string>

namespace rowlock::strategy::wake_up {
namespace {

constexpr int query_interrupted = 1317;
// The session's limit on a statement's time, which somebody has set in spite of us.
constexpr int statement_timeout_mariadb = 1969;
constexpr int statement_timeout_mysql = 3024;

constexpr std::string_view sleep_begins = "select sleep(";
constexpr std::string_view sleep_ends = ") as rowlock_wake_";

// The first hundred bytes of each statement of this user; that is enough for a sleep, and less than
// the megabytes that FULL may answer. The servers have the same in information_schema, where
// MariaDB makes a temporary file for each question (3 ms).
constexpr std::string_view list_processes = "show processlist";
constexpr std::size_t id_column = 0;
constexpr std::size_t state_column = 6;
constexpr std::size_t statement_column = 7;
// A KILL that comes before a statement has got so far is forgotten when it starts.
constexpr std::string_view asleep = "User sleep";

// Whole and thousandth seconds.
std::string sleep_text(std::int64_t session, std::chrono::milliseconds longest) {
    const auto count = std::max<std::int64_t>(longest.count(), 0);
    std::string fraction = std::to_string(count % 1000);
    fraction.insert(0, 3 - fraction.size(), '0');
    return std::string{sleep_begins} + std::to_string(count / 1000) + "." + fraction +
           std::string{sleep_ends} + std::to_string(session);
}

// Whether the server's list has this connection under the number that "select connection_id()"
// answers. Not so behind a proxy that answers by itself: it takes KILL for itself too, and the
// number would be one of another connection's.
bool numbers_are_the_servers(sql::connection& db, const sql::result& list, sql::deadline until) {
    const auto ours = db.query("select connection_id()", until).text(0, 0);
    for (std::size_t row = 0; row < list.rows(); ++row) {
        if (list.text(row, id_column) == ours) {
            return list.text(row, statement_column) == list_processes;
        }
    }
    return false;
}

// False if there is no such connection, or it may not be touched.
bool end_sleep(sql::connection& db, std::int64_t connection, sql::deadline until) {
    try {
        db.query("kill query " + std::to_string(connection), until);
        return true;
    } catch (const error&) {
        if (!db.alive()) throw;
        return false;
    }
}

}  // namespace

void prepare_to_sleep(sql::connection& db, sql::deadline until) {
    db.discard();
    db.query(sql::facts_of(db, until).mariadb ? "set session max_statement_time = 0"
                                              : "set session max_execution_time = 0",
             until);
}

ending sleep_until_woken(sql::connection& db, std::int64_t session,
                         std::chrono::milliseconds longest, sql::deadline until) {
    try {
        // MySQL's sleep() answers whether it was interrupted, MariaDB's fails then.
        const auto row = db.query(sleep_text(session, longest), until);
        return row.integer(0, 0) == 0 ? ending::slept : ending::woken;
    } catch (const error& failure) {
        if (!db.alive()) throw;
        switch (failure.native_code()) {
            case query_interrupted:
                return ending::woken;
            case statement_timeout_mariadb:
            case statement_timeout_mysql:
                return ending::slept;
            default:
                throw;
        }
    }
}

bool wake(sql::connection& db, std::int64_t session, sql::deadline until) {
    auto& behind_proxy = sql::memory_of(db).behind_proxy;
    if (behind_proxy.value_or(false)) return false;
    const auto list = db.query(list_processes, until);
    if (!behind_proxy) behind_proxy = !numbers_are_the_servers(db, list, until);
    if (*behind_proxy) return false;
    bool woken = false;
    // More than one: the server has not noticed yet that an earlier one was given up.
    for (std::size_t row = 0; row < list.rows(); ++row) {
        if (list.text(row, state_column) != asleep) continue;
        if (!is_sleep_of(list.text(row, statement_column), session)) continue;
        if (end_sleep(db, list.integer(row, id_column), until)) woken = true;
    }
    return woken;
}

bool is_sleep_of(std::string_view statement, std::int64_t session) noexcept {
    if (!statement.starts_with(sleep_begins)) return false;
    statement.remove_prefix(sleep_begins.size());
    const auto number = statement.find_first_not_of("0123456789.");
    if (number == std::string_view::npos) return false;
    statement.remove_prefix(number);
    return statement.starts_with(sleep_ends) &&
           statement.substr(sleep_ends.size()) == std::to_string(session);
}

}  // namespace rowlock::strategy::wake_up
