// The promises of include/rowlock/sql/notifications.hpp, on each kind of connection that its
// database can wake.
#include "driver/driver_fixtures.hpp"
#include "driver/sqlite_path.hpp"
#include "sql/listening.hpp"
#include "support/child.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/pgbouncer.hpp"
#include "support/server_address.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::sql::connection;
using rowlock::sql::notification;
using rowlock::sql::notifications;
using support::kind_of;
using support::soon;
using clock = std::chrono::steady_clock;

// How long a test waits to see that no notification arrives.
constexpr auto quiet = 100ms;

notifications& capability(connection& of) {
    auto* const found = of.notifications();
    REQUIRE(found != nullptr);
    return *found;
}

bool readable(const notifications& on, std::chrono::milliseconds within) {
    pollfd one{.fd = on.descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, static_cast<int>(within.count())) == 1;
}

// Waits as the header says. Returns what arrived first, or nothing.
std::vector<notification> await(notifications& on,
                                std::chrono::milliseconds limit = support::patience) {
    const auto end = clock::now() + limit;
    for (;;) {
        auto arrived = on.take();
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now());
        if (!arrived.empty() || left <= 0ms) return arrived;
        (void)readable(on, left);
    }
}

std::vector<std::string> payloads(const std::vector<notification>& of) {
    std::vector<std::string> all;
    for (const auto& one : of) all.push_back(one.payload);
    return all;
}

std::unique_ptr<connection> postgresql() {
    return libpq_fixture::source().connect(soon());
}

// Differs between processes that share a server.
std::string channel(const std::string& name) {
    return name + std::to_string(::getpid());
}

void notify(connection& by, const std::string& on, const std::string& payload) {
    (void)by.query("select pg_notify('" + on + "', '" + payload + "')", soon());
}

// A disk whose flush takes as long as the test chooses, for one thread.
class flush_that_waits {
public:
    class here {
    public:
        explicit here(flush_that_waits& disk) { of_this_thread() = &disk; }
        here(const here&) = delete;
        here& operator=(const here&) = delete;
        ~here() { of_this_thread() = nullptr; }
    };

    flush_that_waits() = default;
    flush_that_waits(const flush_that_waits&) = delete;
    flush_that_waits& operator=(const flush_that_waits&) = delete;
    ~flush_that_waits() { go_on(); }

    static flush_that_waits*& of_this_thread() {
        thread_local flush_that_waits* disk = nullptr;
        return disk;
    }
    void wait() {
        reached_ = true;
        reached_.notify_all();
        gone_on_.wait(false);
    }
    bool reached() {
        reached_.wait(false);
        return true;
    }
    void go_on() {
        gone_on_ = true;
        gone_on_.notify_all();
    }

private:
    std::atomic<bool> reached_{false};
    std::atomic<bool> gone_on_{false};
};

int flush(long call, int file) {
    if (auto* const disk = flush_that_waits::of_this_thread()) disk->wait();
    return static_cast<int>(::syscall(call, file));
}

// A new file with a table t, which no connection has open.
std::string fresh_file() {
    static std::atomic<int> count{0};
    std::string path = sqlite_path("woken-" + std::to_string(++count) + ".db");
    const auto db = rowlock::sqlite::open("sqlite:" + path).connect(soon());
    (void)db->query("create table t (a)", soon());
    return path;
}

std::unique_ptr<connection> sqlite(const std::string& path) {
    return rowlock::sqlite::open("sqlite:" + path + "?synchronous=normal").connect(soon());
}

// An SQLite handle without a driver.
class raw_sqlite {
public:
    explicit raw_sqlite(const std::string& path) {
        REQUIRE(sqlite3_open(path.c_str(), &handle_) == SQLITE_OK);
    }
    raw_sqlite(const raw_sqlite&) = delete;
    raw_sqlite& operator=(const raw_sqlite&) = delete;
    ~raw_sqlite() { sqlite3_close(handle_); }

    [[nodiscard]] sqlite3* get() const { return handle_; }
    // The first cell that it answers, if any.
    std::string run(const std::string& text) const {
        std::string cell;
        const auto keep = [](void* first, int, char** cells, char**) {
            *static_cast<std::string*>(first) = cells[0] != nullptr ? cells[0] : "";
            return 0;
        };
        CHECK(sqlite3_exec(handle_, text.c_str(), keep, &cell, nullptr) == SQLITE_OK);
        return cell;
    }

private:
    sqlite3* handle_ = nullptr;
};

// A forked child that does something on each order, and answers with a number.
class other_process {
public:
    template <typename Body>
    explicit other_process(Body body) {
        std::array<int, 2> orders{};
        std::array<int, 2> answers{};
        REQUIRE(::pipe(orders.data()) == 0);
        REQUIRE(::pipe(answers.data()) == 0);
        child_ = ::fork();
        if (child_ == 0) {
            ::close(orders[1]);
            ::close(answers[0]);
            try {
                body(orders[0], answers[1]);
            } catch (...) {
            }
            ::_exit(0);
        }
        ::close(orders[0]);
        ::close(answers[1]);
        orders_ = orders[1];
        answers_ = answers[0];
    }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;
    ~other_process() {
        ::close(orders_);
        ::close(answers_);
        ::waitpid(child_, nullptr, 0);
    }

    void order() const { REQUIRE(::write(orders_, "x", 1) == 1); }
    [[nodiscard]] std::int64_t answer() const {
        std::int64_t number = 0;
        REQUIRE(::read(answers_, &number, sizeof number) == sizeof number);
        return number;
    }

private:
    pid_t child_ = -1;
    int orders_ = -1;
    int answers_ = -1;
};

std::chrono::nanoseconds thread_time() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

std::size_t descriptors() {
    std::size_t count = 0;
    for (int number = 0; number < 1024; ++number) {
        if (::fcntl(number, F_GETFD) >= 0) ++count;
    }
    return count;
}

// Limits this process to `left` more descriptors while it lives.
class few_descriptors {
public:
    explicit few_descriptors(std::size_t left) {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        rlimit tight = before_;
        tight.rlim_cur = 200;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
        for (int made = 0; (made = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
            fillers_.push_back(made);
        }
        for (; left > 0; --left) {
            ::close(fillers_.back());
            fillers_.pop_back();
        }
    }
    few_descriptors(const few_descriptors&) = delete;
    few_descriptors& operator=(const few_descriptors&) = delete;
    ~few_descriptors() {
        for (const int each : fillers_) ::close(each);
        ::setrlimit(RLIMIT_NOFILE, &before_);
    }

private:
    rlimit before_{};
    std::vector<int> fillers_;
};

std::string listened_to(borrowed_handle& handle) {
    return handle.run(
        "select coalesce(string_agg(c, ' ' order by c), '') from "
        "pg_listening_channels() as t(c)");
}

}  // namespace

// --- PostgreSQL ----------------------------------------------------------------------------------

// shows: wake-ups
TEST_CASE("a notification arrives with its transaction's commit and not before") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    CHECK(db->round_trips() == 1);
    (void)other->query("begin", soon());
    notify(*other, channel("a"), "7 42");
    CHECK(await(woken, quiet).empty());
    (void)other->query("commit", soon());
    const auto start = clock::now();
    const auto arrived = await(woken);
    CHECK(clock::now() - start < 10s);
    REQUIRE(arrived.size() == 1);
    CHECK(arrived[0].channel == channel("a"));
    CHECK(arrived[0].payload == "7 42");
    CHECK(woken.take().empty());
    CHECK(db->round_trips() == 1);
}

TEST_CASE("a transaction that is rolled back sends no notification") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    (void)other->query("begin", soon());
    notify(*other, channel("a"), "never");
    (void)other->query("rollback", soon());
    notify(*other, channel("a"), "after");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"after"});
}

TEST_CASE("a notification that arrives while a statement runs can be taken after it") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    std::jthread sender{[&] {
        std::this_thread::sleep_for(100ms);
        notify(*other, channel("a"), "meanwhile");
    }};
    (void)db->query("select pg_sleep(0.3)", soon());
    sender.join();
    (void)db->execute(rowlock::sql::statement{"select 1"}, {}, soon());
    CHECK(payloads(woken.take()) == std::vector<std::string>{"meanwhile"});
}

TEST_CASE("several notifications on several channels keep their order") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    woken.listen(channel("b"), soon());
    (void)other->query("begin", soon());
    std::vector<std::string> sent;
    for (int n = 0; n < 200; ++n) {
        sent.push_back(std::to_string(n));
        notify(*other, channel(n % 2 == 0 ? "a" : "b"), sent.back());
    }
    (void)other->query("commit", soon());
    std::vector<std::string> received;
    while (received.size() < sent.size()) {
        const auto more = payloads(await(woken));
        if (more.empty()) break;
        received.insert(received.end(), more.begin(), more.end());
    }
    CHECK(received == sent);
}

TEST_CASE("listening twice is listening once") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    woken.listen(channel("a"), soon());
    notify(*other, channel("a"), "x");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"x"});
    CHECK(await(woken, quiet).empty());
}

TEST_CASE("a channel's name is quoted, or refused with a reason") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    const std::string longest(63, 'x');
    for (const std::string& name :
         {std::string{"Upper Case"}, std::string{R"(quo"te'; drop table x; --)"},
          std::string{"back\\slash"}, std::string{"\xc3\xbc"}, longest}) {
        CAPTURE(name);
        woken.listen(name, soon());
        const rowlock::sql::statement send{"select pg_notify($1, $2)"};
        const std::vector<rowlock::sql::value> parameters{name, "x"};
        (void)other->execute(send, parameters, soon());
        const auto arrived = await(woken);
        REQUIRE(arrived.size() == 1);
        CHECK(arrived[0].channel == name);
    }
    using namespace std::string_literals;
    for (const std::string& name : {""s, longest + "y", "a\0b"s, "\xff"s}) {
        CAPTURE(name);
        CHECK(kind_of([&] { woken.listen(name, soon()); }) == errc::invalid_options);
    }
    CHECK(db->alive());
    notify(*other, longest, "still");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"still"});
}

TEST_CASE("listening inside a transaction is refused and leaves the transaction as it is") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    auto& woken = capability(*db);
    (void)db->query("begin", soon());
    CHECK(kind_of([&] { woken.listen(channel("a"), soon()); }) == errc::invalid_options);
    CHECK(db->query("select 1", soon()).integer(0, 0) == 1);
    (void)db->query("commit", soon());
    CHECK_NOTHROW(woken.listen(channel("a"), soon()));
}

TEST_CASE(
    "a listener whose connection the server ends gets the earlier notifications, then the error") {
    if (!libpq_fixture::available()) return;
    const auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    const auto process = db->query("select pg_backend_pid()", soon()).integer(0, 0);
    notify(*other, channel("a"), "last words");
    REQUIRE(readable(woken, support::patience));
    (void)other->query("select pg_terminate_backend(" + std::to_string(process) + ")", soon());
    REQUIRE(support::eventually([&] {
        return other
                   ->query("select count(*) from pg_stat_activity where pid = " +
                               std::to_string(process),
                           soon())
                   .integer(0, 0) == 0;
    }));
    std::vector<std::string> heard;
    errc last{};
    try {
        for (const auto end = clock::now() + support::patience; clock::now() < end;) {
            for (const auto& text : payloads(await(woken, 100ms))) heard.push_back(text);
        }
    } catch (const rowlock::error& e) {
        last = e.kind();
    }
    CHECK(heard == std::vector<std::string>{"last words"});
    CHECK(last == errc::database_unreachable);
    CHECK_FALSE(db->alive());
    CHECK(woken.descriptor() == -1);
    CHECK(kind_of([&] { (void)woken.take(); }) == errc::database_unreachable);
    CHECK(kind_of([&] { woken.listen(channel("a"), soon()); }) == errc::database_unreachable);
}

TEST_CASE("a new connection does not listen to the old one's channels") {
    if (!libpq_fixture::available()) return;
    const auto other = postgresql();
    {
        const auto old = postgresql();
        capability(*old).listen(channel("a"), soon());
        notify(*other, channel("a"), "to the old");
    }
    const auto db = postgresql();
    notify(*other, channel("a"), "to nobody");
    CHECK(await(capability(*db), quiet).empty());
    capability(*db).listen(channel("a"), soon());
    notify(*other, channel("a"), "to the new");
    CHECK(payloads(await(capability(*db))) == std::vector<std::string>{"to the new"});
}

TEST_CASE("a borrowed handle keeps its owner's channels and drops the library's") {
    if (!libpq_fixture::available()) return;
    const auto handle = libpq_fixture::borrow();
    const auto other = postgresql();
    handle->run("listen " + channel("owner"));
    {
        const auto db = handle->ref();
        auto& woken = capability(*db);
        woken.listen(channel("owner"), soon());
        woken.listen(channel("ours"), soon());
        CHECK(listened_to(*handle) == channel("ours") + " " + channel("owner"));
        notify(*other, channel("ours"), "1");
        notify(*other, channel("owner"), "2");
        std::vector<std::string> heard;
        while (heard.size() < 2) {
            const auto more = payloads(await(woken));
            REQUIRE_FALSE(more.empty());
            heard.insert(heard.end(), more.begin(), more.end());
        }
        CHECK(heard == std::vector<std::string>{"1", "2"});
    }
    CHECK(listened_to(*handle) == channel("owner"));
}

TEST_CASE("a borrowed handle's notifications are left to its owner until the library listens") {
    if (!libpq_fixture::available()) return;
    PGconn* const handle = PQconnectdb(address_of(support::server::postgresql).url().c_str());
    REQUIRE(PQstatus(handle) == CONNECTION_OK);
    PQclear(PQexec(handle, ("listen " + channel("owner")).c_str()));
    const auto other = postgresql();
    {
        rowlock::postgresql::connection_ref db{handle};
        notify(*other, channel("owner"), "mine");
        (void)db.query("select 1", soon());
        CHECK(capability(db).take().empty());
    }
    PQconsumeInput(handle);
    PGnotify* const kept = PQnotifies(handle);
    REQUIRE(kept != nullptr);
    CHECK(std::string{kept->extra} == "mine");
    PQfreemem(kept);
    PQfinish(handle);
}

TEST_CASE("a forked child can neither listen nor take, and its parent goes on") {
    if (!libpq_fixture::available()) return;
    auto db = postgresql();
    const auto other = postgresql();
    auto& woken = capability(*db);
    woken.listen(channel("a"), soon());
    CHECK(support::is_true_in_child([&] {
        const bool refused = kind_of([&] { (void)woken.take(); }) == errc::wrong_process &&
                             kind_of([&] { woken.listen("b", soon()); }) == errc::wrong_process;
        db.reset();
        return refused;
    }));
    notify(*other, channel("a"), "x");
    CHECK(payloads(await(woken)) == std::vector<std::string>{"x"});
}

TEST_CASE("behind a declared transaction pooler listening is refused and nothing is sent") {
    if (!libpq_fixture::available()) return;
    const auto source = rowlock::postgresql::open(address_of(support::server::postgresql).url(),
                                                  {.transaction_pooler = true});
    const auto db = source.connect(soon());
    CHECK(kind_of([&] { capability(*db).listen("a", soon()); }) == errc::unsupported);
    CHECK(db->round_trips() == 0);
    CHECK(rowlock::sql::usable_notifications(*db, source, soon()) == nullptr);
}

// shows: wake-ups
TEST_CASE("an undeclared transaction pooler is detected before any connection listens") {
    const auto pooler = support::pgbouncer::start(support::pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    const auto source = rowlock::postgresql::open(pooler->url());
    const auto db = source.connect(soon());
    CHECK(rowlock::sql::usable_notifications(*db, source, soon()) == nullptr);
    // The reason: LISTEN succeeds behind a pooler, and no notification arrives.
    capability(*db).listen(channel("a"), soon());
    notify(*postgresql(), channel("a"), "lost");
    CHECK(await(capability(*db), quiet).empty());
}

TEST_CASE("a session pooler and a direct connection can be listened on") {
    const auto pooler = support::pgbouncer::start(support::pgbouncer::pool_mode::session);
    if (!pooler) return;
    for (const auto& source : {rowlock::postgresql::open(pooler->url()), libpq_fixture::source()}) {
        const auto db = source.connect(soon());
        auto* const woken = rowlock::sql::usable_notifications(*db, source, soon());
        REQUIRE(woken != nullptr);
        woken->listen(channel("a"), soon());
        notify(*postgresql(), channel("a"), "x");
        CHECK(payloads(await(*woken)) == std::vector<std::string>{"x"});
    }
    const auto direct = postgresql();
    (void)rowlock::sql::usable_notifications(*direct, libpq_fixture::source(), soon());
    CHECK(direct->round_trips() == 1);
}

// --- SQLite --------------------------------------------------------------------------------------

TEST_CASE("a commit by another SQLite connection wakes, and nothing else does") {
    const std::string path = fresh_file();
    const auto db = sqlite(path);
    const auto other = sqlite(path);
    auto& woken = capability(*db);
    CHECK(woken.descriptor() == -1);
    CHECK(woken.take().empty());
    woken.listen("any", soon());
    woken.listen("any", soon());
    const auto before = db->round_trips();
    (void)other->query("begin immediate", soon());
    (void)other->query("insert into t values (1)", soon());
    CHECK(await(woken, quiet).empty());
    (void)other->query("commit", soon());
    CHECK(await(woken).size() == 1);
    CHECK(await(woken, quiet).empty());
    (void)other->query("begin immediate", soon());
    (void)other->query("insert into t values (1)", soon());
    (void)other->query("rollback", soon());
    (void)other->query("pragma wal_checkpoint(passive)", soon());
    (void)other->query("select * from t", soon());
    CHECK(await(woken, quiet).empty());
    CHECK(db->round_trips() == before);
    (void)db->query("insert into t values (1)", soon());  // the connection's own commit
    CHECK(await(woken, quiet).empty());
}

TEST_CASE("a log that is written out, emptied and begun anew keeps waking") {
    const std::string path = fresh_file();
    const auto db = sqlite(path);
    const auto other = sqlite(path);
    auto& woken = capability(*db);
    woken.listen("", soon());
    for (int round = 0; round < 20; ++round) {
        CAPTURE(round);
        (void)other->query("insert into t values (1)", soon());
        REQUIRE(await(woken).size() == 1);
        (void)other->query(
            round % 2 == 0 ? "pragma wal_checkpoint(truncate)" : "pragma wal_checkpoint(restart)",
            soon());
        while (!await(woken, 20ms).empty()) {
        }
    }
}

// A second process commits, and each commit must be seen before the next is made. inotify reports a
// commit before it is visible, so a watch that checks only once would hang here.
// shows: wake-ups
TEST_CASE("no commit of another process is missed") {
    struct run {
        const char* parameters;
        int commits;
    };
    for (const run& each : {run{"?synchronous=normal", 800}, run{"?synchronous=full", 150}}) {
        const std::string mode = each.parameters;
        CAPTURE(mode);
        const std::string path = fresh_file();
        other_process writer{[&path, &each](int orders, int answers) {
            const auto db = rowlock::sqlite::open("sqlite:" + path + each.parameters)
                                .connect(clock::now() + 20s);
            char order = 0;
            while (::read(orders, &order, 1) == 1) {
                (void)db->query("insert into t values (1)", clock::now() + 20s);
                const auto at = clock::now().time_since_epoch().count();
                if (::write(answers, &at, sizeof at) != sizeof at) break;
            }
        }};
        const auto db = sqlite(path);
        auto& woken = capability(*db);
        woken.listen("", soon());
        std::vector<double> late;
        for (int n = 1; n <= each.commits; ++n) {
            writer.order();
            // A report may be about an earlier commit. Only what can be read counts.
            std::int64_t seen = 0;
            const auto end = clock::now() + 60s;
            while (seen < n && clock::now() < end) {
                if (await(woken, 30s).empty()) continue;
                seen = db->query("select count(*) from t", soon()).integer(0, 0);
            }
            const auto at = clock::now();
            REQUIRE(seen == n);
            const clock::time_point committed{clock::duration{writer.answer()}};
            late.push_back(std::chrono::duration<double, std::milli>(at - committed).count());
            REQUIRE(late.back() < 15'000.0);  // the machine may stall; a commit is missed for 30 s
        }
        std::sort(late.begin(), late.end());
        MESSAGE(mode, ": seen after p50 ", late[late.size() / 2], " ms, p99 ",
                late[late.size() * 99 / 100], " ms, at most ", late.back(), " ms");
        CHECK(late[late.size() / 2] < 20.0);
    }
}

TEST_CASE("a file that is written continuously does not make its watcher spin") {
    const std::string path = fresh_file();
    const auto db = sqlite(path);
    auto& woken = capability(*db);
    woken.listen("", soon());
    (void)db->query("insert into t values (1)", soon());
    std::atomic<bool> stop{false};
    std::atomic<int> commits{0};
    std::jthread writer{[&] {
        const auto other = sqlite(path);
        const rowlock::sql::statement insert{"update t set a = a + 1"};
        while (!stop) {
            (void)other->execute(insert, {}, soon());
            ++commits;
        }
    }};
    const auto start = clock::now();
    const auto cpu = thread_time();
    int reports = 0;
    int wakes = 0;
    const auto passed = [&] { return std::chrono::duration<double>(clock::now() - start).count(); };
    while (passed() < 1 || (commits <= 100 && passed() < 30)) {
        (void)readable(woken, 100ms);
        ++wakes;
        reports += static_cast<int>(woken.take().size());
    }
    const auto used = thread_time() - cpu;
    const auto seconds = passed();
    stop = true;
    writer.join();
    MESSAGE(commits.load(), " commits, ", wakes, " wake-ups, ", reports, " reports, ",
            std::chrono::duration<double, std::milli>(used).count(), " ms of CPU");
    CHECK(commits > 100);
    CHECK(reports <= 1100 * seconds);
    CHECK(wakes <= 2500 * seconds);
    CHECK(used < 250ms * seconds);
    // Afterwards the watcher is as quick as before.
    while (!await(woken, 20ms).empty()) {
    }
    (void)sqlite(path)->query("insert into t values (1)", soon());
    CHECK(await(woken).size() == 1);
}

TEST_CASE("a long transaction with many writes is reported once, when it commits") {
    const std::string path = fresh_file();
    const auto db = sqlite(path);
    const auto other = sqlite(path);
    auto& woken = capability(*db);
    woken.listen("", soon());
    (void)other->query("pragma cache_size = 10", soon());  // pages go to the log early
    (void)other->query("begin immediate", soon());
    std::jthread writer{[&](const std::stop_token& stop) {
        const rowlock::sql::statement insert{
            "with recursive c(n) as (select 1 union all select n + 1 from c where n < 500) "
            "insert into t select hex(randomblob(500)) from c"};
        while (!stop.stop_requested()) (void)other->execute(insert, {}, soon());
    }};
    int wakes = 0;
    const auto start = clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(clock::now() - start).count(); };
    while (passed() < 0.4 || (wakes <= 5 && passed() < 10)) {
        if (readable(woken, 100ms)) ++wakes;
        REQUIRE(woken.take().empty());
    }
    const auto seconds = passed();
    writer.request_stop();
    writer.join();
    MESSAGE(wakes, " wake-ups in ", seconds, " s");
    CHECK(wakes > 5);
    CHECK(wakes < 250 / 0.4 * seconds);
    (void)other->query("commit", soon());
    CHECK(await(woken).size() == 1);
}

TEST_CASE("a borrowed SQLite handle is woken in rollback mode, and on into WAL mode") {
    const std::string path = sqlite_path("rollback-" + std::to_string(::getpid()) + ".db");
    const raw_sqlite handle{path};
    const raw_sqlite other{path};
    handle.run("create table t (a)");
    CHECK(handle.run("pragma journal_mode") == "delete");
    rowlock::sqlite::connection_ref db{handle.get()};
    auto& woken = capability(db);
    woken.listen("", soon());
    const auto wakes = [&](std::chrono::milliseconds limit = support::patience) {
        const bool some = !await(woken, limit).empty();
        while (!await(woken, 20ms).empty()) {
        }
        return some;
    };
    for (int n = 0; n < 3; ++n) {
        other.run("insert into t values (1)");
        CHECK(wakes());
    }
    // A writer that has begun blocks all readers. A check must not wait for it.
    other.run("begin exclusive");
    other.run("insert into t values (1)");
    const auto check = [&] {
        const auto start = clock::now();
        (void)woken.take();
        return clock::now() - start;
    };
    CHECK(support::at_best(100ms, check) < 100ms);
    other.run("commit");
    (void)await(woken, 50ms);
    CHECK(other.run("pragma journal_mode = wal") == "wal");
    (void)wakes(5s);
    for (int n = 0; n < 3; ++n) {
        other.run("insert into t values (1)");
        CHECK(wakes());
    }
    CHECK(db.query("select count(*) from t", soon()).integer(0, 0) == 7);
}

TEST_CASE("a file that cannot be watched is an error with the reason, and costs no descriptor") {
    const auto open_files = descriptors();
    {
        const raw_sqlite memory{":memory:"};
        rowlock::sqlite::connection_ref db{memory.get()};
        CHECK(kind_of([&] { capability(db).listen("", soon()); }) == errc::unsupported);
    }
    const std::string path = fresh_file();
    {
        const auto db = sqlite(path);
        (void)db->query("select * from t", soon());
        const auto used = descriptors();
        for (const std::size_t left : {0U, 1U, 2U}) {
            CAPTURE(left);
            const few_descriptors tight{left};
            CHECK(kind_of([&] { capability(*db).listen("a", soon()); }) == errc::unsupported);
        }
        CHECK(descriptors() == used);
        {
            const few_descriptors tight{3};
            capability(*db).listen("a", soon());
        }
        CHECK(descriptors() == used + 3);
    }
    CHECK(descriptors() == open_files);
}

TEST_CASE("an SQLite file that is replaced is noticed by its watcher") {
    const std::string path = fresh_file();
    const auto db = sqlite(path);
    auto& woken = capability(*db);
    woken.listen("", soon());
    REQUIRE(std::rename(path.c_str(), (path + ".old").c_str()) == 0);
    REQUIRE(readable(woken, support::patience));
    CHECK(kind_of([&] { (void)woken.take(); }) == errc::database_unreachable);
    CHECK_FALSE(db->alive());
}

TEST_CASE("a forked child cannot take from its parent's SQLite watch") {
    const std::string path = fresh_file();
    auto db = sqlite(path);
    auto& woken = capability(*db);
    woken.listen("a", soon());
    CHECK(support::is_true_in_child([&] {
        const bool refused = kind_of([&] { (void)woken.take(); }) == errc::wrong_process;
        woken.want_changes(false);
        db.reset();
        return refused;
    }));
    (void)sqlite(path)->query("insert into t values (1)", soon());
    CHECK(await(woken).size() == 1);
}

TEST_CASE("the testing database wakes like any other SQLite file") {
    const rowlock::testing::database shared;
    const auto db = shared.source().connect(soon());
    const auto other = shared.source().connect(soon());
    capability(*db).listen("", soon());
    (void)other->query("create table t (a)", soon());
    CHECK(await(capability(*db)).size() == 1);
}

TEST_CASE("without want_changes() commits do not wake, and are found when it is set again") {
    const std::string path = fresh_file();
    const auto db = sqlite(path);
    const auto other = sqlite(path);
    auto& woken = capability(*db);
    woken.want_changes(false);  // before the first listen(): nothing
    woken.listen("a", soon());
    (void)other->query("insert into t values (1)", soon());
    CHECK(await(woken).size() == 1);
    while (!await(woken, 20ms).empty()) {
    }
    woken.want_changes(false);
    woken.want_changes(false);
    for (int n = 0; n < 3; ++n) (void)other->query("insert into t values (1)", soon());
    CHECK_FALSE(readable(woken, quiet));
    CHECK(woken.take().empty());
    woken.want_changes(true);
    CHECK(await(woken).size() == 1);
    while (!await(woken, 20ms).empty()) {
    }
    CHECK(await(woken, quiet).empty());
    // The log may have been replaced meanwhile.
    woken.want_changes(false);
    (void)other->query("pragma wal_checkpoint(truncate)", soon());
    (void)other->query("insert into t values (1)", soon());
    woken.want_changes(true);
    CHECK(await(woken).size() == 1);
    while (!await(woken, 20ms).empty()) {
    }
    (void)other->query("insert into t values (1)", soon());
    CHECK(await(woken).size() == 1);
}

// A commit is written before it is visible. A watch that begins in between sees no further write,
// and must check for what was written before.
TEST_CASE(
    "a commit that was written before the watch was resumed is found when it becomes visible") {
    const std::string path = fresh_file();
    const auto db = sqlite(path);
    auto& woken = capability(*db);
    woken.listen("", soon());
    (void)sqlite(path)->query("insert into t values (1)", soon());  // so that the log has a header
    while (!await(woken, 20ms).empty()) {
    }
    woken.want_changes(false);
    flush_that_waits disk;
    std::jthread writer{[&] {
        const auto other = rowlock::sqlite::open("sqlite:" + path).connect(soon());
        const flush_that_waits::here armed{disk};
        (void)other->query("insert into t values (1)", soon());
    }};
    REQUIRE(disk.reached());  // the frames are written
    woken.want_changes(true);
    CHECK(await(woken, quiet).empty());
    disk.go_on();
    writer.join();
    CHECK(readable(woken, support::patience));  // take() alone would check in any case
    CHECK(await(woken).size() == 1);
}

// --- drivers without notifications ---------------------------------------------------------------

TEST_CASE("Connector/C++ and SOCI show no socket, and report that they cannot be woken") {
    for (const auto& source :
         {connector_cpp_fixture::available() ? connector_cpp_fixture::source()
                                             : soci_sqlite3_fixture::source(),
          soci_sqlite3_fixture::source(),
          soci_postgresql_fixture::available() ? soci_postgresql_fixture::source()
                                               : soci_sqlite3_fixture::source()}) {
        const auto db = source.connect(soon());
        CHECK(db->notifications() == nullptr);
        CHECK(rowlock::sql::usable_notifications(*db, source, soon()) == nullptr);
    }
}

}  // namespace contract

// SQLite calls this function, since the program's symbols precede the library's.
extern "C" int fdatasync(int fildes) {
    return contract::flush(SYS_fdatasync, fildes);
}
extern "C" int fsync(int fd) {
    return contract::flush(SYS_fsync, fd);
}
