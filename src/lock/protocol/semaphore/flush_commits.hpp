#pragma once

#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <string>

/// PostgreSQL: grants of permits commit asynchronously, and a flush makes them durable.
namespace rowlock::protocol {

/// What the failure of a flush says: the statement before it has taken effect.
[[nodiscard]] inline error unflushed(const error& why) {
    return {errc::outcome_unknown,
            std::string{"not known to be committed and on disk: "} + why.what()};
}

/// Makes what was committed before durable. One round trip.
/// @param how the statement flush_commits
inline void flush_commits(sql::connection& db, const sql::statement& how, sql::deadline until) {
    try {
        sql::run(db, how, until);
    } catch (const error& failure) {
        throw unflushed(failure);
    }
}

}  // namespace rowlock::protocol
