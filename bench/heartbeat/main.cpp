// The cost of a heartbeat for a client with many leases, compared with a single lease (T6).
//
// A heartbeat lasts from the sending of its statement to the answer, plus the processor time of its
// thread until the next one, so that work for each lease would show. All clients live and send
// heartbeats at the same time; only the processor time is that of a client that is alone.
#include "common/measure.hpp"
#include "common/observed_connection.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <time.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace bench {
namespace {

using namespace std::chrono_literals;
namespace sql = rowlock::sql;

double thread_time_us() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

/// The statements of one client that sends only heartbeats.
class stethoscope {
public:
    void begin() {
        const std::lock_guard lock{mutex_};
        listening_ = true;
        beats_us_.clear();
        statements_ = 0;
        last_.reset();
    }
    sql::result listen(const std::function<sql::result()>& statement) {
        const double before = thread_time_us();
        note_work(before);
        std::optional<sql::result> answer;
        const double wall = duration_us([&] { answer = statement(); });
        const std::lock_guard lock{mutex_};
        if (listening_) ++statements_;
        last_ = heard{std::this_thread::get_id(), wall, thread_time_us()};
        return std::move(*answer);
    }
    struct record {
        std::vector<double> beats_us;
        std::uint64_t statements = 0;
    };
    record end() {
        const std::lock_guard lock{mutex_};
        listening_ = false;
        return {beats_us_, statements_};
    }

private:
    struct heard {
        std::thread::id thread;
        double wall_us;
        double thread_time_us;
    };

    /// Notes the end of the previous heartbeat, when its thread starts the next one.
    void note_work(double now) {
        const std::lock_guard lock{mutex_};
        if (!listening_ || !last_ || last_->thread != std::this_thread::get_id()) return;
        beats_us_.push_back(last_->wall_us + now - last_->thread_time_us);
    }

    std::mutex mutex_;
    bool listening_ = false;
    std::optional<heard> last_;
    std::vector<double> beats_us_;
    std::uint64_t statements_ = 0;
};

/// A client with a given number of leases.
class patient {
public:
    patient(const tables& where, int leases, std::chrono::milliseconds heartbeat) {
        rowlock::client_options options;
        options.ttl = 30s;
        options.heartbeat = heartbeat;
        locks_.emplace(
            observed(where.source(), [this](const auto& send) { return by_.listen(send); }),
            options);
        for (int i = 0; i < leases; ++i) {
            held_.push_back(locks_->acquire(fmt::format("lease {} of {}", i, leases)));
        }
    }

    void begin() {
        beats_before_ = locks_->stats().heartbeats;
        by_.begin();
    }
    struct diagnosis {
        std::uint64_t beats = 0;
        double p50_us = 0;
        double p99_us = 0;
        double statements_per_beat = 0;
    };
    diagnosis end() {
        auto record = by_.end();
        const auto beats = locks_->stats().heartbeats - beats_before_;
        if (record.beats_us.empty() || beats == 0) throw std::runtime_error{"no heartbeat"};
        return {beats, quantile(record.beats_us, 0.5), quantile(record.beats_us, 0.99),
                static_cast<double>(record.statements) / static_cast<double>(beats)};
    }

private:
    stethoscope by_;
    std::optional<rowlock::client> locks_;
    std::vector<rowlock::lease> held_;
    std::uint64_t beats_before_ = 0;
};

struct heartbeat_options {
    std::vector<int> leases{1, 10, 100, 1000, 10'000};
    double seconds = 0;
};

/// So many heartbeats that the timers of the servers hardly count.
cpu_cost cost_alone(const tables& where, int leases, double seconds, findings& found) {
    patient one{where, leases, 1ms};
    one.begin();
    const cpu_meter cpu;
    std::this_thread::sleep_for(std::chrono::duration<double>{seconds});
    const auto cost = cpu.for_each_of(static_cast<double>(one.end().beats));
    found.note(fmt::format("heartbeat with {:>5} leases, alone: processor {:.1f} + {:.1f} µs",
                           leases, cost.client_us, cost.server_us));
    return cost;
}

void measure(const program_options& common, heartbeat_options options, findings& found) {
    if (options.seconds == 0) options.seconds = common.quick ? 3 : 15;
    const auto& counts = options.leases;
    const tables where{need(postgresql_url(), "PostgreSQL")};
    std::vector<std::unique_ptr<patient>> all;
    for (const int leases : counts) all.push_back(std::make_unique<patient>(where, leases, 10ms));
    for (const auto& each : all) each->begin();
    std::this_thread::sleep_for(std::chrono::duration<double>{options.seconds});
    std::vector<patient::diagnosis> seen;
    std::vector<std::pair<double, double>> line;
    for (std::size_t i = 0; i < all.size(); ++i) {
        seen.push_back(all[i]->end());
        line.emplace_back(counts[i], seen[i].p50_us);
        found.note(
            fmt::format("heartbeat with {:>5} leases: p50 {:.1f} µs, p99 {:.1f} µs, {:.3f} "
                        "statements",
                        counts[i], seen[i].p50_us, seen[i].p99_us, seen[i].statements_per_beat));
    }
    all.clear();
    const auto our_cpu = cost_alone(where, counts.back(), options.seconds / 3, found);
    const auto their_cpu = cost_alone(where, counts.front(), options.seconds / 3, found);
    found.add({.id = "T6/time",
               .ours = seen.back().p50_us,
               .theirs = seen.front().p50_us,
               .unit = "µs",
               .side = wanted::at_most,
               .target = 1.2,
               .our_cpu = our_cpu,
               .their_cpu = their_cpu});
    // The first and the last heartbeat may be incomplete.
    found.add({.id = "T6/statements",
               .ours = std::round(seen.back().statements_per_beat * 10) / 10,
               .unit = "statements per heartbeat",
               .side = wanted::at_most,
               .target = 1,
               .our_cpu = our_cpu});
    found.add_line("leases", "heartbeat", line);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::heartbeat_options options;
    return bench::run_program(
        argc, argv, "Measures the heartbeats of clients with many leases.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) {
            app.add_option("--leases", options.leases,
                           "Leases of each client; the last is compared with the first")
                ->delimiter(',')
                ->check(CLI::Range(1, 1'000'000))
                ->capture_default_str();
            app.add_option("--seconds", options.seconds, "Duration of the measurement")
                ->check(CLI::Range(0.1, 3600.0));
        });
}
