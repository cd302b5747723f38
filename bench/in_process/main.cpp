// Operations without a database (T9): re-entry by the thread that holds the lock, and held().
#include "common/measure.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include <rowlock/mutex.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <mutex>
#include <stdexcept>

namespace bench {
namespace {

constexpr int rounds = 15;

struct measured_action {
    double ns;  ///< the median of several rounds
    cpu_cost cpu;
};

template <typename Action>
measured_action measure_one(int times, const Action& action) {
    std::vector<double> each;
    const auto before = own_cpu_time();
    for (int round = -1; round < rounds; ++round) {
        const double us = duration_us([&] {
            for (int i = 0; i < times; ++i) action();
        });
        if (round >= 0) each.push_back(us * 1000 / times);
    }
    return {median(each), cost_of_one((rounds + 1.0) * times, own_cpu_time() - before, {})};
}

void measure(const program_options& options, findings& found) {
    const int times = options.quick ? 100'000 : 1'000'000;
    const temporary_folder folder;
    const tables where{"sqlite:" + (folder.path() / "locks.db").string()};
    rowlock::client locks{where.source()};

    rowlock::recursive_mutex again{locks, "again"};
    std::recursive_mutex standard;
    const std::lock_guard outer{again};
    const std::lock_guard standard_outer{standard};
    const auto ours = measure_one(times, [&] {
        again.lock();
        again.unlock();
    });
    const auto theirs = measure_one(times, [&] {
        standard.lock();
        standard.unlock();
    });
    const auto lease = locks.acquire("held");
    int held = 0;
    const auto asking = measure_one(times, [&] { held += lease.held() ? 1 : 0; });
    if (held != (rounds + 1) * times) throw std::runtime_error{"the lease was lost meanwhile"};

    found.note(fmt::format("lock and unlock again: {:.0f} ns; std::recursive_mutex: {:.0f} ns",
                           ours.ns, theirs.ns));
    found.add({.id = "T9/re-entry",
               .ours = ours.ns,
               .unit = "ns, lock and unlock",
               .side = wanted::at_most,
               .target = 200,
               .our_cpu = ours.cpu});
    found.add({.id = "T9/held",
               .ours = asking.ns,
               .unit = "ns",
               .side = wanted::at_most,
               .target = 50,
               .our_cpu = asking.cpu});
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_program(argc, argv, "Measures operations without a database.",
                              bench::measure);
}
