#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "sql/statements.hpp"
#include <rowlock/ids.hpp>

/// The implementations of lease_protocol, and what they share. For them alone: others call
/// make_lease_protocol().
namespace rowlock::protocol {

[[nodiscard]] std::unique_ptr<const lease_protocol> make_postgresql_leases(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const lease_protocol> make_mysql_leases(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const lease_protocol> make_sqlite_leases(
    const sql::statement_set& statements);

/// The answer to an attempt that granted nothing, by what it saw.
[[nodiscard]] attempt judge(const grant_request& request, const lease_probe& seen);

}  // namespace rowlock::protocol
