#include "transaction/advisory/advisory_protocol.hpp"

#include "base/ascii.hpp"
#include "transaction/advisory/advisory_dialects.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {

std::string server_key::identity() const {
    if (text.empty()) return (pair ? "pair " : "number ") + std::to_string(bits);
    // MySQL compares names case-insensitively; all our keys there are ASCII.
    return ascii::lower(text);
}

void require_session(sql::connection& db, const server_session& session, std::int64_t process) {
    if (process == session.process) return;
    db.discard();
    throw error{errc::unsupported,
                "statements go to changing server processes, as behind a transaction pooler: "
                "connect to the database directly, or use session pooling"};
}

void require_writable(bool writable) {
    if (writable) return;
    throw error{errc::read_only,
                "this server is a standby or read-only and would grant locks that its primary "
                "knows nothing of: connect to the primary"};
}

bool read_grant(sql::connection& db, const server_session& session, const sql::result& row) {
    require_session(db, session, row.integer(0, 1));
    const auto answer = row.maybe_integer(0, 0);
    if (!answer) {
        throw error{errc::timed_out,
                    "the attempt was interrupted on the server (KILL QUERY, or no memory): nothing "
                    "was locked, repeat it"};
    }
    require_writable(*answer >= 0);
    return *answer == 1;
}

bool read_unlock(sql::connection& db, const server_session& session, const sql::result& row) {
    require_session(db, session, row.integer(0, 1));
    return row.maybe_integer(0, 0) == 1;
}

std::unique_ptr<const advisory_protocol> make_advisory_protocol(sql::dialect speaks) {
    switch (speaks) {
        case sql::dialect::postgresql:
            return make_postgresql_advisory();
        case sql::dialect::mysql:
            return make_mysql_advisory();
        case sql::dialect::sqlite:
            break;
    }
    throw error{errc::unsupported,
                "SQLite has no advisory locks: use a lease (rowlock::client) instead"};
}

}  // namespace rowlock::detail
