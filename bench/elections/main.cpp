// Elections (T13): the time from a leader's step-down to the return of the next candidate, beside
// the leader recipe of ZooKeeper.
#include "common/program.hpp"
#include "common/tables.hpp"
#include "peers/zookeeper.hpp"
#include <rowlock/election.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr int candidates = 5;

/// Leads, and steps down, with a session of its own.
class candidate {
public:
    virtual ~candidate() = default;
    virtual void campaign() = 0;
    virtual void step_down() = 0;
};

using make_candidate = std::function<std::unique_ptr<candidate>()>;

class our_candidate final : public candidate {
public:
    explicit our_candidate(const tables& in)
        : locks_{in.source(), {.statement_timeout = 60s}},
          office_{locks_, "office", {.value = "http://127.0.0.1:8080"}} {}
    void campaign() override { term_.emplace(office_.campaign()); }
    void step_down() override { term_->step_down(); }

private:
    rowlock::client locks_;
    rowlock::election office_;
    std::optional<rowlock::leadership> term_{};
};

class zookeeper_candidate final : public candidate {
public:
    zookeeper_candidate(const std::string& host, const std::string& name) : session_{host, name} {}
    void campaign() override { session_.acquire(); }
    void step_down() override { session_.release(); }

private:
    zookeeper_session session_;
};

/// Of each round; in microseconds.
struct seen {
    std::vector<double> p50{}, p99{};
    std::vector<cpu_cost> cpu{};  ///< of one succession
};

/// Each leads for a millisecond and steps down; then it campaigns again.
class contest {
public:
    contest(std::string title, const make_candidate& make) : title_{std::move(title)} {
        for (int i = 0; i < candidates; ++i) all_.push_back(make());
    }

    void run_round(std::chrono::milliseconds time) {
        gaps_.clear();
        left_ = steady::time_point{};
        const cpu_meter cpu;
        {
            std::vector<std::jthread> threads;
            std::atomic<bool> over{false};
            for (const auto& each : all_) {
                threads.emplace_back([&] {
                    while (!over) serve(*each);
                });
            }
            std::this_thread::sleep_for(time);
            over = true;
        }
        seen_.cpu.push_back(cpu.for_each_of(static_cast<double>(gaps_.size())));
        seen_.p50.push_back(quantile(gaps_, 0.5));
        seen_.p99.push_back(quantile(gaps_, 0.99));
    }
    [[nodiscard]] const std::string& title() const { return title_; }
    [[nodiscard]] double p50() const { return median(seen_.p50); }
    [[nodiscard]] double p99() const { return median(seen_.p99); }
    [[nodiscard]] cpu_cost cpu() const { return median(seen_.cpu); }

private:
    void serve(candidate& one) {
        one.campaign();
        const auto now = steady::now();
        {
            const std::lock_guard lock{mutex_};
            if (left_ != steady::time_point{}) {
                gaps_.push_back(std::chrono::duration<double, std::micro>(now - left_).count());
            }
        }
        std::this_thread::sleep_for(1ms);
        {
            const std::lock_guard lock{mutex_};
            left_ = steady::now();
        }
        one.step_down();
    }

    std::string title_;
    std::vector<std::unique_ptr<candidate>> all_;
    std::mutex mutex_;
    steady::time_point left_{};
    std::vector<double> gaps_;
    seen seen_{};
};

void measure(const program_options& common, findings& found) {
    const int rounds = common.quick ? 3 : 9;
    const auto each_round = common.quick ? 1s : 2s;
    const temporary_folder folder;
    const tables postgresql{need(postgresql_url(), "PostgreSQL")};
    const tables mariadb{need(mariadb_url(), "MariaDB")};
    const tables sqlite{"sqlite:" + (folder.path() / "locks.db").string()};
    const std::string host = need(zookeeper_host(), "ZooKeeper");
    const auto ours = [](const tables& in) {
        return [&in] { return std::make_unique<our_candidate>(in); };
    };
    const auto name = fmt::format("rowlock_bench_{}", ::getpid());
    std::vector<std::unique_ptr<contest>> all;
    all.push_back(std::make_unique<contest>(
        "ZooKeeper, recipe", [&] { return std::make_unique<zookeeper_candidate>(host, name); }));
    all.push_back(std::make_unique<contest>("postgresql", ours(postgresql)));
    all.push_back(std::make_unique<contest>("mariadb", ours(mariadb)));
    all.push_back(std::make_unique<contest>("sqlite", ours(sqlite)));
    for (int i = 0; i < rounds; ++i) {
        for (const auto& one : all) one->run_round(each_round);
    }
    const auto& zookeeper = *all.front();
    for (const auto& one : all) {
        found.note(fmt::format(
            "T13, {}: from a step-down to the next leader {:.0f} µs, p99 {:.0f} µs, "
            "processor {:.0f} + {:.0f} µs",
            one->title(), one->p50(), one->p99(), one->cpu().client_us, one->cpu().server_us));
        if (one.get() == &zookeeper) continue;
        found.add({.id = "T13/" + one->title(),
                   .ours = one->p50(),
                   .theirs = zookeeper.p50(),
                   .unit = "µs",
                   .side = wanted::at_most,
                   .target = 1.0,
                   .our_cpu = one->cpu(),
                   .their_cpu = zookeeper.cpu()});
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_program(
        argc, argv, "Measures successions of leaders, beside ZooKeeper's recipe.", bench::measure);
}
