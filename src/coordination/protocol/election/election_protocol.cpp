#include "coordination/protocol/election/election_protocol.hpp"

#include "coordination/protocol/queue/queue_dialects.hpp"
#include "sql/run_statement.hpp"

namespace rowlock::protocol {

election_protocol::election_protocol(const sql::statement_set& statements)
    : candidates_{statements("candidates")},
      proclaim_{statements("proclaim")},
      choose_heir_{statements("choose_heir")} {}

std::vector<candidate> election_protocol::candidates(sql::connection& db, std::string_view name,
                                                     sql::deadline until) const {
    const auto rows = run(db, candidates_, until, name);
    const auto text = [&](std::size_t row, std::size_t column) {
        return rows.is_null(row, column) ? std::string{} : std::string{rows.text(row, column)};
    };
    std::vector<candidate> all;
    all.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        all.push_back({.entry = {.ticket = rows.integer<ticket_no>(row, 0),
                                 .session = rows.integer<session_id>(row, 1),
                                 .grant_id = rows.integer<grant_id>(row, 2),
                                 .thread = text(row, 3),
                                 .note = text(row, 4),
                                 .deadline_us = rows.maybe_integer(row, 5),
                                 .to = read_address(rows, row, 6),
                                 .token = rows.integer(row, 9)},
                       .priority = rows.integer(row, 10),
                       .owner = text(row, 11),
                       .host = text(row, 12),
                       .program = text(row, 13),
                       .pid = rows.integer(row, 14),
                       .waited = std::chrono::microseconds{rows.integer(row, 15)},
                       .heir = rows.maybe_integer<grant_id>(row, 16).value_or(grant_id{})});
    }
    return all;
}

bool election_protocol::proclaim(sql::connection& db, std::string_view name, session_id session,
                                 grant_id grant_id, std::string_view note,
                                 sql::deadline until) const {
    return run(db, proclaim_, until, name, session, grant_id, sql::text_or_null(note)).affected() >
           0;
}

bool election_protocol::choose_heir(sql::connection& db, std::string_view name, session_id session,
                                    grant_id grant_id, rowlock::grant_id heir,
                                    sql::deadline until) const {
    return run(db, choose_heir_, until, name, session, grant_id, heir).affected() > 0;
}

}  // namespace rowlock::protocol
