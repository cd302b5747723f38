#include "lock/protocol/election/election_protocol.hpp"

#include "lock/protocol/queue/queue_dialects.hpp"
#include "sql/run_statement.hpp"

namespace rowlock::protocol {

election_protocol::election_protocol(const sql::statement_set& statements)
    : candidate_{statements("candidate")},
      proclaim_{statements("proclaim")},
      choose_heir_{statements("choose_heir")} {}

std::optional<candidate> election_protocol::next(sql::connection& db, std::string_view name,
                                                 std::optional<session_id> of,
                                                 sql::deadline until) const {
    const auto row = run(db, candidate_, until, name, of);
    if (row.empty()) return std::nullopt;
    return candidate{.entry = {.ticket = row.integer<ticket_no>(0, 0),
                               .session = row.integer<session_id>(0, 1),
                               .grant_id = row.integer<grant_id>(0, 2),
                               .thread = std::string{row.text(0, 3)},
                               .note = std::string{row.text(0, 4)},
                               .deadline_us = row.maybe_integer(0, 5),
                               .to = read_address(row, 0, 6),
                               .token = row.integer(0, 9)},
                     .priority = row.integer(0, 10),
                     .heir = row.maybe_integer<grant_id>(0, 11).value_or(grant_id{})};
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
