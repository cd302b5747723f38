#include "lock/protocol/lease/lease_protocol.hpp"

#include "lock/protocol/lease/lease_dialects.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

namespace rowlock::protocol {

lease_probe read_probe(const sql::result& row) {
    lease_probe seen = read_lease(row, 0);
    seen.session_live = row.integer(0, 1) != 0;
    seen.present = row.integer(0, 2) != 0;
    return seen;
}

lease_probe read_lease(const sql::result& rows, std::size_t row) {
    lease_probe seen;
    seen.present = true;
    seen.token = rows.maybe_integer(row, 3).value_or(0);
    seen.free = rows.integer(row, 4) != 0;
    seen.grant_id = rows.maybe_integer<grant_id>(row, 5).value_or(grant_id{});
    seen.session = rows.maybe_integer<session_id>(row, 6).value_or(session_id{});
    seen.holder_expired = rows.integer(row, 7) != 0;
    seen.remaining = std::chrono::microseconds{rows.maybe_integer(row, 8).value_or(0)};
    seen.waited = rows.integer(row, 9) != 0;
    seen.promised = rows.integer(row, 9) == 2;
    seen.retained = !seen.free && rows.maybe_integer(row, 10).value_or(0) != 0;
    seen.counted = rows.integer(row, 11) == 1;
    seen.semaphore = rows.integer(row, 11) == 2;
    return seen;
}

error leads_to_standby() {
    return {errc::read_only,
            "the connection leads to a standby: name the primary in the URL, or all hosts (the "
            "first that accepts writes is taken)"};
}

bool another_inserts(const error& failure) noexcept {
    return failure.kind() == errc::unique_violation || failure.kind() == errc::deadlock;
}

void restore_row(sql::connection& db, const sql::statement& restore, std::string_view name,
                 sql::deadline until) {
    try {
        sql::run(db, restore, until, name);
    } catch (const error& failure) {
        if (!another_inserts(failure)) throw;
    }
}

error name_of_semaphore(std::string_view name) {
    return {
        errc::invalid_options,
        "\"" + std::string{name} +
            "\" is the name of a semaphore: acquire permits of it, or choose another name for the "
            "lock"};
}

error no_token_floor() {
    return {errc::schema_outdated,
            "the token floor's row is missing, and nothing can be granted without it: "
            "docs/migrations.md, \"Going back\", says how to put it back"};
}

std::unique_ptr<const lease_protocol> make_lease_protocol(const sql::statement_set& statements) {
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_leases(statements);
        case sql::dialect::mysql:
            return make_mysql_leases(statements);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_leases(statements);
}

}  // namespace rowlock::protocol
