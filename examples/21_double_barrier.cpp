// A computation in steps: three workers begin each step together, and none begins the next one
// before all have finished. A worker that dies breaks the step for the others, in a bounded time.
//
//   21_double_barrier [URL]

#include "example.hpp"
#include <rowlock/client.hpp>
#include <rowlock/double_barrier.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <iostream>
#include <thread>
#include <vector>

namespace {

constexpr int workers = 3;
constexpr int steps = 3;

/// How many workers have done a step.
std::array<std::atomic<int>, steps> done{};

void work(const rowlock::sql::connection_source& database) {
    rowlock::client locks{database};  // as in a separate process
    rowlock::double_barrier step{locks, "step", workers};
    for (std::size_t i = 0; i < done.size(); ++i) {
        auto inside = step.enter();  // until the three have entered
        if (i > 0 && done.at(i - 1) != workers) throw std::logic_error{"a step began too early"};
        ++done.at(i);
        inside.leave();  // until the three have left
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        {
            std::vector<std::jthread> all;
            for (int i = 0; i < workers; ++i) all.emplace_back([&] { work(database); });
        }
        for (const auto& each : done) std::cout << each << " workers did a step together\n";
    });
}
