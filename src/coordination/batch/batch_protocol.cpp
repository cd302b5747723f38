#include "coordination/batch/batch_protocol.hpp"

#include "sql/run_statement.hpp"

#include <algorithm>

namespace rowlock::strategy {
namespace {

/// Returns the implementation for this connection's dialect.
template <typename Call>
Call chosen(const sql::connection& db, Call on_postgresql, Call on_mysql, Call on_sqlite) {
    switch (db.speaks()) {
        case sql::dialect::postgresql:
            return on_postgresql;
        case sql::dialect::mysql:
            return on_mysql;
        case sql::dialect::sqlite:
            break;
    }
    return on_sqlite;
}

}  // namespace

bool run_reacquire(sql::connection& db, const sql::statements& sql, const grant_request& request,
                   std::int64_t known, sql::deadline until) {
    return run(db, sql.reacquire, until, request.name, request.session, request.grant_id,
               text_or_null(request.thread), text_or_null(request.note), request.deadline_us, known)
               .affected() > 0;
}

bool batch_protocol::reacquire(sql::connection& db, const grant_request& request,
                               std::int64_t known, sql::deadline until) const {
    const auto call = db.speaks() == sql::dialect::mysql ? on_mysql::reacquire : run_reacquire;
    return call(db, leases_.sql(), request, known, until);
}

std::vector<std::optional<std::int64_t>> batch_protocol::acquire_all(
    sql::connection& db, std::span<const grant_request> requests, sql::deadline until) const {
    return chosen(db, on_postgresql::acquire_all, on_mysql::acquire_all, on_sqlite::acquire_all)(
        db, leases_.sql(), requests, until);
}

std::vector<std::optional<std::int64_t>> batch_protocol::reacquire_all(
    sql::connection& db, std::span<const grant_request> requests,
    std::span<const std::int64_t> known, sql::deadline until) const {
    if (db.speaks() != sql::dialect::postgresql) return acquire_all(db, requests, until);
    return on_postgresql::reacquire_all(db, leases_.sql(), requests, known, until);
}

std::vector<bool> batch_protocol::release_all(sql::connection& db, std::int64_t session,
                                              std::span<const granted_name> grants,
                                              sql::deadline until) const {
    return chosen(db, on_postgresql::release_all, on_mysql::release_all, on_sqlite::release_all)(
        db, leases_.sql(), session, grants, until);
}

std::vector<bool> batch_protocol::held(sql::connection& db, std::span<const std::string_view> names,
                                       sql::deadline until) const {
    if (db.speaks() == sql::dialect::postgresql) {
        return on_postgresql::held(db, leases_.sql(), names, until);
    }
    constexpr std::int64_t nobody = 0;
    std::vector<look> looks;
    if (names.size() == 1) {
        looks.push_back(leases_.probe(db, names[0], nobody, until));
    } else {
        looks = (db.speaks() == sql::dialect::mysql ? on_mysql::probe_all : on_sqlite::probe_all)(
            db, leases_.sql(), nobody, names, until);
    }
    std::vector<bool> found(names.size());
    std::transform(looks.begin(), looks.end(), found.begin(), [](const look& seen) {
        return seen.present && !seen.free && !seen.holder_expired;
    });
    return found;
}

}  // namespace rowlock::strategy
