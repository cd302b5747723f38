#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "sql/statements.hpp"
#include <rowlock/periodic_run.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Records of periodic work: which period was finished last, and until when no run may begin. Like
/// lease_protocol: no state, no retries; the clock is the database's.
namespace rowlock::protocol {

struct run_request {
    std::string_view name;
    session_id session{};  ///< which holds the lease of that name, with this token
    std::int64_t token = 0;
    std::string_view period{};                                  ///< empty: none
    std::optional<std::chrono::microseconds> skip_if_within{};  ///< a run ended so recently
    std::chrono::microseconds at_least{0};    ///< from the beginning, no other run begins
    std::chrono::microseconds lock_delay{0};  ///< no run begins after one that did not finish
};

struct run_answer {
    enum class outcome : unsigned char {
        begun,
        done,     ///< this period, or a later one, was finished
        recent,   ///< a run ended within skip_if_within
        resting,  ///< no run may begin for `rest`
        not_held  ///< the lease is not this grant any more
    };
    outcome what = outcome::not_held;
    std::chrono::microseconds rest{0};
};

/// Thread-safe.
class run_protocol {
public:
    explicit run_protocol(const sql::statement_set& statements);

    /// Records that a run begins, if nothing speaks against it. One transaction, which locks the
    /// lease's row first: no other client becomes its holder before the record is there. Five or
    /// six round trips. Repeatable: a run that has begun under this token begins.
    [[nodiscard]] run_answer begin(sql::connection& db, const run_request& wanted,
                                   sql::deadline until) const;
    /// Records that the run which began under this token has finished. Returns false if its lease
    /// is another grant by then, or free. One round trip; repeatable.
    [[nodiscard]] bool finish(sql::connection& db, std::string_view name, session_id session,
                              std::int64_t token, std::string_view period,
                              sql::deadline until) const;

    /// What is known of the runs of a name. One round trip.
    [[nodiscard]] std::optional<run_info> inspect(sql::connection& db, std::string_view name,
                                                  sql::deadline until) const;

private:
    const sql::statement lock_lease_, record_, begin_, defer_, finish_, show_;
};

}  // namespace rowlock::protocol
