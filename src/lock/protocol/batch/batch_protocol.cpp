#include "lock/protocol/batch/batch_protocol.hpp"

#include "lock/protocol/batch/batch_dialects.hpp"

#include <algorithm>

namespace rowlock::protocol {

bool common_batch_protocol::reacquire(sql::connection& db, const grant_request& request,
                                      std::int64_t known, sql::deadline until) const {
    return reacquire_by(db, request, known, until);
}

std::vector<std::optional<std::int64_t>> probing_batch_protocol::reacquire_all(
    sql::connection& db, std::span<const grant_request> requests,
    std::span<const std::int64_t> /*known*/, sql::deadline until) const {
    return acquire_all(db, requests, until);
}

std::vector<bool> probing_batch_protocol::held(sql::connection& db,
                                               std::span<const std::string_view> names,
                                               sql::deadline until) const {
    constexpr session_id no_session{};
    std::vector<lease_probe> probes;
    if (names.size() == 1) {
        probes.push_back(leases_.probe(db, names[0], no_session, until));
    } else {
        probes = probe_all(db, no_session, names, until);
    }
    std::vector<bool> found(names.size());
    std::transform(probes.begin(), probes.end(), found.begin(), [](const lease_probe& seen) {
        // Counted holders may have ended: an attempt finds out. Of a semaphore, it says so.
        return seen.present && !seen.free && !seen.holder_expired && !seen.counted &&
               !seen.semaphore;
    });
    return found;
}

std::unique_ptr<const batch_protocol> make_batch_protocol(const sql::statement_set& statements,
                                                          const lease_protocol& leases) {
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_batches(statements);
        case sql::dialect::mysql:
            return make_mysql_batches(statements, leases);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_batches(statements, leases);
}

}  // namespace rowlock::protocol
