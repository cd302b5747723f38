// The size of PostgreSQL's table of leases and its index under many acquires and releases: on one
// name, on many, and on names that are inserted and deleted.
#include "common/measure.hpp"
#include "common/ours.hpp"
#include "common/postgresql.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include <rowlock/reaper.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>

namespace bench {
namespace {

struct size_options {
    int pairs = 0;
    int names = 10'000;
    int threads = 8;
    int new_names = 300'000;
    int turns = -1;
};

struct sizes {
    std::int64_t table = 0;
    std::int64_t index = 0;
    std::int64_t dead_rows = 0;
    std::int64_t vacuums = 0;
    double hot = 0;  // the share of updates that changed no index
};

sizes sizes_of(postgresql_session& session, const std::string& table) {
    const auto of_statistics = [&](const char* column) {
        return session.integer_of(
            fmt::format("select {} from pg_stat_user_tables where relname = '{}'", column, table));
    };
    return {session.integer_of(fmt::format("select pg_table_size('{}')", table)),
            session.integer_of(fmt::format("select pg_indexes_size('{}')", table)),
            of_statistics("n_dead_tup"), of_statistics("autovacuum_count"),
            static_cast<double>(of_statistics("n_tup_hot_upd")) /
                static_cast<double>(std::max<std::int64_t>(of_statistics("n_tup_upd"), 1))};
}

/// Every thread has its own names and uses them in turn.
class rounds_of_names final : public worker {
public:
    rounds_of_names(const std::shared_ptr<rowlock::client>& locks, int first, int step, int names) {
        for (int i = first; i < names; i += step) {
            leases_.push_back(our_lease(locks, fmt::format("name {}", i)));
        }
    }
    void turn() override { leases_[next_++ % leases_.size()]->turn(); }

private:
    std::vector<std::unique_ptr<worker>> leases_;
    std::size_t next_ = 0;
};

void run_pairs(const contestant& who, int pairs) {
    const int each = pairs / static_cast<int>(who.workers.size());
    std::vector<std::exception_ptr> failures(who.workers.size());
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < who.workers.size(); ++i) {
            threads.emplace_back([&, i] {
                try {
                    for (int turn = 0; turn < each; ++turn) who.workers[i]->turn();
                } catch (...) {
                    failures[i] = std::current_exception();
                }
            });
        }
    }
    for (const auto& failure : failures) {
        if (failure) std::rethrow_exception(failure);
    }
}

void report(const sizes& seen, int pairs, int names, double us, findings& found) {
    found.note(fmt::format(
        "{:>7} pairs on {} names in {:.0f} s: table {} KiB, index {} KiB, {} dead rows, "
        "{} autovacuums, {:.1f} % of the updates touched no index",
        pairs, names, us / 1e6, seen.table / 1024, seen.index / 1024, seen.dead_rows, seen.vacuums,
        seen.hot * 100));
}

/// Measures also in between, which shows whether the size still grows.
void measure_size(int names, int threads, int pairs, findings& found) {
    const tables where{need(postgresql_url(), "PostgreSQL")};
    postgresql_session session{where.url()};
    double us = 0;
    int done = 0;
    for (const int part : {100, 10, 4, 2, 1}) {
        const int more = pairs / part - done;
        if (more == 0) continue;
        done += more;
        {
            // The server's processes publish their counts when the connections close.
            const auto locks = std::make_shared<rowlock::client>(where.source());
            const auto who = line_up("rowlock", threads, [&](int i) {
                return std::make_unique<rounds_of_names>(locks, i, threads, names);
            });
            us += duration_us([&] { run_pairs(who, more); });
        }
        report(sizes_of(session, where.prefix() + "lock"), done, names, us, found);
    }
}

/// Names that are used only once: they are inserted, a reaper deletes them, autovacuum cleans up,
/// and others follow.
void measure_turnover(const size_options& options, findings& found) {
    const tables where{need(postgresql_url(), "PostgreSQL")};
    postgresql_session session{where.url()};
    const std::string table = where.prefix() + "lock";
    for (int turn = 0; turn < options.turns; ++turn) {
        session.query(
            fmt::format("insert into {} (name, token, changed_at) select md5('{} ' || i), i, "
                        "clock_timestamp() - interval '2 days' from generate_series(1, {}) i",
                        table, turn, options.new_names));
        // As if the floor had been raised some minutes ago.
        session.query(fmt::format("update {}token_floor set floor = {}, settled = {}",
                                  where.prefix(), options.new_names, options.new_names));
        const auto gone = rowlock::reap(where.source()).leases_deleted;
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{2};
        auto seen = sizes_of(session, table);
        do {  // autovacuum runs once a minute
            std::this_thread::sleep_for(std::chrono::seconds{1});
            seen = sizes_of(session, table);
        } while (seen.dead_rows > options.new_names / 10 && std::chrono::steady_clock::now() < end);
        found.note(fmt::format(
            "{} new names, {} of them reaped, {}: table {} KiB, index {} KiB, {} autovacuums",
            options.new_names, gone, turn == 0 ? "once" : fmt::format("{} times", turn + 1),
            seen.table / 1024, seen.index / 1024, seen.vacuums));
    }
}

void measure(const program_options& common, size_options options, findings& found) {
    if (options.pairs == 0) options.pairs = common.quick ? 20'000 : 1'000'000;
    if (options.turns < 0) options.turns = common.quick ? 0 : 4;
    measure_turnover(options, found);
    measure_size(1, 1, options.pairs, found);
    measure_size(options.names, options.threads, options.pairs, found);
}

void add_options(CLI::App& app, size_options& options) {
    app.add_option("--pairs", options.pairs, "Pairs of acquire and release [1000000]")
        ->check(CLI::Range(1, 1'000'000'000));
    app.add_option("--names", options.names, "The number of names for `many`")
        ->check(CLI::Range(1, 10'000'000))
        ->capture_default_str();
    app.add_option("--new-names", options.new_names, "New names that are reaped at a time")
        ->check(CLI::Range(1, 10'000'000))
        ->capture_default_str();
    app.add_option("--turns", options.turns, "Rounds of new names [4, or none with --quick]")
        ->check(CLI::Range(0, 1000));
    app.add_option("--threads", options.threads, "Threads that share the many names")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::size_options options;
    return bench::run_program(
        argc, argv, "Measures the size of PostgreSQL's files after many acquires and releases.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) { bench::add_options(app, options); });
}
