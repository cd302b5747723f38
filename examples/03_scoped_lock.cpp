// Two locks at once, taken in opposite orders by two workers: std::scoped_lock avoids the deadlock
// across processes just as it does across threads.
//
//   03_scoped_lock [URL]

#include "example.hpp"
#include <rowlock/mutex.hpp>

#include <iostream>
#include <mutex>
#include <thread>

namespace {

void transfer(const rowlock::sql::connection_source& database, const char* from, const char* to,
              int& balance_from, int& balance_to) {
    rowlock::client locks{database};  // as in a separate process
    rowlock::mutex debit{locks, from};
    rowlock::mutex credit{locks, to};
    for (int i = 0; i < 10; ++i) {
        const std::scoped_lock both{debit, credit};
        --balance_from;
        ++balance_to;
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        int one = 100;
        int two = 100;
        {
            const std::jthread there{
                [&] { transfer(database, "account/1", "account/2", one, two); }};
            const std::jthread back{
                [&] { transfer(database, "account/2", "account/1", two, one); }};
        }
        std::cout << "balances: " << one << " and " << two << '\n';
        if (one != 100 || two != 100) throw std::runtime_error{"money was lost"};
    });
}
