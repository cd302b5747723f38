// Transfers write two accounts, audits read all four: each takes what it needs at once, in its own
// modes. Audits run beside each other, and see no transfer half done.
//
//   23_multi_mode [URL]

#include "example.hpp"
#include <rowlock/client.hpp>
#include <rowlock/multi_lease.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using rowlock::lock_mode;

/// What the locks protect: plain numbers, which no transaction keeps together.
std::array<int, 4> balances{100, 100, 100, 100};
std::atomic<int> wrong_sums{0};

std::string account(std::size_t which) {
    return "account/" + std::to_string(which);
}

void transfer(rowlock::client& locks, std::size_t from, std::size_t to, int amount) {
    const auto both = locks.acquire_all({account(from), account(to)}, {.note = "transfer"});
    if (!both.held()) return;  // no round trip: also ask before each further step
    balances[from] -= amount;
    std::this_thread::yield();  // now the sum is wrong
    balances[to] += amount;
}

void audit(rowlock::client& locks) {
    std::vector<rowlock::lock_request> wanted;
    for (std::size_t i = 0; i < balances.size(); ++i) {
        wanted.emplace_back(account(i), lock_mode::shared);
    }
    const auto all = locks.acquire_all(wanted, {.note = "audit"});
    int sum = 0;
    for (const int each : balances) sum += each;
    if (all.held() && sum != 400) ++wrong_sums;
}

void work(const rowlock::sql::connection_source& database, unsigned seed) {
    rowlock::client locks{database};  // as in a separate process
    std::mt19937 random{seed};
    for (int i = 0; i < 10; ++i) {
        if (seed % 2 == 0) {
            audit(locks);
            continue;
        }
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
        std::cout << "20 transfers and 20 audits of 4 accounts; " << wrong_sums
                  << " audits found another sum than 400\n";
    });
}
