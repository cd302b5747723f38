// How the cost of an operation grows with the tables (T20), on PostgreSQL: heartbeats beside
// sessions, pairs of acquire and release beside names, and hand-overs beside waiters. By the
// statements that a client sends, on one connection: ten thousand clients would measure the
// machine.
#include "common/measure.hpp"
#include "common/postgresql.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "sql/statements.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
namespace protocol = rowlock::protocol;

constexpr auto long_enough = 10s;

rowlock::sql::deadline soon() {
    return std::chrono::steady_clock::now() + 60s;
}

/// Tables, the statements of a client, and a connection to fill them.
class town {
public:
    explicit town(const std::string& url)
        : where_{url},
          filler_{url},
          leases_{protocol::make_lease_protocol(statements())},
          queues_{protocol::make_queue_protocol(statements(), *leases_)},
          db_{where_.source().connect(soon())} {
        leases_->sessions().set_up(*db_, long_enough, soon());
    }

    /// Sessions with the ids first … last.
    void open_sessions(int first, int last) {
        filler_.query(fmt::format(
            "insert into {0}session (id, owner, host, pid, program, ttl_us, expires_at, opened_at, "
            "server_identity) select i, 'owner ' || i, 'host', i, 'program', 30000000, "
            "clock_timestamp() + '1 day', clock_timestamp(), "
            "(select server_identity from {0}token_floor) from generate_series({1}, {2}) i",
            where_.prefix(), first, last));
    }
    void fill(const std::string& text) {
        filler_.query(fmt::format(fmt::runtime(text), where_.prefix()));
    }
    void settle() {
        for (const char* const each : {"session", "lock", "ticket"}) {
            filler_.query(fmt::format("vacuum analyze {}{}", where_.prefix(), each));
        }
        filler_.query("checkpoint");
    }

    [[nodiscard]] const protocol::lease_protocol& leases() const { return *leases_; }
    [[nodiscard]] const protocol::queue_protocol& queues() const { return *queues_; }
    [[nodiscard]] rowlock::sql::connection& db() const { return *db_; }

private:
    [[nodiscard]] rowlock::sql::statement_set statements() const {
        return rowlock::sql::statement_set{rowlock::sql::dialect::postgresql,
                                           {.tables = where_.source().tables()}};
    }

    tables where_;
    postgresql_session filler_;
    std::unique_ptr<const protocol::lease_protocol> leases_;
    std::unique_ptr<const protocol::queue_protocol> queues_;
    std::unique_ptr<rowlock::sql::connection> db_;
};

struct size_cost {
    int size;
    double p50_us;
    cpu_cost cpu;
};

/// One operation after the other, after a tenth of them as a warm-up.
size_cost cost_of(int size, int count, const std::function<void(int)>& operation) {
    for (int i = 0; i < count / 10; ++i) operation(i);
    std::vector<double> times;
    const cpu_meter cpu;
    for (int i = count / 10; i < count / 10 + count; ++i) {
        times.push_back(duration_us([&] { operation(i); }));
    }
    return {size, median(times), cpu.for_each_of(count)};
}

/// One line of the table for each size, a line of the plot, and a row for the largest by the
/// smallest.
void report(findings& found, const std::string& what, const std::string& id,
            const std::vector<size_cost>& all, double target) {
    std::vector<std::pair<double, double>> points;
    for (const auto& each : all) {
        found.note(fmt::format("{:<34} {:>9}: p50 {:>7.1f} µs, processor {:>6.1f} + {:>6.1f} µs",
                               what, each.size, each.p50_us, each.cpu.client_us,
                               each.cpu.server_us));
        points.emplace_back(each.size, each.p50_us);
    }
    found.add_line("scale", what, points);
    found.add({.id = id,
               .ours = all.back().p50_us,
               .theirs = all.front().p50_us,
               .unit = "µs",
               .side = wanted::at_most,
               .target = target,
               .our_cpu = all.back().cpu,
               .their_cpu = all.front().cpu});
}

/// Any order that is not that of the rows.
int scattered(int i, int size) {
    return static_cast<int>(static_cast<std::int64_t>(i) * 7919 % size);
}

void measure_heartbeats(findings& found, const std::string& url, int largest, int count) {
    const auto at = std::make_unique<town>(url);
    std::vector<size_cost> seen;
    for (int size = largest / 1000, have = 0; size <= largest; size *= 10) {
        at->open_sessions(have + 1, size);
        have = size;
        at->settle();
        seen.push_back(cost_of(size, count, [&](int i) {
            const rowlock::session_id session{scattered(i, size) + 1};
            if (!at->leases().sessions().heartbeat(at->db(), session, 0, soon())) {
                throw std::runtime_error{"a heartbeat found no session"};
            }
        }));
    }
    report(found, "heartbeat, by sessions", "T20/heartbeat", seen, 2);
}

void measure_names(findings& found, const std::string& url, int largest, int count) {
    const auto at = std::make_unique<town>(url);
    constexpr rowlock::session_id holder{1};
    at->open_sessions(1, 1);
    std::vector<size_cost> seen;
    std::int64_t grants = 0;
    for (int size = largest / 10'000, have = 0; size <= largest; size *= 10) {
        at->fill(
            fmt::format("insert into {{0}}lock (name, token, changed_at) select 'n' || i, 1, "
                        "clock_timestamp() from generate_series({}, {}) i",
                        have + 1, size));
        have = size;
        at->settle();
        seen.push_back(cost_of(size, count, [&](int i) {
            const std::string name = fmt::format("n{}", scattered(i, size) + 1);
            const rowlock::grant_id grant{++grants};
            const auto done = at->leases().acquire(
                at->db(), {name, holder, grant, "1", "", std::nullopt}, soon());
            if (done.what != protocol::attempt::outcome::granted ||
                !at->queues().release(at->db(), name, holder, grant, false, soon()).freed) {
                throw std::runtime_error{"a pair was not granted"};
            }
        }));
    }
    report(found, "acquire and release, by names", "T20/names", seen, 2);
}

/// Each name has ten waiters. An operation adds one, and hands the lease to the first.
void measure_waiters(findings& found, const std::string& url, int largest, int count) {
    const auto at = std::make_unique<town>(url);
    constexpr int sessions = 100;
    at->open_sessions(1, sessions);
    std::vector<size_cost> seen;
    for (int size = largest / 100; size <= largest; size *= 10) {
        const int names = size / 10;
        at->fill("truncate {0}ticket, {0}lock");
        at->fill(
            fmt::format("insert into {{0}}lock (name, token, session, grant_id, changed_at, "
                        "acquired_at) select 'n' "
                        "|| i, 1, i % {} + 1, -i, clock_timestamp(), clock_timestamp() from "
                        "generate_series(1, {}) i",
                        sessions, names));
        at->fill(
            fmt::format("insert into {{0}}ticket (name, session, grant_id, enqueued_at) select 'n' "
                        "|| i % {} + 1, i % {} "
                        "+ 1, i, clock_timestamp() from generate_series(1, {}) i",
                        names, sessions, size));
        at->settle();
        std::vector<std::pair<rowlock::session_id, rowlock::grant_id>> holders;
        for (int i = 1; i <= names; ++i) {
            holders.emplace_back(rowlock::session_id{i % sessions + 1}, rowlock::grant_id{-i});
        }
        std::int64_t ticket = 1'000'000;
        seen.push_back(cost_of(size, count, [&](int i) {
            const auto which = static_cast<std::size_t>(scattered(i, names));
            auto& [session, grant] = holders[which];
            const std::string name = fmt::format("n{}", which + 1);
            at->queues().enqueue(at->db(),
                                 {name, rowlock::session_id{i % sessions + 1},
                                  rowlock::grant_id{++ticket}, "", "", std::nullopt},
                                 soon());
            const auto done = at->queues().release(at->db(), name, session, grant, true, soon());
            if (!done.next) throw std::runtime_error{"a lease was not handed over"};
            session = done.next->session;
            grant = done.next->grant_id;
        }));
    }
    report(found, "enqueue and hand-over, by waiters", "T20/waiters", seen, 2);
}

struct scale_options {
    int sessions = 10'000;
    int names = 1'000'000;
    int waiters = 10'000;
    int count = 0;
};

void measure(const program_options& common, scale_options options, findings& found) {
    const std::string url = need(postgresql_url(), "PostgreSQL");
    if (options.count == 0) options.count = common.quick ? 2000 : 10'000;
    measure_heartbeats(found, url, options.sessions, options.count);
    measure_waiters(found, url, options.waiters, options.count);
    measure_names(found, url, options.names, options.count);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::scale_options options;
    return bench::run_program(
        argc, argv, "Measures how the cost of an operation grows with the tables.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) {
            app.add_option("--sessions", options.sessions, "The most sessions")
                ->check(CLI::Range(1000, 1'000'000));
            app.add_option("--names", options.names, "The most names")
                ->check(CLI::Range(10'000, 10'000'000));
            app.add_option("--waiters", options.waiters, "The most waiters")
                ->check(CLI::Range(1000, 1'000'000));
            app.add_option("--count", options.count, "Operations for each size")
                ->check(CLI::Range(10, 1'000'000));
        });
}
