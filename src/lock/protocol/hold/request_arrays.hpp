#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "sql/array_text.hpp"

#include <span>

namespace rowlock::protocol {

/// What all grants have, of several requests, as arrays for PostgreSQL.
struct request_arrays {
    explicit request_arrays(std::span<const grant_request> requests) {
        for (const auto& each : requests) {
            ids.add(each.grant_id);
            threads.add_or_null(each.thread);
            notes.add_or_null(each.note);
            deadlines.add(each.deadline_us);
        }
    }
    sql::array_text ids{}, threads{}, notes{}, deadlines{};
};

}  // namespace rowlock::protocol
