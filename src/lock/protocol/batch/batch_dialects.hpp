#pragma once

#include "lock/protocol/batch/batch_protocol.hpp"
#include "sql/run_statement.hpp"
#include "sql/statements.hpp"
#include <rowlock/ids.hpp>

/// What the implementations of batch_protocol share. For them alone: others call
/// make_batch_protocol().
namespace rowlock::protocol {

[[nodiscard]] std::unique_ptr<const batch_protocol> make_postgresql_batches(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const batch_protocol> make_mysql_batches(
    const sql::statement_set& statements, const lease_protocol& leases);
[[nodiscard]] std::unique_ptr<const batch_protocol> make_sqlite_batches(
    const sql::statement_set& statements, const lease_protocol& leases);

/// The operation that is nearly the same on PostgreSQL, MariaDB and SQLite.
class common_batch_protocol : public batch_protocol {
public:
    [[nodiscard]] bool reacquire(sql::connection& db, const grant_request& request,
                                 std::int64_t known, sql::deadline until) const override;

protected:
    explicit common_batch_protocol(const sql::statement_set& statements)
        : reacquire_{statements("reacquire")} {}

    /// @param more the last parameters
    template <typename... More>
    [[nodiscard]] bool reacquire_by(sql::connection& db, const grant_request& request,
                                    std::int64_t known, sql::deadline until,
                                    const More&... more) const {
        return run(db, reacquire_, until, request.name, request.session, request.grant_id,
                   sql::text_or_null(request.thread), sql::text_or_null(request.note),
                   request.deadline_us, known, more...)
                   .affected() > 0;
    }

private:
    const sql::statement reacquire_;
};

/// MySQL and SQLite: finds out by probes what is held, and needs no token to take a lease again.
class probing_batch_protocol : public common_batch_protocol {
public:
    [[nodiscard]] std::vector<std::optional<std::int64_t>> reacquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        std::span<const std::int64_t> known, sql::deadline until) const override;
    [[nodiscard]] std::vector<bool> held(sql::connection& db,
                                         std::span<const std::string_view> names,
                                         sql::deadline until) const override;

    /// Probes whether each of these names can be taken. Names without a row are `present = false`.
    /// Reads only, locks nothing. On MySQL one round trip for each 16 names, two if one has no row.
    /// @param names all different
    [[nodiscard]] virtual std::vector<lease_probe> probe_all(
        sql::connection& db, session_id session, std::span<const std::string_view> names,
        sql::deadline until) const = 0;

protected:
    probing_batch_protocol(const sql::statement_set& statements, const lease_protocol& leases)
        : common_batch_protocol{statements}, leases_{leases} {}

    const lease_protocol& leases_;
};

}  // namespace rowlock::protocol
