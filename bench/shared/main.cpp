// Shared locks (T11): readers of one shared_mutex and takers of one semaphore, by leases on names
// of their own, which do not meet; and how long a writer waits among readers.
#include "common/ours.hpp"
#include "shared/contestants.hpp"
#include "throughput/contestants.hpp"
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// A thread that takes the lease of its own name.
class leaser final : public worker {
public:
    leaser(std::shared_ptr<rowlock::client> locks, std::string name)
        : locks_{std::move(locks)}, name_{std::move(name)} {}
    void turn() override { const auto taken = locks_->acquire(name_); }

private:
    const std::shared_ptr<rowlock::client> locks_;
    const std::string name_;
};

/// A thread that writes under the shared_mutex of its own name.
class writer final : public worker {
public:
    writer(std::shared_ptr<rowlock::client> locks, const std::string& name)
        : locks_{std::move(locks)}, lock_{*locks_, name} {}
    void turn() override { const auto taken = lock_.acquire(rowlock::lock_mode::exclusive); }

private:
    const std::shared_ptr<rowlock::client> locks_;
    rowlock::shared_mutex lock_;
};

/// Compares with leases that do not meet.
void by_own_names(findings& found, const std::string& database, const std::string& url, int threads,
                  const throughput_options& options, const round_options& rounds) {
    const tables where{url};
    std::vector<contestant> all;
    all.push_back(ours(where, threads, options));
    all.push_back(readers(where, threads, options, 0ms));
    all.push_back(readers(where, threads, options, 20ms));
    all.push_back(takers(where, threads, options));
    const auto id = fmt::format("T11/{}-{}", database, threads);
    const auto seen = measured(found, id, all, rounds);
    const auto row = [&](const char* what, std::size_t which, double target) {
        found.add(compared(fmt::format("T11/{}-{}-{}", what, database, threads), seen[which],
                           seen[0], "turns/s", target));
    };
    row("readers", 1, 0.5);
    row("sharing", 2, 3);
    row("semaphore", 3, 0.5);
}

/// The same for takers with a client each, as in as many processes: there no calls are sent
/// together.
void by_clients(findings& found, const std::string& database, const std::string& url, int clients,
                const throughput_options& options, const round_options& rounds) {
    const tables where{url};
    rowlock::semaphore{*client_for(where, options), "limit"}.set_capacity(1'000'000);
    std::vector<contestant> all;
    all.push_back(line_up("own names", clients, [&](int i) {
        return std::make_unique<leaser>(client_for(where, options), name_of(i));
    }));
    all.push_back(
        line_up("semaphore", clients, [&](int) { return taker_of(client_for(where, options)); }));
    all.push_back(line_up("exclusive", clients, [&](int i) {
        return std::make_unique<writer>(client_for(where, options), "page " + name_of(i));
    }));
    const auto id = fmt::format("T11/clients-{}-{}", database, clients);
    const auto seen = measured(found, id, all, rounds);
    found.add(compared(id, seen[1], seen[0], "turns/s", 0.5));
    found.add(compared(fmt::format("T11/exclusive-{}-{}", database, clients), seen[2], seen[0],
                       "turns/s", 0.9));
}

/// Nine readers, each for a millisecond, and one writer in turns with a pause; 95 % of the grants
/// or more are to readers. How much longer the longest wait of the
/// writer is than the longest read.
void writer_among_readers(findings& found, const std::string& database, const std::string& url,
                          bool quick) {
    const tables where{url};
    rowlock::client locks{where.source()};
    rowlock::client others{where.source()};
    std::atomic<bool> stop{false};
    std::atomic<std::int64_t> longest_read{0};
    std::atomic<std::int64_t> reads{0};
    std::int64_t longest_wait = 0;
    std::int64_t writes = 0;
    const cpu_meter cpu;
    {
        std::vector<std::jthread> all;
        for (int i = 0; i < 9; ++i) {
            all.emplace_back([&] {
                rowlock::shared_mutex page{locks, "page"};
                while (!stop) {
                    const std::shared_lock reading{page};
                    const auto began = steady::now();
                    std::this_thread::sleep_for(1ms);
                    const auto took = (steady::now() - began) / 1us;
                    auto longest = longest_read.load();
                    while (took > longest && !longest_read.compare_exchange_weak(longest, took)) {
                    }
                    ++reads;
                }
            });
        }
        rowlock::shared_mutex page{others, "page"};
        const auto end = steady::now() + (quick ? 5s : 20s);
        while (steady::now() < end) {
            std::this_thread::sleep_for(20ms);
            const auto began = steady::now();
            const std::unique_lock writing{page};
            longest_wait = std::max<std::int64_t>(longest_wait, (steady::now() - began) / 1us);
            ++writes;
        }
        stop = true;
    }
    found.note(
        fmt::format("{}: {} reads, {} writes; longest read {:.1f} ms, longest wait of the "
                    "writer {:.1f} ms",
                    database, reads.load(), writes, static_cast<double>(longest_read) / 1000,
                    static_cast<double>(longest_wait) / 1000));
    // A grant that readers share lives for reader_linger and the last of them.
    found.add({.id = "T11/writer-" + database,
               .ours = static_cast<double>(longest_wait - longest_read) / 1000,
               .unit = "ms",
               .side = wanted::at_most,
               .target = 50,
               .our_cpu = cpu.for_each_of(static_cast<double>(reads + writes))});
}

void measure(const program_options& common, const std::vector<std::string>& databases,
             const throughput_options& options, findings& found) {
    const auto rounds = rounds_of(common, options);
    const temporary_folder folder;
    for (const std::string& each : databases) {
        const std::string url = url_of(each, folder);
        by_own_names(found, each, url, 16, options, rounds);
        if (each == "postgresql") by_own_names(found, each, url, 64, options, rounds);
        by_clients(found, each, url, 16, options, rounds);
        writer_among_readers(found, each, url, common.quick);
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_on_databases(
        argc, argv, "Measures shared_mutexes and semaphores that all threads use at once.",
        bench::measure);
}
