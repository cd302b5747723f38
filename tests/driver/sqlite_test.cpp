// The promises of the SQLite drivers beyond the contract of every driver.
#include "driver/sqlite_path.hpp"
#include "support/child.hpp"
#include "support/failure.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

// The file system that statfs() below reports, or 0 for the true one.
thread_local long pretended_file_system = 0;

}  // namespace

// Replaces the C library's function for the whole program.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's own names
extern "C" int statfs(const char* path, struct statfs* found) noexcept {
    static const auto real =
        reinterpret_cast<int (*)(const char*, struct statfs*)>(dlsym(RTLD_NEXT, "statfs"));
    const int answer = real(path, found);
    if (answer == 0 && pretended_file_system != 0) found->f_type = pretended_file_system;
    return answer;
}

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::sql::connection;
using rowlock::sql::statement;
using rowlock::sql::value;
using clock = std::chrono::steady_clock;
using support::kind_of;
using support::soon;

// A fresh file name in the private folder.
std::string new_path() {
    static std::atomic<int> count{0};
    return sqlite_path("own-" + std::to_string(++count) + ".db");
}

std::unique_ptr<connection> connect(const std::string& path, const std::string& parameters = "") {
    return rowlock::sqlite::open("sqlite:" + path + parameters).connect(soon());
}

mode_t mode_of(const std::string& path) {
    struct stat found = {};
    REQUIRE(::stat(path.c_str(), &found) == 0);
    return found.st_mode & 07777;
}

// A write to the table t waits for another connection's transaction, in vain.
void find_locked(connection& db, const std::string& path) {
    const auto other = connect(path);
    (void)other->query("begin immediate", soon());
    CHECK(kind_of([&] { (void)db.query("insert into t values (2)", clock::now() + 20ms); }) ==
          errc::timed_out);
    (void)other->query("rollback", soon());
}

}  // namespace

// --- the file ---

TEST_CASE("a new SQLite file, its log and its shared memory are accessible only to their owner") {
    const std::string path = new_path();
    const mode_t before = ::umask(0);
    const auto db = connect(path);
    (void)db->query("create table t (a)", soon());
    ::umask(before);
    CHECK(mode_of(path) == 0600);
    CHECK(mode_of(path + "-wal") == 0600);
    CHECK(mode_of(path + "-shm") == 0600);
}

TEST_CASE("an existing SQLite file keeps its mode, and its log has the same") {
    const std::string path = new_path();
    std::ofstream{path}.close();
    REQUIRE(::chmod(path.c_str(), 0660) == 0);
    const auto db = connect(path);
    (void)db->query("create table t (a)", soon());
    CHECK(mode_of(path) == 0660);
    CHECK(mode_of(path + "-wal") == 0660);
}

TEST_CASE("an SQLite database is in WAL mode and synchronous as asked") {
    const std::string path = new_path();
    const auto pragma = [](connection& db, const std::string& name) {
        return std::string{db.query("pragma " + name, soon()).text(0, 0)};
    };
    const auto full = connect(path);
    CHECK(pragma(*full, "journal_mode") == "wal");
    CHECK(pragma(*full, "synchronous") == "2");
    CHECK(full->round_trips() == 2);
    CHECK(pragma(*connect(path, "?synchronous=normal"), "synchronous") == "1");
    CHECK(pragma(*connect(path, "?synchronous=full&create=false"), "synchronous") == "2");
}

TEST_CASE("many threads open a new SQLite file at once, and all can write") {
    for (int round = 0; round < 5; ++round) {
        const std::string path = new_path();
        std::atomic<int> written{0};
        {
            std::vector<std::jthread> threads;
            for (int n = 0; n < 8; ++n) {
                threads.emplace_back([&] {
                    try {
                        const auto db = connect(path);
                        (void)db->query("create table if not exists t (a)", soon());
                        (void)db->query("insert into t values (1)", soon());
                        ++written;
                    } catch (const rowlock::error& e) {
                        FAIL_CHECK(e.what() << ": " << e.server_message());
                    }
                });
            }
        }
        CHECK(written == 8);
        CHECK(connect(path)->query("select count(*) from t", soon()).integer(0, 0) == 8);
    }
}

TEST_CASE("a connection that is made while the last other one closes opens a new log") {
    const std::string path = new_path();
    std::atomic<int> refused{0};
    {
        std::vector<std::jthread> threads;
        for (int n = 0; n < 4; ++n) {
            threads.emplace_back([&] {
                // SQLite deletes the log with the last connection: dozens of times here.
                for (int i = 0; i < 100; ++i) {
                    try {
                        (void)connect(path)->query("select 1", soon());
                    } catch (const rowlock::error& e) {
                        ++refused;
                        MESSAGE(std::string{e.what()});
                    }
                }
            });
        }
    }
    CHECK(refused == 0);
}

TEST_CASE("sqlite: URLs are decoded, and nonsense is refused with a reason") {
    const std::string path = new_path();
    const std::string odd = path + " 100%?#";
    const auto db = connect(path + "%20100%25%3f#");
    CHECK(std::filesystem::exists(odd));
    CHECK(rowlock::sqlite::open("sqlite://" + path).description() == "sqlite:" + path);
    CHECK(rowlock::sqlite::open("sqlite:some.db").description() ==
          "sqlite:" + (std::filesystem::current_path() / "some.db").string());
    for (const char* const url :
         {"sqlite:", "sqlite:?create=true",
          "sqlite::memory:", "sqlite:file::memory:", "sqlite:file:x.db?mode=memory",
          "sqlite://host/x.db", "sqlite://", "postgresql:x", "", "sqlite:x.db?mode=ro",
          "sqlite:x.db?create=maybe", "sqlite:x.db?create", "sqlite:x.db?synchronous=off",
          "sqlite:%zz.db", "sqlite:x%", "sqlite:x%2", "sqlite:a%00b", "sqlite:%3Amemory%3A"}) {
        CAPTURE(url);
        CHECK(kind_of([&] { (void)rowlock::sqlite::open(url); }) == errc::invalid_url);
    }
}

TEST_CASE("the error for an SQLite file that cannot be opened gives the reason") {
    const std::string path = new_path();
    const auto refusal = [](const std::string& at, const std::string& parameters = "") {
        return kind_of([&] { (void)connect(at, parameters); });
    };
    CHECK(refusal(path, "?create=false") == errc::database_unreachable);
    CHECK_FALSE(std::filesystem::exists(path));
    // Errors that no repetition mends.
    CHECK(refusal(path + "/missing/folder.db") == errc::invalid_url);
    CHECK(refusal(sqlite_path("")) == errc::invalid_url);
    CHECK(refusal("/dev/null") == errc::invalid_url);
    std::ofstream{path + ".plain"} << "x";
    CHECK(refusal(path + ".plain/in-a-file.db") == errc::invalid_url);

    std::ofstream{path} << std::string(5000, 'x');
    CHECK(refusal(path) == errc::database_error);
    std::ifstream unharmed{path};
    CHECK(std::string{std::istreambuf_iterator<char>{unharmed}, {}} == std::string(5000, 'x'));
}

TEST_CASE("an SQLite file that this user may not write is read-only or denied, not half open") {
    const std::string path = new_path();
    (void)connect(path)->query("create table t (a)", soon());
    const std::filesystem::path folder = std::filesystem::path{path}.parent_path();
    REQUIRE(::chmod(folder.c_str(), 0755) == 0);
    const auto as_nobody = [&](const std::string& at, errc expected) {
        return support::is_true_in_child([&] {
            if (::geteuid() == 0 && ::setuid(65534) != 0) return false;
            try {
                (void)connect(at);
            } catch (const rowlock::error& e) {
                return e.kind() == expected;
            }
            return false;
        });
    };
    REQUIRE(::chmod(path.c_str(), 0444) == 0);
    CHECK(as_nobody(path, errc::read_only));
    REQUIRE(::chmod(path.c_str(), 0) == 0);
    CHECK(as_nobody(path, errc::access_denied));
    REQUIRE(::chmod(folder.c_str(), 0555) == 0);
    CHECK(as_nobody(new_path(), errc::access_denied));
    REQUIRE(::chmod(folder.c_str(), 0700) == 0);
}

TEST_CASE("SQLite on a network file system is refused, and no file is made there") {
    for (const long magic : {0x6969L, 0xff534d42L, 0xfe534d42L, 0x517bL}) {
        const std::string path = new_path();
        pretended_file_system = magic;
        const errc kind = kind_of([&] { (void)connect(path); });
        pretended_file_system = 0;
        CHECK(kind == errc::unsupported);
        CHECK_FALSE(std::filesystem::exists(path));
        CHECK_NOTHROW((void)connect(path));
    }
}

TEST_CASE("a borrowed SQLite handle on a network file system is not watched") {
    const std::string path = new_path();
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
    {
        rowlock::sqlite::connection_ref db{handle};
        pretended_file_system = 0x6969L;
        const errc kind = kind_of([&] { db.notifications()->listen("", soon()); });
        pretended_file_system = 0;
        CHECK(kind == errc::unsupported);
        CHECK(db.notifications()->descriptor() == -1);
        CHECK_NOTHROW(db.notifications()->listen("", soon()));
    }
    CHECK(sqlite3_close(handle) == SQLITE_OK);
}

TEST_CASE("an SQLite file that was deleted or replaced under a connection is noticed") {
    const std::string path = new_path();
    const auto db = connect(path);
    (void)db->query("create table t (a)", soon());
    std::filesystem::rename(path, path + ".old");
    CHECK(kind_of([&] { (void)db->query("insert into t values (1)", soon()); }) ==
          errc::database_unreachable);
    CHECK_FALSE(db->alive());
    const auto other = connect(path);
    CHECK(kind_of([&] { (void)other->query("select * from t", soon()); }) == errc::schema_outdated);
    std::filesystem::rename(path + ".old", path);
    CHECK(kind_of([&] { (void)other->query("select 1", soon()); }) == errc::database_unreachable);
}

// --- locks and deadlines ---

TEST_CASE("a snapshot that became stale is a conflict, at once") {
    const std::string path = new_path();
    const auto one = connect(path);
    const auto two = connect(path);
    (void)one->query("create table t (a)", soon());
    (void)one->query("begin", soon());
    (void)one->query("select * from t", soon());
    (void)two->query("insert into t values (1)", soon());
    const auto start = clock::now();
    CHECK(kind_of([&] { (void)one->query("insert into t values (2)", soon()); }) == errc::conflict);
    CHECK(clock::now() - start < 20s);  // soon() is later
    (void)one->query("rollback", soon());
    CHECK(one->query("insert into t values (2)", soon()).affected() == 1);
}

TEST_CASE("all writers of one SQLite file succeed") {
    const std::string path = new_path();
    (void)connect(path)->query("create table t (a)", soon());
    {
        std::vector<std::jthread> threads;
        for (int n = 0; n < 6; ++n) {
            threads.emplace_back([&] {
                const auto db = connect(path, "?synchronous=normal");
                const statement insert{"insert into t values ($1)"};
                try {
                    for (int k = 0; k < 100; ++k) {
                        (void)db->execute(insert, std::vector<value>{k}, soon());
                    }
                } catch (const rowlock::error& e) {
                    FAIL_CHECK(e.what());
                }
            });
        }
    }
    CHECK(connect(path)->query("select count(*) from t", soon()).integer(0, 0) == 600);
}

TEST_CASE(
    "a connection that finds an SQLite file locked takes turns with its writers from then on") {
    const std::string path = new_path();
    auto db = connect(path);
    const auto turns = [&] {
        std::array<std::uint32_t, 2> numbers{};
        std::ifstream file{path + "-turns", std::ios::binary};
        file.seekg(8);
        file.read(reinterpret_cast<char*>(numbers.data()), sizeof numbers);
        return numbers;
    };
    using numbers = std::array<std::uint32_t, 2>;  // the next ticket, the one that is served
    const auto run = [&](const char* text) { (void)db->query(text, soon()); };
    run("create table t (a unique)");
    run("insert into t values (1)");
    CHECK_FALSE(std::filesystem::exists(path + "-turns"));

    find_locked(*db, path);
    CHECK(turns() == numbers{1, 1});

    run("/* a comment */ INSERT into t values (2)");
    CHECK(turns() == numbers{2, 2});
    run("select count(*) from t");
    CHECK(turns() == numbers{2, 2});
    CHECK(kind_of([&] { run("insert into t values (2)"); }) == errc::unique_violation);
    CHECK(turns() == numbers{3, 3});
    run("begin immediate");
    CHECK(turns() == numbers{4, 3});
    run("select count(*) from t");
    run("insert into t values (3)");
    CHECK(kind_of([&] { run("insert into t values (3)"); }) == errc::unique_violation);
    CHECK(turns() == numbers{4, 3});
    run("commit");
    CHECK(turns() == numbers{4, 4});
    run("begin");
    run("insert into t values (4)");
    CHECK(turns() == numbers{5, 4});
    run("rollback");
    CHECK(turns() == numbers{5, 5});
    // One that holds a snapshot must not wait for others to change it.
    run("begin");
    run("select count(*) from t");
    run("insert into t values (4)");
    CHECK(turns() == numbers{5, 5});
    run("rollback");
    run("pragma journal_mode=wal");
    run("vacuum");
    CHECK(turns() == numbers{5, 5});
    run("begin immediate");
    CHECK(turns() == numbers{6, 5});
    CHECK(support::is_true_in_child([&] {
        db.reset();
        return true;
    }));
    CHECK(turns() == numbers{6, 5});  // the child has none
    db.reset();
    CHECK(turns() == numbers{6, 6});
}

TEST_CASE(
    "the log of an SQLite file is checkpointed every thousand pages, with turns and without") {
    for (const bool turns : {false, true}) {
        CAPTURE(turns);
        const std::string path = new_path();
        const auto db = connect(path);
        (void)db->query("create table t (a)", soon());
        if (turns) find_locked(*db, path);
        CHECK(std::filesystem::exists(path + "-turns") == turns);
        CHECK(std::filesystem::file_size(path) < 100'000);
        (void)db->query("begin immediate", soon());
        for (int i = 0; i < 1100; ++i) {
            (void)db->query("insert into t values (zeroblob(4000))", soon());
        }
        (void)db->query("commit", soon());
        CHECK(std::filesystem::file_size(path) > 4'000'000);
    }
}

// SQLite calls its progress handler once more after a statement has committed. An interrupt there
// would report "timed out, nothing was done" for rows that exist.
TEST_CASE("a statement that timed out has changed nothing, at any of its instructions") {
    const std::string path = new_path();
    auto until = soon();
    rowlock::sqlite::options options;
    options.testing_clock = [&] {
        while (clock::now() < until) std::this_thread::yield();
        return 0;
    };
    const auto db =
        rowlock::sqlite::open("sqlite:" + path + "?synchronous=normal", options).connect(soon());
    (void)db->query("create table t (a)", soon());
    // The deadline passes in the last row. The number of rows varies when the handler is called.
    const statement insert{
        "with recursive c(n) as (select 1 union all select n + 1 from c where n < $1) "
        "insert into t select case when n = $1 then rowlock_testing_now() else n end from c"};
    int done = 0;
    for (int rows = 1; rows <= 300; ++rows) {
        CAPTURE(rows);
        bool timed_out = false;
        until = clock::now() + 2ms;
        try {
            (void)db->execute(insert, std::vector<value>{rows}, until);
        } catch (const rowlock::error& e) {
            CHECK(e.kind() == errc::timed_out);
            timed_out = true;
        }
        const auto there = db->query("select count(*) from t", soon()).integer(0, 0);
        CHECK(there == (timed_out ? 0 : rows));
        done += timed_out ? 0 : 1;
        (void)db->query("delete from t", soon());
    }
    CHECK(done > 0);
}

TEST_CASE("a statement that was read to its end holds no snapshot") {
    const std::string path = new_path();
    const auto db = connect(path);
    const auto other = connect(path);
    (void)db->query("create table t (a primary key)", soon());
    const statement select{"select * from t"};
    const statement insert{"insert into t values ($1)"};
    for (const int n : {1, 2, 3}) (void)db->execute(insert, std::vector<value>{n}, soon());
    (void)db->execute(select, {}, soon());
    CHECK(kind_of([&] { (void)db->execute(insert, std::vector<value>{1}, soon()); }) ==
          errc::unique_violation);
    const auto busy = other->query("pragma wal_checkpoint(truncate)", clock::now() + 20s);
    CHECK(busy.integer(0, 0) == 0);
}

TEST_CASE("text with more than one statement is refused") {
    const std::string path = new_path();
    const auto db = connect(path);
    (void)db->query("create table t (a);  -- that is all\n /* really */ ;", soon());
    CHECK(kind_of([&] {
              (void)db->query("insert into t values (1); insert into t values (2)", soon());
          }) == errc::invalid_options);
    CHECK(db->query("select count(*) from t", soon()).integer(0, 0) == 0);
    CHECK(db->query("", soon()).columns() == 0);
}

// --- fork ---

TEST_CASE("a forked child can neither use nor close its parent's SQLite connection") {
    const std::string path = new_path();
    auto db = connect(path);
    (void)db->query("create table t (a)", soon());
    const statement insert{"insert into t values ($1)"};
    (void)db->execute(insert, std::vector<value>{0}, soon());
    (void)db->query("begin immediate", soon());
    CHECK(support::is_true_in_child([&] {
        const bool refused =
            kind_of([&] { (void)db->execute(insert, std::vector<value>{1}, soon()); }) ==
                errc::wrong_process &&
            kind_of([&] { (void)db->query("select 1", soon()); }) == errc::wrong_process;
        db.reset();
        return refused;
    }));
    const auto other = connect(path);
    CHECK(kind_of([&] { (void)other->query("insert into t values (2)", clock::now() + 100ms); }) ==
          errc::timed_out);
    CHECK(db->execute(insert, std::vector<value>{3}, soon()).affected() == 1);
    (void)db->query("commit", soon());
    CHECK(other->query("select count(*) from t", soon()).integer(0, 0) == 2);
}

TEST_CASE("a forked child cannot open what its parent had open, and can open what it had not") {
    const std::string path = new_path();
    const std::string other = new_path();
    const std::string closed = new_path();
    const auto db = connect(path);
    (void)connect(closed);
    CHECK(support::is_true_in_child([&] {
        const bool refused = kind_of([&] { (void)connect(path); }) == errc::wrong_process;
        (void)connect(other)->query("create table t (a)", soon());
        (void)connect(closed)->query("create table t (a)", soon());
        return refused;
    }));
    CHECK(connect(other)->query("select * from t", soon()).empty());
    CHECK_NOTHROW((void)connect(path)->query("create table t (a)", soon()));
}

// --- borrowed handles ---

TEST_CASE("on a borrowed handle the driver waits for a lock itself, while the handle holds none") {
    const std::string path = new_path();
    const auto other = connect(path);
    (void)other->query("create table t (a)", soon());
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
    {
        rowlock::sqlite::connection_ref db{handle};
        const statement insert{"insert into t values ($1)"};
        const auto timed = [&](std::chrono::milliseconds patience) {
            const auto start = clock::now();
            CHECK(kind_of([&] {
                      (void)db.execute(insert, std::vector<value>{1}, clock::now() + patience);
                  }) == errc::timed_out);
            return clock::now() - start;
        };
        (void)other->query("begin immediate", soon());
        CHECK(timed(200ms) >= 190ms);
        (void)db.query("begin", soon());
        (void)db.query("select * from t", soon());
        CHECK(timed(20s) < 10s);  // a wait could not succeed here
        (void)db.query("rollback", soon());
        {
            std::jthread committer{[&] { (void)other->query("commit", soon()); }};
            CHECK(db.execute(insert, std::vector<value>{1}, soon()).affected() == 1);
        }
    }
    CHECK(sqlite3_close(handle) == SQLITE_OK);  // the driver has left nothing open on it
}

TEST_CASE("a borrowed handle keeps its own busy handler and progress handler") {
    const std::string path = new_path();
    const auto other = connect(path);
    (void)other->query("create table t (a)", soon());
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &handle) == SQLITE_OK);
    int asked = 0;
    const auto count = [](void* to) { return ++*static_cast<int*>(to), 0; };
    const auto count_busy = [](void* to, int) { return ++*static_cast<int*>(to), 0; };
    sqlite3_busy_handler(handle, count_busy, &asked);
    int looked = 0;
    sqlite3_progress_handler(handle, 1, count, &looked);
    {
        rowlock::sqlite::connection_ref db{handle};
        (void)db.query("select * from t", soon());
    }
    looked = 0;
    (void)other->query("begin immediate", soon());
    CHECK(sqlite3_exec(handle, "insert into t values (1)", nullptr, nullptr, nullptr) ==
          SQLITE_BUSY);
    CHECK(asked == 1);
    CHECK(sqlite3_exec(handle, "select * from t", nullptr, nullptr, nullptr) == SQLITE_OK);
    CHECK(looked > 0);
    CHECK(sqlite3_close(handle) == SQLITE_OK);
}

}  // namespace contract
