#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <iostream>

int main() {
    const auto source = rowlock::open("sqlite:open_url.db");
    rowlock::migrate(source);
    rowlock::client locks{source};
    const rowlock::lease lease = locks.acquire("consumer");
    std::cout << "token " << to_string(lease.token()) << '\n';
}
