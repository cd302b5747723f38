// Turns of the writers of an SQLite file.

#include "driver/sqlite_turns.hpp"
#include "support/child.hpp"
#include "support/waits.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using rowlock::sqlite::write_turns;
using clock = std::chrono::steady_clock;
using support::eventually;
using support::soon;

/// A database file alone in a folder.
class file {
public:
    file() : folder_{(std::filesystem::temp_directory_path() / "rowlock-turns-XXXXXX").string()} {
        REQUIRE(mkdtemp(folder_.data()) != nullptr);
        std::ofstream{path()} << "x";
    }
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    ~file() { std::filesystem::remove_all(folder_); }

    [[nodiscard]] std::string path() const { return folder_ + "/locks.db"; }
    [[nodiscard]] std::string turns() const { return path() + "-turns"; }
    [[nodiscard]] std::unique_ptr<write_turns> open(write_turns::patience how = {
                                                        .with_turn = 1h, .with_writer = 1h}) const {
        auto made = write_turns::open(path().c_str(), how);
        REQUIRE(made);
        return made;
    }

    struct numbers {
        std::uint32_t next = 0;
        std::uint32_t serving = 0;
    };
    [[nodiscard]] numbers read() const {
        numbers found;
        std::ifstream from{turns(), std::ios::binary};
        from.seekg(8);
        from.read(reinterpret_cast<char*>(&found), sizeof found);
        return found;
    }
    void write(numbers wanted) const {
        std::fstream to{turns(), std::ios::binary | std::ios::in | std::ios::out};
        to.seekp(8);
        to.write(reinterpret_cast<const char*>(&wanted), sizeof wanted);
    }
    /// As if the writer of this ticket had begun its turn then.
    void write_start(std::uint32_t ticket, clock::time_point when) const {
        constexpr std::uint32_t arrived = 0x8000'0000U;
        const auto ms = std::chrono::floor<std::chrono::milliseconds>(when.time_since_epoch());
        const std::uint64_t start = std::uint64_t{ticket} << 32U | arrived |
                                    (static_cast<std::uint64_t>(ms.count()) & 0x7fff'ffffU);
        std::fstream to{turns(), std::ios::binary | std::ios::in | std::ios::out};
        to.seekp(16);
        to.write(reinterpret_cast<const char*>(&start), sizeof start);
    }

private:
    std::string folder_;
};

/// Another process, ended by a signal.
class process {
public:
    explicit process(const std::function<void()>& body) : id_{::fork()} {
        if (id_ != 0) return;
        body();
        for (;;) ::pause();
    }
    process(const process&) = delete;
    process& operator=(const process&) = delete;
    ~process() { end(); }

    void end() {
        if (id_ <= 0) return;
        ::kill(id_, SIGKILL);
        ::waitpid(id_, nullptr, 0);
        id_ = 0;
    }

private:
    pid_t id_;
};

}  // namespace

TEST_CASE("writers of an SQLite file take turns in the order in which they came") {
    const file database;
    const auto first = database.open();
    first->enter(soon());
    std::mutex mutex;
    std::vector<int> order;
    std::vector<std::future<void>> others;
    for (int i = 0; i < 5; ++i) {
        others.push_back(std::async(std::launch::async, [&, i] {
            const auto mine = database.open();
            mine->enter(soon());
            {
                const std::lock_guard lock{mutex};
                order.push_back(i);
            }
            mine->leave();
        }));
        REQUIRE(eventually([&] { return database.read().next == static_cast<unsigned>(i) + 2; }));
    }
    first->leave();
    for (auto& each : others) each.get();
    CHECK(order == std::vector{0, 1, 2, 3, 4});
    CHECK(database.read().serving == 6);
}

TEST_CASE("a turn of an SQLite writer that does not end is skipped, and its end ends no other's") {
    const file database;
    const auto slow = database.open();
    const auto second = database.open({.with_turn = 5ms, .with_writer = 1h});
    const auto from = clock::now();
    slow->enter(soon());
    second->enter(soon());
    CHECK(clock::now() - from >= 4ms);  // the time is kept in whole milliseconds
    CHECK(second->inside());
    slow->leave();
    CHECK(database.read().serving == 1);  // the second one's
    second->leave();
    CHECK(database.read().serving == 2);
}

TEST_CASE("the turns of SQLite writers that were killed are skipped together") {
    const file database;
    const auto first = database.open();
    first->enter(soon());
    constexpr int killed = 64;
    process waiters{[&] {
        for (int i = 0; i < killed; ++i) {
            // A thread that ends early would end its turn.
            std::thread{[&] { database.open().release()->enter(clock::now() + 1h); }}.detach();
        }
    }};
    REQUIRE(eventually([&] { return database.read().next == killed + 1; }));
    waiters.end();
    const auto next = database.open({.with_turn = 1h, .with_writer = 100ms});
    first->leave();
    const auto from = clock::now();
    next->enter(soon());
    CHECK(next->inside());
    CHECK(database.read().serving == killed + 1);
    // One patience, and a millisecond for each.
    CHECK(clock::now() - from < 4s);
}

TEST_CASE(
    "a turn of an SQLite writer that has begun is not skipped by the patience with a writer") {
    const file database;
    const auto first = database.open();
    const auto second = database.open();
    const auto third = database.open({.with_turn = 1h, .with_writer = 1ms});
    first->enter(soon());
    auto queued = std::async(std::launch::async, [&] { second->enter(soon()); });
    REQUIRE(eventually([&] { return database.read().next == 2; }));
    first->leave();
    queued.get();
    CHECK(database.read().serving == 1);
    third->enter(clock::now() + 200ms);
    CHECK_FALSE(third->inside());
    CHECK(database.read().serving == 1);
}

TEST_CASE("a writer of an SQLite file is woken by another process") {
    const file database;
    const auto first = database.open();
    first->enter(soon());
    const process waiter{[&] {
        const auto mine = database.open();
        mine->enter(clock::now() + 1h);
        mine->leave();
    }};
    REQUIRE(eventually([&] { return database.read().next == 2; }));
    first->leave();
    CHECK(eventually([&] { return database.read().serving == 2; }));
}

TEST_CASE(
    "a writer of an SQLite file waits for its turn for half of its time, and leaves the queue") {
    const file database;
    const auto first = database.open();
    first->enter(soon());
    const auto second = database.open();
    const auto from = clock::now();
    second->enter(from + 20ms);
    CHECK(clock::now() - from >= 10ms);
    CHECK_FALSE(second->inside());
    CHECK(database.read().serving == 0);  // not skipped
    second->leave();
    CHECK(database.read().serving == 0);  // the first one's turn
    auto third = std::async(std::launch::async, [&] {
        const auto mine = database.open();
        mine->enter(soon());
        mine->leave();
    });
    REQUIRE(eventually([&] { return database.read().next == 3; }));
    first->leave();
    third.get();
    CHECK(database.read().serving == 3);
}

TEST_CASE("writers of an SQLite file that left the queue cost those behind them nothing") {
    const file database;
    const auto first = database.open();
    first->enter(soon());
    for (int i = 0; i < 1000; ++i) database.open()->enter(clock::now());
    CHECK(database.read().next == 1001);
    first->leave();
    CHECK(database.read().serving == 1001);
    const auto next = database.open();
    next->enter(soon());
    CHECK(next->inside());
}

TEST_CASE("a writer of an SQLite file that leaves the queue as its turn comes does not keep it") {
    const file database;
    for (int round = 0; round < 300; ++round) {
        const auto first = database.open();
        first->enter(soon());
        auto other = std::async(std::launch::async, [&] {
            database.open()->enter(clock::now() + std::chrono::microseconds{round});
        });
        std::this_thread::sleep_for(std::chrono::microseconds{round / 2});
        first->leave();
        other.get();
        const auto now = database.read();
        REQUIRE(now.serving == now.next);
    }
}

TEST_CASE("the turn of a dead SQLite writer is skipped, though each waiter has little time") {
    const file database;
    process owner{[&] {
        // Its destructor would end the turn.
        database.open().release()->enter(clock::now() + 1h);
    }};
    REQUIRE(eventually([&] { return database.read().next == 1; }));
    owner.end();
    CHECK(eventually([&] {
        const auto one = database.open({.with_turn = 50ms, .with_writer = 50ms});
        one->enter(clock::now() + 4ms);
        return one->inside();
    }));
}

TEST_CASE("damaged turns of an SQLite file cost their order alone") {
    const file database;
    database.open().reset();
    for (const auto numbers : {file::numbers{.next = 7, .serving = 4'000'000'000},
                               file::numbers{.next = 7, .serving = 2'000'000'000},
                               file::numbers{.next = 4'000'000'000, .serving = 7},
                               file::numbers{.next = 50'000, .serving = 0}}) {
        database.write(numbers);
        const auto one = database.open();
        one->enter(soon());
        CHECK(one->inside());
        CHECK(database.read().serving == numbers.next);
        one->leave();
        CHECK(database.read().serving == numbers.next + 1);
    }
}

TEST_CASE("a waiter for a turn of an SQLite file goes on when the numbers are set back") {
    const file database;
    const auto owner = database.open();
    owner->enter(soon());
    database.write({.next = 100, .serving = 0});
    auto waiter = std::async(std::launch::async, [&] {
        const auto mine = database.open({.with_turn = 300ms, .with_writer = 5ms});
        mine->enter(soon());
        return mine->inside();
    });
    REQUIRE(eventually([&] { return database.read().next == 101; }));
    database.write({.next = 1, .serving = 0});
    CHECK(waiter.get());
}

TEST_CASE("a turn of an SQLite writer that began after a waiter read its clock is not skipped") {
    const file database;
    const auto owner = database.open();
    owner->enter(soon());
    const auto gets_in = [&](rowlock::sql::deadline until) {
        const auto one = database.open({.with_turn = 1h, .with_writer = 1h});
        one->enter(until);
        return one->inside();
    };
    database.write_start(0, clock::now() + 500ms);
    CHECK_FALSE(gets_in(clock::now() + 200ms));
    // Of a machine that was started anew since (control).
    database.write_start(0, clock::now() + 1h);
    CHECK(gets_in(soon()));
}

TEST_CASE("the numbers of an SQLite file's turns may wrap around") {
    const file database;
    const auto one = database.open();
    const auto other = database.open();
    database.write({.next = 0xffff'ffff, .serving = 0xffff'ffff});
    one->enter(soon());
    auto second = std::async(std::launch::async, [&] { other->enter(soon()); });
    REQUIRE(eventually([&] { return database.read().next == 1; }));
    one->leave();
    second.get();
    other->leave();
    CHECK(database.read().serving == 1);
}

TEST_CASE("the file of an SQLite database's turns has the database's mode") {
    for (const mode_t mode : {0600U, 0660U, 0666U}) {
        const file database;
        REQUIRE(::chmod(database.path().c_str(), mode) == 0);
        database.open().reset();
        struct stat found = {};
        REQUIRE(::stat(database.turns().c_str(), &found) == 0);
        CHECK((found.st_mode & 0777) == mode);
        const auto files = std::filesystem::directory_iterator{
            std::filesystem::path{database.path()}.parent_path()};
        CHECK(std::distance(begin(files), end(files)) == 2);
    }
}

TEST_CASE("turns that more users may write than the SQLite database are kept from them") {
    const file database;
    REQUIRE(::chmod(database.path().c_str(), 0666) == 0);
    database.open().reset();
    REQUIRE(::chmod(database.path().c_str(), 0600) == 0);
    database.open().reset();
    struct stat found = {};
    REQUIRE(::stat(database.turns().c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0600);
}

TEST_CASE("an SQLite database has no turns where no file for them can be made") {
    CHECK(write_turns::open("/nowhere/locks.db") == nullptr);
    const auto refused = [](const auto& plant) {
        const file database;
        plant(database.path(), database.turns());
        CHECK(write_turns::open(database.path().c_str()) == nullptr);
        CHECK(std::filesystem::file_size(database.path()) == 1);
    };
    refused(
        [](const auto& path, const auto& turns) { std::filesystem::create_symlink(path, turns); });
    refused([](const auto& path, const auto& turns) {
        std::filesystem::create_hard_link(path, turns);
    });
    refused([](const auto&, const auto& turns) { std::filesystem::create_directory(turns); });
    refused([](const auto&, const auto& turns) { REQUIRE(::mkfifo(turns.c_str(), 0600) == 0); });
    refused([](const auto&, const auto& turns) { std::ofstream{turns} << "other words"; });
    refused([](const auto&, const auto& turns) { std::ofstream{turns}.close(); });
}

TEST_CASE("an SQLite database has no turns where the disk has no room for the file") {
    const file database;
    CHECK(support::is_true_in_child([&] {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit least{.rlim_cur = 100, .rlim_max = 100};
        return ::setrlimit(RLIMIT_FSIZE, &least) == 0 &&
               write_turns::open(database.path().c_str()) == nullptr;
    }));
    CHECK_FALSE(std::filesystem::exists(database.turns()));
}

TEST_CASE("a link to an SQLite database in the place of its turns costs none of its locks") {
    const file database;
    std::filesystem::create_hard_link(database.path(), database.turns());
    const int mine = ::open(database.path().c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(mine >= 0);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    REQUIRE(::fcntl(mine, F_SETLK, &lock) == 0);
    CHECK(write_turns::open(database.path().c_str()) == nullptr);
    CHECK(support::is_true_in_child([&] {  // another process
        const int other = ::open(database.path().c_str(), O_RDWR | O_CLOEXEC);
        return other >= 0 && ::fcntl(other, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
    }));
    ::close(mine);
}
