#include "quorum/quorum_protocol.hpp"

#include "sql/run_statement.hpp"

namespace rowlock::protocol {
namespace {

constexpr char separator = '\n';

std::string joined(const std::vector<std::string>& members) {
    std::string text;
    for (const auto& each : members) {
        if (!text.empty()) text.push_back(separator);
        text.append(each);
    }
    return text;
}

std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> members;
    while (!text.empty()) {
        const auto end = text.find(separator);
        members.emplace_back(text.substr(0, end));
        text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    }
    return members;
}

}  // namespace

quorum_protocol::quorum_protocol(const sql::statement_set& statements)
    : raise_{statements("raise_quorum_token")},
      token_{statements("quorum_token")},
      seal_{statements("seal_quorum_token")},
      read_{statements("read_member")},
      found_{statements("found_member")},
      raise_epoch_{statements("raise_quorum_epoch")},
      leases_{statements("quorum_leases")},
      greatest_{statements("greatest_quorum_token")} {}

std::optional<std::int64_t> quorum_protocol::raise(sql::connection& db, const grant_key& grant,
                                                   const known_quorum& under,
                                                   std::optional<std::int64_t> token,
                                                   sql::deadline until) const {
    const auto done = run(db, raise_, until, grant.name, grant.session, grant.grant_id, under.id,
                          under.epoch, token);
    if (!done.empty()) return done.integer(0, 0);
    if (done.affected() == 0) return std::nullopt;
    // No statement of MySQL returns what it wrote. What is read now is no less.
    return run(db, token_, until, grant.name).integer(0, 0);
}

void quorum_protocol::seal(sql::connection& db, std::string_view name, std::int64_t token,
                           std::string_view quorum, sql::deadline until) const {
    run(db, seal_, until, name, token, quorum);
}

std::optional<quorum_membership> quorum_protocol::membership(sql::connection& db,
                                                             sql::deadline until) const {
    const auto row = run(db, read_, until);
    if (row.empty()) return std::nullopt;
    return quorum_membership{.quorum = std::string{row.text(0, 0)},
                             .epoch = row.integer(0, 1),
                             .members = split(row.text(0, 2)),
                             .ready_for = std::string{row.text(0, 3)},
                             .floor = row.integer(0, 4),
                             .longest_ttl = std::chrono::microseconds{row.integer(0, 5)}};
}

void quorum_protocol::found(sql::connection& db, const quorum_membership& as,
                            sql::deadline until) const {
    run(db, found_, until, as.quorum, as.epoch, joined(as.members), as.ready_for, as.floor,
        as.longest_ttl.count());
}

bool quorum_protocol::raise_epoch(sql::connection& db, const quorum_membership& to,
                                  sql::deadline until) const {
    return run(db, raise_epoch_, until, to.quorum, to.epoch, joined(to.members)).affected() == 1;
}

std::vector<quorum_lease_row> quorum_protocol::leases(sql::connection& db,
                                                      sql::deadline until) const {
    const auto rows = run(db, leases_, until);
    std::vector<quorum_lease_row> all;
    all.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        all.push_back({std::string{rows.text(row, 0)}, rows.integer(row, 1)});
    }
    return all;
}

std::int64_t quorum_protocol::greatest_token(sql::connection& db, sql::deadline until) const {
    const auto row = run(db, greatest_, until);
    return row.empty() ? 0 : row.integer(0, 0);
}

}  // namespace rowlock::protocol
