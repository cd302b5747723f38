#include "transaction/rows/row_transaction.hpp"

#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/statements.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace rowlock::detail {
namespace {

using std::chrono::milliseconds;

std::string name_of(isolation level) {
    switch (level) {
        case isolation::read_committed:
            return "read committed";
        case isolation::repeatable_read:
            return "repeatable read";
        case isolation::serializable:
            return "serializable";
    }
    return "serializable";
}

std::int64_t whole_seconds(milliseconds time) {
    return std::chrono::ceil<std::chrono::seconds>(time).count();
}

void begin_on_postgresql(sql::connection& db, const row_session_options& options,
                         sql::deadline until) {
    static const auto setup = sql::load_statement(sql::dialect::postgresql, "row_session_setup");
    try {
        db.query("begin isolation level " + name_of(options.isolation_level) + " read write",
                 until);
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        throw error{errc::read_only,
                    "this server is a standby, where no row can be locked: "
                    "connect to the primary"};
    }
    sql::run(db, setup, until, options.max_hold.count(),
             std::to_string(lock_timeout_of(options).count()));
}

/// The settings belong to the connection, which is ours: they are sent again only if its last
/// session had others. MySQL has no limit for idle transactions, so the limit there is on idle
/// connections; the pool replaces those that it closes.
void begin_on_mysql(sql::connection_pool::borrowed& place, const row_session_options& options,
                    sql::deadline until) {
    auto& db = *place;
    const auto hold = std::to_string(whole_seconds(options.max_hold));
    const std::string limits =
        sql::facts_of(db, until).mariadb
            ? ", idle_transaction_timeout = " + hold + ", max_statement_time = " + hold
            : ", wait_timeout = " + hold;
    const std::string settings =
        "set names utf8mb4, session autocommit = 1, completion_type = 0, "
        "innodb_lock_wait_timeout = " +
        std::to_string(whole_seconds(lock_timeout_of(options))) + limits;
    const std::string level = "set session transaction isolation level " +
                              name_of(options.isolation_level) + ", read write";
    if (place.mark() != settings + level) {
        db.query(level, until);
        db.query(settings, until);
        place.set_mark(settings + level);
    }
    db.query("start transaction", until);
}

/// A busy timeout of the library would ignore our deadlines; the driver waits without it.
void prepare_sqlite(sql::connection_pool::borrowed& place, sql::deadline until) {
    auto& db = *place;
    if (!place.mark().empty()) return;
    const auto timeout = db.query("pragma busy_timeout", until);
    if (!timeout.empty() && timeout.integer(0, 0) != 0) {
        db.query("pragma busy_timeout = 0", until);
    }
    place.set_mark("prepared");
}

}  // namespace

milliseconds lock_timeout_of(const row_session_options& options) {
    const auto wait = options.wait.how() == row_wait::kind::bounded ? options.wait.limit()
                                                                    : options.statement_timeout;
    return std::min(wait, options.max_hold);
}

bool begin_row_transaction(sql::connection_pool::borrowed& place,
                           const row_session_options& options, sql::deadline until) {
    switch (place->speaks()) {
        case sql::dialect::postgresql:
            begin_on_postgresql(*place, options, until);
            return true;
        case sql::dialect::mysql:
            begin_on_mysql(place, options, until);
            return true;
        case sql::dialect::sqlite:
            prepare_sqlite(place, until);
            return false;
    }
    return false;
}

}  // namespace rowlock::detail
