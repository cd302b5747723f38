#include "view/overview.hpp"

#include "lock/protocol/queue/wait_graph.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/damaged.hpp"
#include <rowlock/error.hpp>
#include <rowlock/shared_mutex.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace rowlock::view {
namespace {

using key = std::pair<kind, std::string>;

time_point time_at(const sql::result& rows, std::size_t row, std::size_t column) {
    return time_point{microseconds{sql::shown_integer(rows, row, column)}};
}

std::string text_at(const sql::result& rows, std::size_t row, std::size_t column) {
    return std::string{rows.text(row, column)};
}

/// As the statements number those that have permits.
kind kind_at(const sql::result& rows, std::size_t row, std::size_t column) {
    return sql::shown_integer(rows, row, column) == 0 ? kind::semaphore : kind::shared_mutex;
}

void set_permits(party& of, kind which, std::int64_t permits) {
    of.permits = permits;
    if (which != kind::shared_mutex) return;
    // What an upgrade wants stands for the exclusive mode.
    of.mode = rowlock::to_string(protocol::mode_for(permits).value_or(lock_mode::exclusive));
}

class reader {
public:
    reader(sql::connection& db, const sql::statement_set& statements, std::int64_t most,
           sql::deadline until)
        : db_{db}, statements_{statements}, most_{most}, until_{until} {}

    snapshot read() {
        found_.at = time_at(db_.execute(statements_("overview_now"), {}, until_), 0, 0);
        read_holds("overview_leases");
        read_queues();
        try {
            read_semaphores();
            read_holds("overview_permits");
            if (waits_ > 0 && waits_ <= most_entries) read_cycles();
            found_.searched = waits_ <= most_entries;
        } catch (const error& denied) {
            if (denied.kind() != errc::access_denied) throw;
            found_.only_leases = true;
            std::erase_if(locks_, [](const auto& each) { return each.second.of != kind::lease; });
        }
        for (auto& [at, each] : locks_) found_.locks.push_back(std::move(each));
        return std::move(found_);
    }

private:
    sql::result rows_of(const char* statement) {
        const std::array<sql::value, 1> most{sql::value{most_}};
        auto rows = db_.execute(statements_(statement), most, until_);
        found_.more = found_.more || std::cmp_equal(rows.rows(), most_);
        return rows;
    }

    lock& lock_of(kind of, std::string name) {
        auto& one = locks_[{of, name}];
        one.of = of;
        one.name = std::move(name);
        return one;
    }

    template <typename Party>
    static Party party_at(const sql::result& rows, std::size_t row) {
        Party one;
        one.session = session_id{sql::shown_integer(rows, row, 1)};
        one.grant_id = grant_id{sql::shown_integer(rows, row, 2)};
        one.owner = text_at(rows, row, 3);
        one.host = text_at(rows, row, 4);
        one.program = text_at(rows, row, 5);
        one.pid = sql::shown_integer(rows, row, 6);
        one.thread = text_at(rows, row, 7);
        one.note = text_at(rows, row, 8);
        one.since = time_at(rows, row, 9);
        return one;
    }

    void read_holds(const char* statement) {
        const auto rows = rows_of(statement);
        const bool counted = rows.columns() > columns_of_lease;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const kind of = counted ? kind_at(rows, row, 15) : kind::lease;
            auto one = party_at<holder>(rows, row);
            if (!rows.is_null(row, 10)) one.deadline = time_at(rows, row, 10);
            one.expired = sql::shown_integer(rows, row, 11) != 0;
            if (!rows.is_null(row, 12)) one.asked_by = text_at(rows, row, 12);
            one.reason = text_at(rows, row, 13);
            one.token = fencing_token{sql::shown_integer(rows, row, 14)};
            if (counted) set_permits(one, of, sql::shown_integer(rows, row, 16));
            lock_of(of, text_at(rows, row, 0)).holds.push_back(std::move(one));
        }
    }

    void read_queues() {
        const auto rows = rows_of("overview_queues");
        waits_ = rows.rows();
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const bool counted = !rows.is_null(row, 12);
            const kind of = counted ? kind_at(rows, row, 12) : kind::lease;
            auto one = party_at<entry>(rows, row);
            one.priority = sql::shown_integer(rows, row, 10);
            one.locks = sql::shown_integer(rows, row, 11);
            if (counted) set_permits(one, of, sql::shown_integer(rows, row, 13));
            lock_of(of, text_at(rows, row, 0)).queue.push_back(std::move(one));
        }
    }

    void read_semaphores() {
        const auto rows = rows_of("overview_semaphores");
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            auto& one = lock_of(kind::semaphore, text_at(rows, row, 0));
            one.capacity = sql::shown_integer(rows, row, 1);
            one.used = sql::shown_integer(rows, row, 2);
            one.expired = std::max<std::int64_t>(sql::shown_integer(rows, row, 3) - one.used, 0);
        }
    }

    void read_cycles() {
        const protocol::wait_graph graph{db_.execute(statements_("overview_waits"), {}, until_)};
        for (auto& each : graph.cycles(std::nullopt, effort)) {
            found_.cycles.push_back({std::move(each.description), std::move(each.entries)});
        }
    }

    /// Beyond these nothing is looked for: it would take longer than all the rest.
    static constexpr std::size_t most_entries = 10'000;
    static constexpr std::size_t effort = 1'000'000;

    static constexpr std::size_t columns_of_lease = 15;

    sql::connection& db_;
    const sql::statement_set& statements_;
    const std::int64_t most_;
    const sql::deadline until_;
    snapshot found_{};
    std::map<key, lock> locks_{};
    std::size_t waits_ = 0;
};

}  // namespace

const char* to_string(kind of) noexcept {
    switch (of) {
        case kind::lease:
            return "lease";
        case kind::semaphore:
            return "semaphore";
        case kind::shared_mutex:
            break;
    }
    return "shared_mutex";
}

snapshot read(sql::connection& db, const sql::statement_set& statements, std::int64_t most,
              sql::deadline until) {
    return reader{db, statements, most, until}.read();
}

sessions_seen read_sessions(sql::connection& db, const sql::statement_set& statements,
                            std::int64_t most, sql::deadline until) {
    sessions_seen found{.at = time_at(db.execute(statements("overview_now"), {}, until), 0, 0)};
    const std::array<sql::value, 1> limit{sql::value{most}};
    const auto rows = db.execute(statements("overview_sessions"), limit, until);
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found.sessions.push_back({.id = session_id{sql::shown_integer(rows, row, 0)},
                                  .owner = text_at(rows, row, 1),
                                  .host = text_at(rows, row, 2),
                                  .program = text_at(rows, row, 3),
                                  .pid = sql::shown_integer(rows, row, 4),
                                  .opened = time_at(rows, row, 5),
                                  .expires = time_at(rows, row, 7),
                                  .ttl = microseconds{sql::shown_integer(rows, row, 6)},
                                  .heartbeats = sql::shown_integer(rows, row, 8)});
    }
    return found;
}

expired_permits read_expired_permits(sql::connection& db, const sql::statement_set& statements,
                                     std::int64_t most, sql::deadline until) {
    const std::array<sql::value, 1> limit{sql::value{most}};
    const auto rows = db.execute(statements("overview_expired_permits"), limit, until);
    expired_permits found;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found[{kind_at(rows, row, 1), text_at(rows, row, 0)}] = rows.integer(row, 2);
    }
    return found;
}

}  // namespace rowlock::view
