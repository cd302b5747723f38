// PostgreSQL with many lease rows (T7): what an acquire costs among them, and how fast and how
// politely a reaper removes them.
#include "common/measure.hpp"
#include "common/postgresql.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include <rowlock/open.hpp>
#include <rowlock/reaper.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace bench {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
namespace sql = rowlock::sql;

constexpr int working_set = 1000;  // names that are in use, among all that lie idle
constexpr int sessions = 1000;

struct rows_options {
    int rows = 1'000'000;
    int rounds = 0;
    double reap_seconds = 0;
};

/// Tables with rows that nobody has touched for two days, under live sessions of others.
class archive {
public:
    explicit archive(const std::string& url) : where_{url}, session_{url} {
        session_.query(fmt::format(
            "insert into {}session (id, owner, host, pid, program, ttl_us, expires_at, opened_at) "
            "select i, 'owner ' || i, 'host', i, 'program', 30000000, "
            "clock_timestamp() + '1 day', clock_timestamp() from generate_series(1, {}) i",
            where_.prefix(), sessions));
    }

    /// Names are in no order, as if they had come one by one.
    void grow_to(int rows) {
        session_.query(
            fmt::format("insert into {}lease (name, token, changed_at) "
                        "select md5(i::text), i, clock_timestamp() - interval '2 days' "
                        "from generate_series({} + 1, {}) i on conflict do nothing",
                        where_.prefix(), rows_, rows));
        rows_ = rows;
        session_.query(fmt::format("vacuum analyze {}lease", where_.prefix()));
        session_.query("checkpoint");
    }
    /// Of rows that are there, all over the table; or of new ones if it is empty.
    [[nodiscard]] std::vector<rowlock::lock_name> some_names() {
        std::vector<rowlock::lock_name> names;
        for (int i = 0; i < working_set; ++i) {
            const auto nth = static_cast<long>(i) * rows_ / working_set + 1;
            names.emplace_back(session_.text_of(fmt::format(
                "select md5({}::text)", rows_ < working_set ? static_cast<long>(i) : nth)));
        }
        return names;
    }
    /// As if the reaper had raised the floor over them some minutes ago. Nobody acquires now.
    void settle_floor() {
        session_.query(
            fmt::format("update {0}token_floor set floor = t.top, settled = t.top "
                        "from (select max(token) as top from {0}lease) t",
                        where_.prefix()));
    }
    [[nodiscard]] std::int64_t count() {
        return session_.integer_of(fmt::format("select count(*) from {}lease", where_.prefix()));
    }
    [[nodiscard]] const tables& where() const { return where_; }

private:
    tables where_;
    postgresql_session session_;
    int rows_ = 0;
};

/// Takes and gives back one name after the other; only the taking is timed.
class customer {
public:
    explicit customer(archive& of)
        : names_{of.some_names()}, locks_{rowlock::open(of.where().url()), of.where().options()} {}

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

private:
    std::vector<rowlock::lock_name> names_;
    rowlock::client locks_;
    std::size_t next_ = 0;
};

/// Medians of the rounds' medians; the customers take turns.
std::vector<double> compare(std::vector<customer*> customers, int rounds) {
    constexpr int turns = 200;
    std::vector<std::vector<double>> seen(customers.size());
    for (customer* const each : customers) each->visit_all();
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < customers.size(); ++i) {
            std::vector<double> times;
            for (int turn = 0; turn < turns; ++turn) times.push_back(customers[i]->acquire_us());
            seen[i].push_back(median(times));
        }
    }
    std::vector<double> result;
    for (const auto& each : seen) result.push_back(median(each));
    return result;
}

/// Among so many rows, by an empty table. The points of the plot on the way there.
void measure_acquire(archive& full, archive& empty, const rows_options& options, findings& found) {
    customer nobody_else{empty};
    std::vector<std::pair<double, double>> line;
    double ours = 0;
    double theirs = 0;
    for (const int part : {1000, 100, 10, 1}) {
        const int rows = options.rows / part;
        full.grow_to(rows);
        customer among_many{full};
        const auto seen = compare({&among_many, &nobody_else}, options.rounds);
        ours = seen[0];
        theirs = seen[1];
        line.emplace_back(rows, ours);
        found.note(fmt::format("acquire among {:>7} rows: p50 {:.1f} µs; in an empty table: {:.1f}",
                               rows, ours, theirs));
    }
    found.add({.id = "T7/acquire-p50",
               .ours = ours,
               .theirs = theirs,
               .unit = "µs",
               .side = wanted::at_most,
               .target = 1.2});
    found.add_line("rows", "acquire", line);
}

/// Counts what its statements delete, and ends them by an error when enough is enough: a reaper
/// that gets nowhere would last for hours.
struct reaping_limit {
    std::int64_t rows = 0;
    steady_clock::time_point until{};
    std::atomic<std::int64_t> deleted = 0;
};

struct enough {};

class limited_connection final : public sql::connection {
public:
    limited_connection(std::unique_ptr<sql::connection> inner, reaping_limit& limit)
        : inner_{std::move(inner)}, limit_{limit} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        if (limit_.deleted >= limit_.rows || steady_clock::now() > limit_.until) throw enough{};
        auto answer = inner_->execute(what, parameters, until);
        if (what.text().find("delete from") != std::string::npos) {
            limit_.deleted += answer.affected();
        }
        return answer;
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return inner_->query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return inner_->transaction();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    std::unique_ptr<sql::connection> inner_;
    reaping_limit& limit_;
};

/// One round of the reaper with its default options, up to the limit. Returns the seconds it took.
double reap_some(const archive& of, reaping_limit& limit) {
    const auto source = rowlock::open(of.where().url());
    const sql::connection_source limited{source.speaks(),
                                         [&](sql::deadline until) {
                                             return std::make_unique<limited_connection>(
                                                 source.connect(until), limit);
                                         },
                                         source.description()};
    const double us = duration_us([&] {
        try {
            rowlock::reap(limited, {.prefix = of.where().prefix()});
        } catch (const enough&) {
        }
    });
    return us / 1e6;
}

void measure_politeness(archive& full, const rows_options& options, findings& found) {
    customer at_work{full};
    const auto p99_of = [](std::vector<double>& times) { return quantile(times, 0.99); };
    at_work.visit_all();
    std::vector<double> quiet;
    const auto last = steady_clock::now() +
                      std::chrono::milliseconds{static_cast<long>(options.reap_seconds * 500)};
    while (steady_clock::now() < last) quiet.push_back(at_work.acquire_us());

    reaping_limit limit{.rows = options.rows / 2};
    limit.until = steady_clock::now() +
                  std::chrono::milliseconds{static_cast<long>(options.reap_seconds * 1000)};
    std::atomic<bool> over = false;
    std::exception_ptr failure;
    double seconds = 0;
    std::vector<double> busy;
    {
        const std::jthread reaper{[&] {
            try {
                seconds = reap_some(full, limit);
            } catch (...) {
                failure = std::current_exception();
            }
            over = true;
        }};
        do busy.push_back(at_work.acquire_us());
        while (!over);
    }
    if (failure) std::rethrow_exception(failure);
    found.note(fmt::format("reaped beside {} acquires: {} rows in {:.1f} s", busy.size(),
                           limit.deleted.load(), seconds));
    found.add({.id = "T7/acquire-p99-reaping",
               .ours = p99_of(busy),
               .theirs = p99_of(quiet),
               .unit = "µs",
               .side = wanted::at_most,
               .target = 2});
}

void measure_reaper(archive& full, const rows_options& options, findings& found) {
    const auto before = full.count();
    reaping_limit limit{.rows = INT64_MAX};
    limit.until = steady_clock::now() +
                  std::chrono::milliseconds{static_cast<long>(options.reap_seconds * 1000)};
    const double seconds = reap_some(full, limit);
    const auto gone = before - full.count();
    found.note(fmt::format("reaped alone: {} of {} rows in {:.1f} s", gone, before, seconds));
    found.add({.id = "T7/reaped-per-second",
               .ours = static_cast<double>(gone) / seconds,
               .unit = "rows/s",
               .side = wanted::at_least,
               .target = 50'000});
}

void measure(const program_options& common, rows_options options, findings& found) {
    if (options.rounds == 0) options.rounds = common.quick ? 7 : 21;
    if (options.reap_seconds == 0) options.reap_seconds = common.quick ? 10 : 60;
    const std::string url = need(postgresql_url(), "PostgreSQL");
    archive full{url};
    archive empty{url};
    measure_acquire(full, empty, options, found);
    full.settle_floor();
    measure_politeness(full, options, found);
    measure_reaper(full, options, found);
}

void add_options(CLI::App& app, rows_options& options) {
    app.add_option("--rows", options.rows, "How many lie idle")
        ->check(CLI::Range(1'000, 100'000'000))
        ->capture_default_str();
    app.add_option("--rounds", options.rounds, "How many")->check(CLI::Range(1, 1000));
    app.add_option("--reap-seconds", options.reap_seconds, "How long the reaper may take")
        ->check(CLI::Range(0.1, 3600.0));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::rows_options options;
    return bench::run_program(
        argc, argv, "Measures acquiring among many lease rows, and reaping them.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) { bench::add_options(app, options); });
}
