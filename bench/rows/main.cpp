// PostgreSQL with many lease rows (T7): the cost of an acquire among them, and the speed of a
// reaper and its effect on other clients.
#include "common/measure.hpp"
#include "common/postgresql.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include <rowlock/reaper.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace bench {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr int working_set = 1000;  // names in use, among idle ones
constexpr int sessions = 1000;

struct rows_options {
    int rows = 1'000'000;
    int rounds = 0;
    int slices = 0;
    int leases = 10'000;
    double seconds = 0;
};

/// Tables with rows that were not used for two days, beside live sessions of others.
class archive {
public:
    explicit archive(const std::string& url) : where_{url}, session_{url} {
        session_.query(fmt::format(
            "insert into {}session (id, owner, host, pid, program, ttl_us, expires_at, opened_at) "
            "select i, 'owner ' || i, 'host', i, 'program', 30000000, "
            "clock_timestamp() + '1 day', clock_timestamp() from generate_series(1, {}) i",
            where_.prefix(), sessions));
    }

    /// Adds names in no order, as if they had been inserted one by one.
    void grow_to(int rows) {
        session_.query(
            fmt::format("insert into {}lock (name, token, changed_at) "
                        "select md5(i::text), i, clock_timestamp() - interval '2 days' "
                        "from generate_series({} + 1, {}) i on conflict do nothing",
                        where_.prefix(), rows_, rows));
        rows_ = rows;
        session_.query(fmt::format("vacuum analyze {}lock", where_.prefix()));
        session_.query("checkpoint");
    }
    /// Names of existing rows from all over the table, or of new ones if it is empty.
    [[nodiscard]] std::vector<rowlock::lock_name> some_names() {
        std::vector<rowlock::lock_name> names;
        for (int i = 0; i < working_set; ++i) {
            const auto nth = static_cast<long>(i) * rows_ / working_set + 1;
            names.emplace_back(session_.text_of(fmt::format(
                "select md5({}::text)", rows_ < working_set ? static_cast<long>(i) : nth)));
        }
        return names;
    }
    /// As if the reaper had raised the floor some minutes ago over the first n rows, which may now
    /// be deleted. Later ones are kept for now, and one in use has a token above all.
    void publish_floor(std::int64_t nth) {
        session_.query(
            fmt::format("update {}token_floor set floor = greatest(floor, {}), settled = {}, "
                        "raised_at = clock_timestamp()",
                        where_.prefix(), nth, nth));
    }
    [[nodiscard]] std::int64_t count() {
        return session_.integer_of(fmt::format("select count(*) from {}lock", where_.prefix()));
    }
    [[nodiscard]] const tables& where() const { return where_; }

private:
    tables where_;
    postgresql_session session_;
    int rows_ = 0;
};

/// Acquires and releases one name after the other. Only the acquires are timed.
class customer {
public:
    explicit customer(archive& of) : names_{of.some_names()}, locks_{of.where().source()} {}

    double acquire_us() {
        std::optional<rowlock::lease> lease;
        const auto& name = names_[next_++ % names_.size()];
        const double us = duration_us([&] { lease = locks_.try_acquire(name); });
        if (!lease) throw std::runtime_error{"rowlock: not granted"};
        lease->release();
        return us;
    }
    void visit_all() {
        for (int i = 0; i < working_set; ++i) (void)acquire_us();
    }
    /// Of an acquire and its release.
    cpu_cost cost_of_pair() {
        const cpu_meter cpu;
        visit_all();
        return cpu.for_each_of(working_set);
    }

private:
    std::vector<rowlock::lock_name> names_;
    rowlock::client locks_;
    std::size_t next_ = 0;
};

/// Medians of the rounds' medians; the customers take turns, a few acquires each. Afterwards the
/// processor time of each.
std::vector<pace> compare(std::vector<customer*> customers, int rounds) {
    constexpr int turns = 20;
    constexpr int at_once = 10;
    std::vector<std::vector<double>> seen(customers.size());
    for (customer* const each : customers) each->visit_all();
    for (int round = 0; round < rounds; ++round) {
        std::vector<std::vector<double>> times(customers.size());
        for (int turn = 0; turn < turns; ++turn) {
            for (std::size_t i = 0; i < customers.size(); ++i) {
                for (int n = 0; n < at_once; ++n) times[i].push_back(customers[i]->acquire_us());
            }
        }
        for (std::size_t i = 0; i < customers.size(); ++i) seen[i].push_back(median(times[i]));
    }
    std::vector<pace> result;
    for (std::size_t i = 0; i < customers.size(); ++i) {
        result.push_back({.p50_us = median(seen[i]), .cpu = customers[i]->cost_of_pair()});
    }
    return result;
}

/// Measures an acquire among that many rows, compared with an empty table, and the points of the
/// plot.
void measure_acquire(archive& full, archive& empty, const rows_options& options, findings& found) {
    customer nobody_else{empty};
    std::vector<std::pair<double, double>> line;
    pace ours;
    pace theirs;
    for (const int part : {1000, 100, 10, 1}) {
        const int rows = options.rows / part;
        full.grow_to(rows);
        customer among_many{full};
        const auto seen = compare({&among_many, &nobody_else}, options.rounds);
        ours = seen[0];
        theirs = seen[1];
        line.emplace_back(rows, ours.p50_us);
        found.note(
            fmt::format("acquire among {:>7} rows: p50 {:.1f} µs; in an empty table: {:.1f}; "
                        "processor of a pair {:.1f} + {:.1f} µs; {:.1f} + {:.1f}",
                        rows, ours.p50_us, theirs.p50_us, ours.cpu.client_us, ours.cpu.server_us,
                        theirs.cpu.client_us, theirs.cpu.server_us));
    }
    found.add({.id = "T7/acquire-p50",
               .ours = ours.p50_us,
               .theirs = theirs.p50_us,
               .unit = "µs",
               .side = wanted::at_most,
               .target = 1.2,
               .our_cpu = ours.cpu,
               .their_cpu = theirs.cpu});
    found.add_line("rows", "acquire", line);
}

/// The report and the time of a reaper with default options.
struct reaping {
    std::int64_t rows = 0;
    double seconds = 0;
};

/// Runs one whole round, not only the deletions.
reaping reap_once(const archive& of) {
    reaping done;
    const auto source = of.where().source();
    const double us = duration_us([&] { done.rows = rowlock::reap(source).leases_deleted; });
    done.seconds = us / 1e6;
    return done;
}

/// Runs `work` in a thread, and `meanwhile` repeatedly until that has ended.
void beside(const std::function<void()>& work, const std::function<void()>& meanwhile) {
    std::atomic<bool> over = false;
    std::exception_ptr failure;
    {
        const std::jthread thread{[&] {
            try {
                work();
            } catch (...) {
                failure = std::current_exception();
            }
            over = true;
        }};
        do meanwhile();
        while (!over);
    }
    if (failure) std::rethrow_exception(failure);
}

/// Deletes a slice of rows at a time. Between two slices the customer runs alone for as long.
void measure_politeness(archive& full, const rows_options& options, std::int64_t upto,
                        findings& found) {
    customer at_work{full};
    at_work.visit_all();
    std::vector<double> quiet;
    std::vector<double> busy;
    reaping sum;
    for (int slice = 1; slice <= options.slices; ++slice) {
        full.publish_floor(upto * slice / options.slices);
        reaping done;
        beside([&] { done = reap_once(full); }, [&] { busy.push_back(at_work.acquire_us()); });
        sum.rows += done.rows;
        sum.seconds += done.seconds;
        const auto last = steady_clock::now() + std::chrono::duration<double>{done.seconds};
        do quiet.push_back(at_work.acquire_us());
        while (steady_clock::now() < last);
    }
    found.note(fmt::format("reaped beside {} acquires: {} rows in {:.1f} s", busy.size(), sum.rows,
                           sum.seconds));
    found.add({.id = "T7/acquire-p99-reaping",
               .ours = quantile(busy, 0.99),
               .theirs = quantile(quiet, 0.99),
               .unit = "µs",
               .side = wanted::at_most,
               .target = 2,
               .our_cpu = at_work.cost_of_pair()});
}

/// Sends the heartbeats of all those sessions, each every ten seconds, as clients with the default
/// options do, on a separate connection.
class crowd {
public:
    explicit crowd(const archive& of) : session_{of.where().url()} {
        session_.prepare(
            "beat", fmt::format("update {}session set beats = beats + 1, "
                                "expires_at = clock_timestamp() + '1 day' "
                                "where id = $1 and not ended and expires_at > clock_timestamp()",
                                of.where().prefix())
                        .c_str());
    }
    void beat_until(const std::atomic<bool>& over) {
        auto next = steady_clock::now();
        for (int n = 0; !over; ++n) {
            const auto id = std::to_string(n % sessions + 1);
            if (rows_of(session_.run("beat", {id.c_str()})) == 1) ++beats_;
            next += 10'000ms / sessions;
            std::this_thread::sleep_until(next);
        }
    }
    [[nodiscard]] int beats() const { return beats_; }

private:
    postgresql_session session_;
    int beats_ = 0;
};

/// All at once: one client holds ten thousand leases, a thousand sessions send heartbeats, a reaper
/// runs continuously, and a client acquires. No lease may be lost.
void measure_together(archive& full, const rows_options& options, std::int64_t from,
                      std::int64_t upto, findings& found) {
    rowlock::client holder{full.where().source()};
    std::vector<rowlock::lease> held;
    for (int i = 0; i < options.leases; ++i) {
        held.push_back(holder.acquire(fmt::format("held {}", i)));
    }
    customer at_work{full};
    at_work.visit_all();
    crowd others{full};
    std::vector<double> times;
    reaping sum;
    const auto reap_on = [&] {
        const auto end = steady_clock::now() + std::chrono::duration<double>{options.seconds};
        for (int slice = 1; steady_clock::now() < end; ++slice) {
            full.publish_floor(from +
                               (upto - from) * std::min(slice, options.slices) / options.slices);
            const auto done = reap_once(full);
            sum.rows += done.rows;
            sum.seconds += done.seconds;
        }
    };
    {
        std::atomic<bool> over = false;
        const std::jthread beating{[&] { others.beat_until(over); }};
        try {
            beside(reap_on, [&] { times.push_back(at_work.acquire_us()); });
        } catch (...) {
            over = true;
            throw;
        }
        over = true;
    }
    const auto lost = std::ranges::count_if(held, [](const auto& each) { return !each.held(); });
    const auto stats = holder.stats();
    found.note(fmt::format(
        "all at once, {:.0f} s: {} leases of one client, {} lost, {} of its heartbeats failed; {} "
        "heartbeats of {} sessions; {} rows reaped; {} acquires, p50 {:.1f} µs, p99 {:.1f} µs",
        sum.seconds, held.size(), lost, stats.heartbeat_failures, others.beats(), sessions,
        sum.rows, times.size(), quantile(times, 0.5), quantile(times, 0.99)));
    if (lost != 0) throw std::runtime_error{"rowlock: leases were lost"};
}

void measure_reaper(archive& full, std::int64_t upto, findings& found) {
    const auto before = full.count();
    full.publish_floor(upto);
    const cpu_meter cpu;
    const auto done = reap_once(full);
    const auto cost = cpu.for_each_of(static_cast<double>(done.rows));
    found.note(
        fmt::format("reaped alone: {} of {} rows in {:.1f} s", done.rows, before, done.seconds));
    found.add({.id = "T7/reaped-per-second",
               .ours = static_cast<double>(done.rows) / done.seconds,
               .unit = "rows/s",
               .side = wanted::at_least,
               .target = 50'000,
               .our_cpu = cost});
}

void measure(const program_options& common, rows_options options, findings& found) {
    if (options.rounds == 0) options.rounds = common.quick ? 7 : 21;
    if (options.seconds == 0) options.seconds = common.quick ? 5 : 30;
    if (options.slices == 0) options.slices = common.quick ? 3 : 10;
    const std::string url = need(postgresql_url(), "PostgreSQL");
    archive full{url};
    archive empty{url};
    measure_acquire(full, empty, options, found);
    const std::int64_t tenth = options.rows / 10;
    measure_politeness(full, options, 4 * tenth, found);
    measure_together(full, options, 4 * tenth, 6 * tenth, found);
    measure_reaper(full, options.rows, found);
}

void add_options(CLI::App& app, rows_options& options) {
    app.add_option("--rows", options.rows, "Number of idle rows")
        ->check(CLI::Range(1'000, 100'000'000))
        ->capture_default_str();
    app.add_option("--rounds", options.rounds, "Number of rounds")->check(CLI::Range(1, 1000));
    app.add_option("--slices", options.slices, "Number of slices in which rows are reaped")
        ->check(CLI::Range(1, 1000));
    app.add_option("--seconds", options.seconds, "Duration of the combined load")
        ->check(CLI::Range(0.1, 3600.0));
    app.add_option("--leases", options.leases, "Leases held by one client during the combined load")
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::rows_options options;
    return bench::run_program(
        argc, argv, "Measures acquires among many lease rows, and their reaping.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) { bench::add_options(app, options); });
}
