#include <rowlock/rowlock.hpp>
#include <rowlock/testing.hpp>

#include <iostream>

int main() {
    rowlock::testing::database database;
    rowlock::client locks{database.source(), database.options()};
    const rowlock::lease lease = locks.acquire("consumer");
    std::cout << "token " << to_string(lease.token()) << '\n';
}
