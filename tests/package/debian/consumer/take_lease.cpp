#include <rowlock/driver/postgresql.hpp>
#include <rowlock/rowlock.hpp>

#include <cstdlib>
#include <iostream>

int main() {
    rowlock::client locks{rowlock::postgresql::open(std::getenv("URL"))};
    const rowlock::lease lease = locks.acquire("consumer");
    std::cout << "token " << to_string(lease.token()) << '\n';
}
