// A rolling restart: the old process hands its lock to the new one, which holds it from the same
// commit on. The lock is never free in between, so no third process gets it.
//
//   19_transfer [URL]

#include "example.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <condition_variable>
#include <future>
#include <iostream>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

/// The old process: sends the offer, and waits until the lock has been adopted.
void old_process(rowlock::client& locks, std::promise<std::string>& to_the_new_one) {
    auto lease = locks.acquire("ingest", {.note = "version 1"});
    std::cout << "old: token " << lease.token().value() << '\n';
    // … work; then a deploy asks this process to hand over: it stops its work first.
    const auto over = lease.lost();
    to_the_new_one.set_value(lease.offer().text());  // through a pipe, or a file

    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock{mutex};
    changed.wait_for(lock, over, 30s, [] { return false; });
    std::cout << "old: " << (over.stop_requested() ? "handed over\n" : "not adopted\n");
}  // an offer that was not adopted is withdrawn here, and the lock is free

void new_process(rowlock::client& locks, std::future<std::string> from_the_old_one) {
    const auto offer = rowlock::lease_offer::parse(from_the_old_one.get());
    const auto lease = locks.adopt(offer);
    if (!lease) throw std::runtime_error{"the offer is over: acquire the lock, behind its waiters"};
    std::cout << "new: " << (lease->token() > offer.token ? "a greater token" : "?") << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        std::promise<std::string> pipe;
        auto offer = pipe.get_future();
        std::jthread old{[&] {
            rowlock::client locks{database};
            old_process(locks, pipe);
        }};
        rowlock::client locks{database};  // as in a separate process
        new_process(locks, std::move(offer));
    });
}
