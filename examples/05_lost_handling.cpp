// A lease can be lost: no heartbeat succeeded in time, or, as here, an operator broke the lock.
// lost() is a std::stop_token: code that accepts one stops by itself.
//
//   05_lost_handling [URL]

#include "example.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <stop_token>

using namespace std::chrono_literals;

namespace {

/// Works until it is done or a stop is requested. True if it was done.
bool work(std::stop_token stop) {
    std::mutex mutex;
    std::condition_variable_any step;
    std::unique_lock lock{mutex};
    step.wait_for(lock, stop, 30s, [] { return false; });
    return !stop.stop_requested();
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        // A short ttl, so that the loss is detected soon: a heartbeat every third of it.
        rowlock::client locks{database, {.ttl = 1500ms}};
        auto lease = locks.acquire("migration");

        rowlock::client operators{database};
        operators.force_release("migration");  // `rowlock break migration` does this

        if (work(lease.lost())) throw std::runtime_error{"worked on without the lock"};
        std::cout << "stopped: the lease was lost, held() is " << std::boolalpha << lease.held()
                  << '\n';
        try {
            lease.release();
        } catch (const rowlock::error& failure) {
            if (failure.kind() != rowlock::errc::lock_lost) throw;
            std::cout << "release() says so too: " << failure.what() << '\n';
        }
    });
}
