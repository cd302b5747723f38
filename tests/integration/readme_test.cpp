// The code that README.md shows, compiled and run. The first case checks that they are equal.

#include <rowlock/testing.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

// README: from here
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <functional>
#include <string>

using namespace std::chrono_literals;

void send_reports(const std::string& url, std::function<bool(rowlock::fencing_token)> send_next) {
    rowlock::client locks{rowlock::open(url)};                       // one per process
    if (auto lease = locks.try_acquire_for("nightly-report", 5s)) {  // empty: another has it
        bool more = true;
        while (more && lease->held()) more = send_next(lease->token());  // held(): no round trip
    }                                                                    // released here
}
// README: to here

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

TEST_CASE("README.md shows the code that is compiled here") {
    const auto shown = between(read("README.md"), "```cpp\n", "```");
    const auto compiled = between(read("tests/integration/readme_test.cpp"),
                                  "// README: from here\n", "// README: to");
    CHECK_FALSE(shown.empty());
    CHECK(shown == compiled);
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
