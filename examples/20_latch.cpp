// A service opens its doors when three caches are warm, on whatever machines they are filled. The
// process that fills one and dies breaks the latch, so that the service learns of it.
//
//   20_latch [URL]

#include "example.hpp"
#include <rowlock/client.hpp>
#include <rowlock/latch.hpp>

#include <chrono>
#include <iostream>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

void fill_a_cache(const rowlock::sql::connection_source& database, int which) {
    rowlock::client locks{database};  // as in a separate process
    rowlock::latch warm{locks, "caches-warm"};
    warm.begin(3);            // the first of the three begins, for the others it does nothing
    auto mine = warm.join();  // from here on the latch breaks if this process dies
    std::this_thread::sleep_for(which * 10ms);  // … fill it
    mine.arrive();
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        std::vector<std::jthread> others;
        for (int which = 1; which <= 3; ++which) {
            others.emplace_back([&, which] { fill_a_cache(database, which); });
        }
        rowlock::client locks{database};
        rowlock::latch warm{locks, "caches-warm"};
        if (!warm.wait_for(30s)) throw std::runtime_error{"the caches are not warm"};
        const auto seen = warm.inspect();
        std::cout << seen->arrived << " of " << seen->count << " caches are warm: open\n";
    });
}
