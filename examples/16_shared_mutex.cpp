// Many readers and one writer over a catalogue: readers share it, a writer has it alone, and a
// downgrade lets a writer read on without another writer between.
//
//   16_shared_mutex [URL]

#include "example.hpp"
#include <rowlock/shared_mutex.hpp>

#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

void say(const std::string& line) {
    std::ostringstream whole;
    whole << line << '\n';
    std::cout << whole.str();
}

void read(const rowlock::sql::connection_source& database, int reader) {
    rowlock::client locks{database};  // as in a separate process
    rowlock::shared_mutex catalogue{locks, "catalogue"};
    const std::shared_lock reading{catalogue};  // beside other readers
    say("reader " + std::to_string(reader) + " reads");
}

void write(const rowlock::sql::connection_source& database) {
    rowlock::client locks{database};
    rowlock::shared_mutex catalogue{locks, "catalogue"};
    {
        const std::unique_lock writing{catalogue};  // alone
        say("the writer writes with token " + std::to_string(catalogue.token().value()));
    }
    // A lease instead of a guard: it belongs to no thread, and changes its mode.
    auto held = catalogue.acquire(rowlock::lock_mode::upgradeable);  // reads beside readers
    held.upgrade();                                                  // waits for them alone
    say("the writer writes again, with a greater token: " + std::to_string(held.token().value()));
    held.downgrade(rowlock::lock_mode::shared);  // readers enter, no other writer came between
    say("the writer checks what it wrote");
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        std::vector<std::jthread> all;
        for (int i = 1; i <= 4; ++i) all.emplace_back([&, i] { read(database, i); });
        all.emplace_back([&] { write(database); });
    });
}
