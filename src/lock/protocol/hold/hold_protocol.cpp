#include "lock/protocol/hold/hold_protocol.hpp"

namespace rowlock::protocol {

attempt hold_protocol::acquire(sql::connection& db, const grant_request& request,
                               sql::deadline until) const {
    return request.permits.is_part() ? counted_.acquire(db, request, until)
                                     : leases_.acquire(db, request, until);
}

std::optional<std::int64_t> hold_protocol::find_grant(hold_kind kind, sql::connection& db,
                                                      std::string_view name, session_id session,
                                                      grant_id grant_id,
                                                      sql::deadline until) const {
    return kind == hold_kind::permits ? counted_.find_grant(db, name, session, grant_id, until)
                                      : leases_.find_grant(db, name, session, grant_id, until);
}

std::optional<queue_grant> hold_protocol::served(hold_kind kind, sql::connection& db,
                                                 std::string_view name, session_id session,
                                                 grant_id grant_id, sql::deadline until) const {
    return kind == hold_kind::permits ? counted_.served(db, name, session, grant_id, until)
                                      : queues_.served(db, name, session, grant_id, until);
}

release_outcome hold_protocol::release(hold_kind kind, sql::connection& db, std::string_view name,
                                       session_id session, grant_id grant_id, release_hint hint,
                                       sql::deadline until) const {
    if (kind == hold_kind::lease) {
        return queues_.release(db, name, session, grant_id, hint.contended, until);
    }
    return {.freed = counted_.release(db, name, session, grant_id, hint.permits, until),
            .next = {},
            .part = true};
}

}  // namespace rowlock::protocol
