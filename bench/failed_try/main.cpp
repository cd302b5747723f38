// A try for a held lock compared with a minimal SELECT (T5): its time, and the amount of
// PostgreSQL's write-ahead log that it causes.
#include "common/measure.hpp"
#include "common/postgresql.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

using namespace std::chrono_literals;

const rowlock::lock_name held{"held by another"};

struct failed_try_options {
    int rounds = 0;  // the defaults of these three depend on --quick
    int milliseconds = 0;
    int tries = 0;
};

class failed_try final : public worker {
public:
    explicit failed_try(std::shared_ptr<rowlock::client> locks) : locks_{std::move(locks)} {}
    void turn() override {
        if (locks_->try_acquire(held)) throw std::runtime_error{"rowlock: granted what is held"};
    }

private:
    std::shared_ptr<rowlock::client> locks_;
};

/// A probe of a lock that is one row: its holder, and whether that is current.
class raw_probe final : public worker {
public:
    raw_probe(const std::string& url, const std::string& table) : session_{url} {
        session_.query("set plan_cache_mode = force_generic_plan");
        session_.prepare("probe", fmt::format("select owner, token from {} where name = $1 "
                                              "and owner is not null "
                                              "and expires_at > clock_timestamp()",
                                              table)
                                      .c_str());
    }
    void turn() override {
        if (rows_of(session_.run("probe", {held.str().c_str()})) != 1) {
            throw std::runtime_error{"probe: found no holder"};
        }
    }

private:
    postgresql_session session_;
};

/// A held row in a separate table.
class held_row {
public:
    explicit held_row(const std::string& url)
        : session_{url}, name_{fmt::format("probed_{}", ::getpid())} {
        session_.query("create table " + name_ +
                       " (name text collate \"C\" primary key, owner text, token bigint not null, "
                       "expires_at timestamptz)");
        session_.query(
            fmt::format("insert into {} values ('{}', 'another', 1, "
                        "clock_timestamp() + '1 day')",
                        name_, held.str()));
    }
    ~held_row() {
        try {
            session_.query("drop table " + name_);
        } catch (const std::exception& failure) {
            fmt::print(stderr, "cannot drop the table {}: {}\n", name_, failure.what());
        }
    }
    held_row(const held_row&) = delete;
    held_row& operator=(const held_row&) = delete;
    [[nodiscard]] const std::string& table() const { return name_; }
    [[nodiscard]] std::int64_t log_position() {
        return session_.integer_of("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')");
    }

private:
    postgresql_session session_;
    std::string name_;
};

/// The same clients serve both sides, and none sends heartbeats while the log is measured.
struct scene {
    explicit scene(const std::string& url) : where{url}, row{url} {
        rowlock::client_options options;
        options.ttl = 24h;
        holder = std::make_shared<rowlock::client>(where.source(), options);
        others = std::make_shared<rowlock::client>(where.source(), options);
        lease = holder->acquire(held);
    }

    contestant ours(int threads) {
        return line_up("rowlock", threads,
                       [this](int) { return std::make_unique<failed_try>(others); });
    }
    contestant theirs(int threads) {
        return line_up("SELECT", threads, [this](int) {
            return std::make_unique<raw_probe>(where.url(), row.table());
        });
    }

    tables where;
    held_row row;
    std::shared_ptr<rowlock::client> holder;
    std::shared_ptr<rowlock::client> others;
    rowlock::lease lease;
};

void measure_time(scene& on, int threads, const char* id, const round_options& rounds,
                  findings& found) {
    std::vector<contestant> both;
    both.push_back(on.ours(threads));
    both.push_back(on.theirs(threads));
    const auto seen = take_turns(both, rounds);
    for (std::size_t i = 0; i < both.size(); ++i) {
        found.note(
            fmt::format("failed try       {:>2} threads  {:<22} {:>8.0f} a second, p50 "
                        "{:>7.1f} µs, p99 {:>8.1f} µs, processor {:>6.1f} + {:>6.1f} µs",
                        threads, both[i].title, seen[i].per_second, seen[i].p50_us, seen[i].p99_us,
                        seen[i].cpu.client_us, seen[i].cpu.server_us));
    }
    found.add(compared(id, seen[0], seen[1], "tries/s", 0.8));
}

/// The server occasionally writes some bytes of its own. One page is added to both sides, so that
/// these do not decide: with 100 000 tries, a byte for every 122 would still miss the target.
void measure_log(scene& on, int tries, findings& found) {
    constexpr int portions = 10;
    constexpr double page = 8192;
    const auto ours = on.ours(1);
    const auto theirs = on.theirs(1);
    const auto written = [&](worker& who, std::vector<cpu_cost>& costs) {
        const auto before = on.row.log_position();
        const cpu_meter cpu;
        for (int i = 0; i < tries / portions; ++i) who.turn();
        costs.push_back(cpu.for_each_of(tries / portions));
        return static_cast<double>(on.row.log_position() - before);
    };
    std::vector<cpu_cost> our_costs;
    std::vector<cpu_cost> their_costs;
    double our_bytes = 0;
    double their_bytes = 0;
    ours.workers[0]->turn();
    theirs.workers[0]->turn();
    for (int i = 0; i < portions; ++i) {
        our_bytes += written(*ours.workers[0], our_costs);
        their_bytes += written(*theirs.workers[0], their_costs);
    }
    found.note(fmt::format("log of {} failed tries: {} bytes; of as many SELECTs: {} bytes", tries,
                           our_bytes, their_bytes));
    found.add({.id = "T5/wal",
               .ours = our_bytes + page,
               .theirs = their_bytes + page,
               .unit = "bytes, one page added to each",
               .side = wanted::at_most,
               .target = 1.1,
               .our_cpu = median(our_costs),
               .their_cpu = median(their_costs)});
}

void measure(const program_options& common, failed_try_options options, findings& found) {
    if (options.rounds == 0) options.rounds = common.quick ? 5 : 11;
    if (options.milliseconds == 0) options.milliseconds = common.quick ? 200 : 500;
    if (options.tries == 0) options.tries = common.quick ? 20'000 : 100'000;
    scene on{need(postgresql_url(), "PostgreSQL")};
    round_options rounds{.rounds = options.rounds};
    rounds.each = std::chrono::milliseconds{options.milliseconds};
    rounds.warm_up = 5 * rounds.each;
    measure_time(on, 1, "T5/1-thread", rounds, found);
    measure_time(on, 16, "T5/16-threads", rounds, found);
    measure_log(on, options.tries, found);
    on.lease.release();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::failed_try_options options;
    return bench::run_program(
        argc, argv, "Measures tries for a held lock.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) {
            app.add_option("--rounds", options.rounds, "Number of rounds")
                ->check(CLI::Range(1, 1000));
            app.add_option("--milliseconds", options.milliseconds, "Duration of a round")
                ->check(CLI::Range(1, 60'000));
            app.add_option("--tries", options.tries, "Tries whose log is measured [100000]")
                ->check(CLI::Range(10, 100'000'000));
        });
}
