#pragma once

#include "sql/statements.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::protocol {

/// What a database knows of the quorum that it is a member of.
struct quorum_membership {
    std::string quorum{};  ///< the id, the same in all members
    std::int64_t epoch = 0;
    std::vector<std::string> members{};  ///< the identities of their servers, in their order
    std::string ready_for{};             ///< the server that may vote here; empty: none
    std::int64_t floor = 0;              ///< no token is given below
    std::chrono::microseconds longest_ttl{0};
};

/// The quorum that a client counts for, as far as it knows.
struct known_quorum {
    std::string id{};
    std::int64_t epoch = 0;
};

struct quorum_lease_row {
    std::string name{};
    std::int64_t token = 0;  ///< of the lease
};

/// The statements of one member. Each call but the changes of the membership is one round trip, or
/// two on MySQL and MariaDB. SQLite has none of them: a file that is put back has no identity that
/// would show it (errc::unsupported). Thread-safe.
class quorum_protocol {
public:
    explicit quorum_protocol(const sql::statement_set& statements);

    /// A grant of the lease of the same name.
    struct grant_key {
        std::string_view name{};
        session_id session{};
        rowlock::grant_id grant_id{};
    };

    /// Raises the token that the member knows: to at least `token`, or by one. Returns the token it
    /// knows now; nullopt if that lease is not that grant, the epoch is another one, or the session
    /// is not one of the server that may vote. May be repeated after a lost reply.
    [[nodiscard]] std::optional<std::int64_t> raise(sql::connection& db, const grant_key& grant,
                                                    const known_quorum& under,
                                                    std::optional<std::int64_t> token,
                                                    sql::deadline until) const;
    /// The same to at least `token`, without a grant.
    void seal(sql::connection& db, std::string_view name, std::int64_t token,
              std::string_view quorum, sql::deadline until) const;
    [[nodiscard]] std::optional<quorum_membership> membership(sql::connection& db,
                                                              sql::deadline until) const;

    /// Makes the database a member. Changes nothing in a member of another quorum or a later epoch.
    void found(sql::connection& db, const quorum_membership& as, sql::deadline until) const;
    /// Refuses the epochs before. Returns false if the member is of another quorum, or knows that
    /// epoch already.
    bool raise_epoch(sql::connection& db, const quorum_membership& to, sql::deadline until) const;
    /// The leases that may be part of quorum locks.
    [[nodiscard]] std::vector<quorum_lease_row> leases(sql::connection& db,
                                                       sql::deadline until) const;
    [[nodiscard]] std::int64_t greatest_token(sql::connection& db, sql::deadline until) const;

private:
    const sql::statement raise_, token_, seal_, read_, found_, raise_epoch_, leases_, greatest_;
};

}  // namespace rowlock::protocol
