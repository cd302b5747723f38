// A process dies while it holds a lock. The lock becomes free without a cleanup; a reaper only
// keeps the tables small. Here it is a thread of a client, on a schedule; cron and `rowlock reap`
// serve as well.
//
//   06_scheduled_cleanup [URL]

#include "example.hpp"
#include <rowlock/client.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <iostream>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        const pid_t child = fork();
        if (child == 0) {
            rowlock::client doomed{database, {.ttl = 1s}};
            const auto lease = doomed.acquire("stale-job");
            _exit(0);  // no destructor runs: as if killed
        }
        waitpid(child, nullptr, 0);

        std::promise<std::string> cleaned;
        bool told = false;
        rowlock::client_options options;
        options.reaper = rowlock::reaper_options{.interval = 200ms};
        options.on_event = [&](const rowlock::event& what) {
            if (told || what.kind != rowlock::event_kind::reaped ||
                what.message.find("1 session") == std::string::npos) {
                return;
            }
            told = true;
            cleaned.set_value(what.message);
        };
        rowlock::client janitor{database, options};
        const auto own = janitor.acquire("cleanup");  // a client starts with its first lease

        std::cout << "reaper: " << cleaned.get_future().get() << '\n';
        const auto row = janitor.inspect("stale-job");
        std::cout << (row && row->holder ? "still held\n" : "stale-job is free\n");
    });
}
