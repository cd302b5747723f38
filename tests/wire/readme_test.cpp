// The code that README.md and docs/choose.md show, compiled and run. The first case checks that
// they are equal.

#include <rowlock/testing.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

// README: from here
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <functional>
#include <string>

void send_reports(const std::string& url, std::function<bool(rowlock::fencing_token)> send_next) {
    rowlock::client locks{rowlock::open(url)};  // one per process
    if (auto lease = locks.try_acquire_for("nightly-report", std::chrono::seconds{5})) {
        bool more = true;
        while (more && lease->held()) more = send_next(lease->token());  // held(): no round trip
    }                                                                    // released here
}
// README: to here

// choose.md: from here
#include <rowlock/rowlock.hpp>

#include <functional>
#include <shared_mutex>

// Many readers or one writer, over all processes.
void read_catalogue(rowlock::client& locks, const std::function<void()>& read) {
    rowlock::shared_mutex catalogue{locks, "catalogue"};
    const std::shared_lock reading{catalogue};  // a writer: std::unique_lock
    read();
}

// Up to five at a time, over all processes.
void call_billing(rowlock::client& locks, const std::function<void()>& call) {
    rowlock::semaphore limit{locks, "billing"};
    limit.create(5);                      // unless it is there
    const auto permit = limit.acquire();  // given back when it is destroyed, or its process dies
    call();
}
// choose.md: to here

namespace {

std::string read(const std::string& name) {
    std::ifstream file{ROWLOCK_SOURCE_DIR "/" + name};
    return {std::istreambuf_iterator<char>{file}, {}};
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const auto start = text.find(begin);
    if (start == std::string::npos) return {};
    const auto from = start + begin.size();
    return text.substr(from, text.find(end, from) - from);
}

}  // namespace

TEST_CASE("README.md and choose.md show the code that is compiled here") {
    const auto shown = between(read("README.md"), "```cpp\n", "```");
    const auto compiled =
        between(read("tests/wire/readme_test.cpp"), "// README: from here\n", "// README: to");
    CHECK_FALSE(shown.empty());
    CHECK(shown == compiled);
    const auto limit = between(read("docs/choose.md"), "```cpp\n", "```");
    CHECK_FALSE(limit.empty());
    CHECK(limit == between(read("tests/wire/readme_test.cpp"), "// choose.md: from here\n",
                           "// choose.md: to"));
}

TEST_CASE("choose.md's reader reads beside others, and its limit lets five in") {
    rowlock::testing::database database;
    rowlock::client locks{database.source()};
    rowlock::client elsewhere{database.source()};
    rowlock::shared_mutex catalogue{elsewhere, "catalogue"};
    int done = 0;
    read_catalogue(locks, [&] {
        CHECK_FALSE(catalogue.try_lock());
        CHECK(catalogue.try_lock_shared());
        catalogue.unlock_shared();
        ++done;
    });
    CHECK(catalogue.try_lock());
    catalogue.unlock();
    call_billing(locks, [&] {
        rowlock::semaphore limit{elsewhere, "billing"};
        const auto rest = limit.try_acquire(4);
        CHECK(rest);
        CHECK_FALSE(limit.try_acquire());
        ++done;
    });
    CHECK(rowlock::semaphore{elsewhere, "billing"}.available() == 5);
    CHECK(done == 2);
}

TEST_CASE(
    "README.md's example works under the lock, stops when its callback says so, and frees the "
    "lock") {
    rowlock::testing::database database;
    const std::string url = database.source().description();
    rowlock::client elsewhere{rowlock::open(url)};
    int sent = 0;
    send_reports(url, [&](rowlock::fencing_token token) {
        CHECK_FALSE(elsewhere.try_acquire("nightly-report"));
        CHECK(token.value() >= 1);
        return ++sent < 3;
    });
    CHECK(sent == 3);
    CHECK(elsewhere.try_acquire("nightly-report"));
}
