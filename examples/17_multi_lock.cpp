// Transfers between accounts, each under the locks of both: all or nothing, whatever the order in
// which the accounts are named. Nested locks would deadlock here sooner or later.
//
//   17_multi_lock [URL]

#include "example.hpp"
#include <rowlock/client.hpp>

#include <array>
#include <cstddef>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

/// What the locks protect: plain numbers, which no transaction keeps together.
std::array<int, 4> balances{100, 100, 100, 100};

void transfer(rowlock::client& locks, std::size_t from, std::size_t to, int amount) {
    const auto account = [](std::size_t which) { return "account/" + std::to_string(which); };
    const auto both = locks.acquire_all({account(from), account(to)}, {.note = "transfer"});
    if (!both.held()) return;  // no round trip: also ask before each further step
    const int rest = balances[from] - amount;
    std::this_thread::yield();  // another thread would overwrite what this one has read
    balances[from] = rest;
    balances[to] += amount;
}

void work(const rowlock::sql::connection_source& database, unsigned seed) {
    rowlock::client locks{database};  // as in a separate process
    std::mt19937 random{seed};
    for (int i = 0; i < 10; ++i) {
        const std::size_t from = random() % balances.size();
        const std::size_t to = (from + 1 + random() % (balances.size() - 1)) % balances.size();
        transfer(locks, from, to, static_cast<int>(random() % 10));
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        {
            std::vector<std::jthread> all;
            for (unsigned seed = 1; seed <= 4; ++seed) {
                all.emplace_back([&, seed] { work(database, seed); });
            }
        }
        int sum = 0;
        for (const int each : balances) sum += each;
        std::cout << "40 transfers over 4 accounts; the sum is " << sum << ", as it was\n";
    });
}
