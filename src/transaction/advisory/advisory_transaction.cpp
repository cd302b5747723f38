#include "sql/run_statement.hpp"
#include "sql/statements.hpp"
#include "transaction/advisory/advisory_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/transaction.hpp>

#include <algorithm>

namespace rowlock {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Below PostgreSQL's deadlock_timeout; see the statement advisory_wait.
constexpr milliseconds slice = 250ms;

sql::deadline soon(const transaction_lock_options& options) {
    return steady_clock::now() + options.statement_timeout;
}

/// For a library that does not report its state: now() stands still only within a transaction.
bool clock_stands_still(sql::connection& db, sql::deadline until) {
    constexpr auto now = "select extract(epoch from pg_catalog.now())";
    const std::string before{db.query(now, until).text(0, 0)};
    return db.query(now, until).text(0, 0) == before;
}

void require_transaction(sql::connection& db, const transaction_lock_options& options) {
    auto state = db.transaction();
    if (state == sql::transaction_state::unknown && db.alive()) {
        state = clock_stands_still(db, soon(options)) ? sql::transaction_state::open
                                                      : sql::transaction_state::none;
    }
    if (state == sql::transaction_state::none) {
        throw error{errc::invalid_options,
                    "an advisory lock of a transaction needs one: begin it first; outside, the "
                    "lock would end with the statement"};
    }
    if (state == sql::transaction_state::failed) {
        throw error{errc::invalid_options,
                    "the transaction has failed: roll it back (to a savepoint) before locking"};
    }
}

detail::server_key key_in(sql::connection& db, const advisory_key& key,
                          const transaction_lock_options& options) {
    if (options.statement_timeout <= 0ms || options.statement_timeout > 1min) {
        throw error{errc::invalid_options,
                    "statement_timeout must be positive and at most one minute"};
    }
    if (db.speaks() == sql::dialect::mysql) {
        throw error{
            errc::unsupported,
            "GET_LOCK belongs to the connection and survives a commit: use advisory_client, "
            "or lock a row"};
    }
    if (db.speaks() == sql::dialect::sqlite) {
        throw error{errc::unsupported,
                    "SQLite has no advisory locks: BEGIN IMMEDIATE locks the database"};
    }
    return detail::postgresql_key(key, options.domain);
}

bool attempt(sql::connection& db, const detail::server_key& key, advisory_mode mode,
             const transaction_lock_options& options) {
    static const sql::statement statement{
        sql::load_statement(sql::dialect::postgresql, "advisory_try_in")};
    const auto row = sql::run(db, statement, soon(options), key.bits, key.pair ? 1 : 0,
                              mode == advisory_mode::shared ? 1 : 0, options.any_isolation ? 1 : 0);
    const auto answer = row.text(0, 0);
    if (answer == "standby") {
        throw error{errc::read_only,
                    "this server is a standby and would grant locks that its primary knows nothing "
                    "of: connect to the primary"};
    }
    if (answer == "isolation") {
        throw error{errc::unsupported,
                    "above READ COMMITTED the transaction's snapshot is older than the lock, and "
                    "what it protects would be read stale: begin at READ COMMITTED, or set "
                    "any_isolation"};
    }
    return answer == "ours";
}

}  // namespace

bool try_transaction_lock(sql::connection& db, const advisory_key& key, advisory_mode mode,
                          const transaction_lock_options& options) {
    const auto server = key_in(db, key, options);
    require_transaction(db, options);
    return attempt(db, server, mode, options);
}

bool transaction_lock(sql::connection& db, const advisory_key& key, milliseconds wait,
                      advisory_mode mode, const transaction_lock_options& options) {
    const auto start = steady_clock::now();
    const auto server = key_in(db, key, options);
    require_transaction(db, options);
    const std::string call = detail::call_of("pg_advisory_xact_lock", server, mode);
    for (;;) {
        if (attempt(db, server, mode, options)) return true;
        // Compares the time elapsed, since `wait` may be as long as its type allows.
        const auto passed = std::chrono::floor<milliseconds>(steady_clock::now() - start);
        if (passed >= wait) return false;
        const auto now = std::min(slice, wait - passed);
        db.query(detail::wait_text(now, call), soon(options) + now);
    }
}

}  // namespace rowlock
