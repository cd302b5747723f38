// A child program inherits none of rowlock's descriptors: otherwise a server would take a
// connection for alive after this process has ended, and keep its locks.

#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include "support/waits.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/rowlock.hpp>

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::soon;

namespace {

struct descriptor {
    std::string what;
    bool closed_on_exec = false;
};

std::map<int, descriptor> open_descriptors() {
    std::map<int, descriptor> found;
    DIR* const folder = ::opendir("/proc/self/fd");
    REQUIRE(folder != nullptr);
    while (const dirent* const each = ::readdir(folder)) {
        const int number = std::atoi(each->d_name);
        if (each->d_name[0] == '.' || number == ::dirfd(folder)) continue;
        std::array<char, 256> text{};
        const auto size = ::readlinkat(::dirfd(folder), each->d_name, text.data(), text.size());
        const int flags = ::fcntl(number, F_GETFD);
        if (size <= 0 || flags < 0) continue;
        found[number] = {std::string(text.data(), static_cast<std::size_t>(size)),
                         (flags & FD_CLOEXEC) != 0};
    }
    ::closedir(folder);
    return found;
}

/// The descriptors that were opened since and would be inherited.
std::string inherited_since(const std::map<int, descriptor>& before) {
    std::string all;
    for (const auto& [number, each] : open_descriptors()) {
        const auto was = before.find(number);
        if (was != before.end() && was->second.what == each.what) continue;
        if (!each.closed_on_exec) all += std::to_string(number) + " " + each.what + "; ";
    }
    return all;
}

std::size_t count_since(const std::map<int, descriptor>& before) {
    return open_descriptors().size() - before.size();
}

}  // namespace

TEST_CASE("a child program inherits no descriptor of rowlock or of a database's library") {
    const auto before = open_descriptors();
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options({.ttl = 20s})};
        client other{database.source(), database.options({.ttl = 20s})};
        auto lease = locks.acquire("a");
        // A waiting client has all of these: listening connection, mailbox, wait thread, file
        // watch.
        auto waiting =
            std::async(std::launch::async, [&] { return support::acquire_soon(other, "a"); });
        REQUIRE(eventually([&] { return locks.inspect("a")->waiting == 1; }));
        std::optional<advisory_client> advisory;
        std::optional<advisory_lock> bound;
        if (database.speaks() != sql::dialect::sqlite) {
            advisory.emplace(database.source());
            bound = advisory->lock(database.prefix() + "b");
        }
        row_session rows{database.source()};
        rows.lock_resource("r");
        const auto mine = database.source().connect(soon());
        // The heartbeat's connection opens a moment later. A library's socket is marked once it is
        // connected.
        CHECK(eventually([&] { return count_since(before) >= 6; }));
        CHECK(eventually([&] { return inherited_since(before).empty(); }));
        rows.rollback();
        lease.release();
        CHECK(waiting.get().held());
        // The other client may be opening one more.
        CHECK(eventually([&] { return inherited_since(before).empty(); }));
    }
}

TEST_CASE("connections that threads open at the same time are not inherited either") {
    const auto before = open_descriptors();
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::soci_mariadb) {
        // In that case the driver cannot tell which socket belongs to which connection.
        std::vector<std::future<std::unique_ptr<sql::connection>>> all;
        for (int i = 0; i < 8; ++i) {
            all.push_back(
                std::async(std::launch::async, [&] { return database.source().connect(soon()); }));
        }
        std::vector<std::unique_ptr<sql::connection>> kept;
        for (auto& each : all) kept.push_back(each.get());
        CHECK(inherited_since(before) == "");
    }
}
