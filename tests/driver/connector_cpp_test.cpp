// What the Connector/C++ driver promises beyond the contract of every driver.
#include "driver/own_socket.hpp"
#include "support/child.hpp"
#include "support/processlist.hpp"
#include "support/sanitized.hpp"
#include "support/scripted_mysql.hpp"
#include "support/server_address.hpp"
#include "support/servers.hpp"
#include "support/tcp_listener.hpp"
#include "support/this_process.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/error.hpp>

#include <cppconn/connection.h>
#include <cppconn/driver.h>
#include <cppconn/resultset.h>
#include <cppconn/statement.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::sql::connection;
using rowlock::sql::statement;
using rowlock::sql::value;
using clock = std::chrono::steady_clock;
using support::soon;

bool available() {
    return support::url_of(support::server::mariadb).has_value();
}

server_address server() {
    return address_of(support::server::mariadb);
}

std::unique_ptr<connection> connect(const std::string& url, rowlock::mysql::options how = {}) {
    return rowlock::mysql::open(url, how).connect(soon());
}

std::unique_ptr<connection> connect() {
    return connect(server().url());
}

struct failure {
    errc kind{};
    std::string text;
    std::chrono::milliseconds after{};
};

template <typename Call>
failure failure_of(Call call) {
    const auto start = clock::now();
    try {
        call();
    } catch (const rowlock::error& e) {
        const auto took =
            std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start);
        return {e.kind(), std::string{e.what()} + " | " + e.server_message(), took};
    }
    FAIL_CHECK("no error was thrown");
    return {};
}

std::string cell(connection& of, const std::string& text, std::size_t column = 0) {
    const auto answer = of.query(text, soon());
    return answer.empty() ? std::string{} : std::string{answer.text(0, column)};
}

// The number of statements that this connection has prepared and not closed.
int open_statements(connection& of) {
    const auto count = [&](const std::string& name) {
        return std::stoi(cell(of, "show session status like '" + name + "'", 1));
    };
    return count("Com_stmt_prepare") - count("Com_stmt_close");
}

// Locks a row for as long as this object lives.
class held_row {
public:
    held_row() : name_{"contract_connector_" + std::to_string(::getpid())} {
        (void)holder_->query("drop table if exists " + name_, soon());
        (void)holder_->query("create table " + name_ + " (id int primary key, n int) engine=InnoDB",
                             soon());
        (void)holder_->query("insert into " + name_ + " values (1, 0)", soon());
        (void)holder_->query("begin", soon());
        (void)holder_->query("update " + name_ + " set n = n + 1", soon());
    }
    held_row(const held_row&) = delete;
    held_row& operator=(const held_row&) = delete;
    ~held_row() {
        (void)holder_->query("rollback", soon());
        (void)holder_->query("drop table " + name_, soon());
    }
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    std::string name_;
    std::unique_ptr<connection> holder_ = connect();
};

class environment {
public:
    environment(const char* name, const std::string& text) : name_{name} {
        if (const char* before = std::getenv(name)) before_ = before;
        ::setenv(name, text.c_str(), 1);
    }
    environment(const environment&) = delete;
    environment& operator=(const environment&) = delete;
    ~environment() {
        if (before_.empty()) {
            ::unsetenv(name_);
        } else {
            ::setenv(name_, before_.c_str(), 1);
        }
    }

private:
    const char* name_;
    std::string before_;
};

}  // namespace

// --- statements ----------------------------------------------------------------------------------

TEST_CASE("a program that makes ever more statements does not exhaust the server's limit") {
    if (!available()) return;
    const auto db = connect();
    for (int n = 0; n < 1100; ++n) {
        const statement fresh{"select $1 + " + std::to_string(n)};
        REQUIRE(db->execute(fresh, std::vector<value>{1}, soon()).integer(0, 0) == n + 1);
    }
    CHECK(open_statements(*db) <= 512);
}

TEST_CASE("where statements are not to be kept, each is prepared for one use") {
    if (!available()) return;
    rowlock::mysql::options how;
    how.prepare_statements = false;
    const auto db = connect(server().url(), how);
    const std::string text = "it's \\ \"quoted\" \xf0\x9f\x94\x92";
    for (int repeat = 0; repeat < 5; ++repeat) {
        const statement select{"select $1, " + std::to_string(repeat)};
        CHECK(db->execute(select, std::vector<value>{text}, soon()).text(0, 0) == text);
    }
    CHECK(open_statements(*db) <= 1);
}

TEST_CASE("text reaches the server as utf8mb4, and byte by byte where no backslash escapes") {
    if (!available()) return;
    const auto db = connect();
    CHECK(cell(*db, "select @@character_set_client") == "utf8mb4");
    CHECK(cell(*db, "select @@character_set_results") == "utf8mb4");
    (void)db->query("set session sql_mode = 'NO_BACKSLASH_ESCAPES'", soon());
    const std::string text = "a\\'b";
    CHECK(db->execute(statement{"select $1"}, std::vector<value>{text}, soon()).text(0, 0) == text);
}

TEST_CASE("a column whose type changed under a prepared statement is read in full") {
    if (!available()) return;
    const auto db = connect();
    const auto other = connect();
    const std::string table = "contract_connector_type_" + std::to_string(::getpid());
    (void)db->query("create table " + table + " (id int primary key, n int)", soon());
    (void)db->query("insert into " + table + " values (1, 7)", soon());
    const statement select{"select n from " + table + " where id = $1"};
    CHECK(db->execute(select, std::vector<value>{1}, soon()).text(0, 0) == "7");
    (void)other->query("alter table " + table + " modify column n longtext", soon());
    const std::string wide(70'000, 'w');
    (void)other->execute(statement{"update " + table + " set n = $1"}, std::vector<value>{wide},
                         soon());
    CHECK((db->execute(select, std::vector<value>{1}, soon()).text(0, 0) == wide));
    (void)db->query("drop table " + table, soon());
}

TEST_CASE("a second statement in one text is refused") {
    if (!available()) return;
    const auto db = connect();
    CHECK(failure_of([&] { (void)db->query("select 1; select 2", soon()); }).kind ==
          errc::database_error);
    CHECK(cell(*db, "select 3") == "3");
}

TEST_CASE("a procedure's results are drained") {
    if (!available()) return;
    const auto db = connect();
    const std::string name = "contract_connector_call_" + std::to_string(::getpid());
    (void)db->query("create procedure " + name + "() begin select 1; select 2; end", soon());
    CHECK(cell(*db, "call " + name + "()") == "1");
    CHECK(cell(*db, "select 3") == "3");
    const rowlock::sql::statement call{"call " + name + "()"};
    for (int times = 0; times < 2; ++times) {
        CHECK(db->execute(call, {}, soon()).integer(0, 0) == 1);
        CHECK(cell(*db, "select 3") == "3");
    }
    (void)db->query("drop procedure " + name, soon());
}

TEST_CASE("a statement that the server killed is a timeout, and the connection stays") {
    if (!available()) return;
    const held_row row;
    const auto db = connect();
    const auto killer = connect();
    const std::string id = cell(*db, "select connection_id()");
    std::jthread assassin{[&] {
        const auto waits = [&](const support::mysql_process& one) {
            return std::to_string(one.id) == id &&
                   one.statement.starts_with("update contract_connector");
        };
        CHECK(support::eventually([&] { return !support::processes(*killer, waits).empty(); }));
        (void)killer->query("kill query " + id, soon());
    }};
    CHECK(failure_of([&] {
              (void)db->query("update " + row.name() + " set n = 5", soon());
          }).kind == errc::timed_out);
    CHECK(db->alive());
    CHECK(cell(*db, "select 1") == "1");
}

// --- deadlines -----------------------------------------------------------------------------------

TEST_CASE("an abandoned call leaves nothing behind once the server answers") {
    if (!available()) return;
    const int before = support::threads_of_this_process();
    {
        const held_row row;
        const statement update{"update " + row.name() + " set n = n + $1"};
        const auto time_to_fail = [&] {
            const auto db = connect();
            const failure told = failure_of(
                [&] { (void)db->execute(update, std::vector<value>{1}, clock::now() + 200ms); });
            CHECK(told.kind == errc::outcome_unknown);
            return told.after;
        };
        CHECK(support::at_best(1200ms, time_to_fail) < 1200ms);
    }
    CHECK(support::eventually([&] { return support::threads_of_this_process() <= before; }));
}

TEST_CASE("connecting ends at the deadline although the library waits") {
    if (!available()) return;
    const support::silent_listener silent;
    server_address nobody = server();
    nobody.host = "127.0.0.1";
    nobody.port = silent.port();
    const auto time_to_fail = [&] {
        const failure told = failure_of(
            [&] { (void)rowlock::mysql::open(nobody.url()).connect(clock::now() + 50ms); });
        CHECK(told.kind == errc::database_unreachable);
        return told.after;
    };
    // Connector/C++ counts whole seconds.
    CHECK(support::at_best(900ms, time_to_fail) < 900ms);
}

/// More descriptors than the driver searches for a socket.
class crowd_of_descriptors {
public:
    crowd_of_descriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit more = before_;
        more.rlim_cur = std::min<rlim_t>(before_.rlim_max, 8192);
        ::setrlimit(RLIMIT_NOFILE, &more);
        const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        all_.push_back(null);
        while (all_.size() <= 4200) {
            const int next = ::dup(null);
            if (next < 0) break;
            all_.push_back(next);
        }
    }
    crowd_of_descriptors(const crowd_of_descriptors&) = delete;
    crowd_of_descriptors& operator=(const crowd_of_descriptors&) = delete;
    ~crowd_of_descriptors() {
        for (const int each : all_) ::close(each);
        ::setrlimit(RLIMIT_NOFILE, &before_);
    }
    [[nodiscard]] bool large_enough() const { return all_.size() > 4200; }

private:
    rlimit before_{};
    std::vector<int> all_;
};

std::vector<std::unique_ptr<connection>> several_connections() {
    std::vector<std::unique_ptr<connection>> made;
    for (int i = 0; i < 5; ++i) made.push_back(connect());
    return made;
}

TEST_CASE("connections whose sockets are known share one thread for their deadlines") {
    if (!available()) return;
    // What earlier cases have left behind ends soon.
    constexpr int before = 1 + support::threads_of_the_sanitizer;
    REQUIRE(support::eventually([] { return support::threads_of_this_process() == before; }));
    {
        const auto made = several_connections();
        // The thread that opened the last connection may still be ending.
        CHECK(
            support::eventually([&] { return support::threads_of_this_process() == before + 1; }));
        for (const auto& each : made) CHECK(cell(*each, "select 1") == "1");
    }
    CHECK(support::eventually([&] { return support::threads_of_this_process() == before; }));
}

TEST_CASE("a connection whose socket is not found has a thread, and the same deadlines") {
    if (!available()) return;
    // What earlier cases have left behind ends soon.
    constexpr int before = 1 + support::threads_of_the_sanitizer;
    REQUIRE(support::eventually([] { return support::threads_of_this_process() == before; }));
    {
        std::vector<std::unique_ptr<connection>> made;
        {
            const crowd_of_descriptors crowd;
            if (!crowd.large_enough()) return;
            made = several_connections();
        }
        // The thread that opened the last connection may still be ending.
        CHECK(
            support::eventually([&] { return support::threads_of_this_process() == before + 5; }));
        for (const auto& each : made) CHECK(cell(*each, "select 1") == "1");
        const held_row row;
        const statement update{"update " + row.name() + " set n = n + $1"};
        const auto kept = std::move(made.back());
        made.pop_back();
        // A stall of this process may delay that of one of them, and hardly of all.
        std::vector<std::chrono::milliseconds> times;
        for (const auto& each : made) {
            const failure told = failure_of(
                [&] { (void)each->execute(update, std::vector<value>{1}, clock::now() + 200ms); });
            CHECK(told.kind == errc::outcome_unknown);
            CHECK_FALSE(each->alive());
            times.push_back(told.after);
        }
        CHECK(*std::ranges::min_element(times) <= 1200ms);
        CHECK(cell(*kept, "select 1") == "1");
    }
    CHECK(support::eventually([&] { return support::threads_of_this_process() == before; }));
}

TEST_CASE("a deadline that passes ends the call, and only that connection") {
    if (!available()) return;
    const auto other = connect();
    for (int i = 0; i < 3; ++i) CHECK(cell(*other, "select 1") == "1");
    const auto time_to_fail = [](std::chrono::milliseconds limit) {
        const auto late = connect();
        const failure told =
            failure_of([&] { (void)late->query("select sleep(10)", clock::now() + limit); });
        CHECK(told.kind == errc::outcome_unknown);
        CHECK(told.after >= limit - 1ms);
        CHECK_FALSE(late->alive());
        return told.after;
    };
    CHECK(support::at_best(1200ms, [&] { return time_to_fail(200ms); }) < 1200ms);
    CHECK(other->alive());
    CHECK(cell(*other, "select 1") == "1");
    // A shorter deadline behind a longer one, of calls that run at the same time.
    const auto beside_a_longer_one = [&] {
        std::jthread longer{[&] { CHECK(cell(*other, "select sleep(1)") == "0"); }};
        return time_to_fail(100ms);
    };
    CHECK(support::at_best(1100ms, beside_a_longer_one) < 1100ms);
}

TEST_CASE("only a socket that is certainly the connection's own is recognized") {
    namespace driver = rowlock::driver;
    std::array<int, 2> first{-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, first.data()) == 0);
    const driver::open_sockets before;
    CHECK_FALSE(before.only_new_one());  // none
    const int one = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int no_stream = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int again = ::fcntl(one, F_DUPFD_CLOEXEC, 3);  // the same socket
    {
        const auto found = before.only_new_one();
        REQUIRE(found);
        struct stat mine {
        }, theirs{};
        REQUIRE(::fstat(one, &mine) == 0);
        REQUIRE(::fstat(found->number(), &theirs) == 0);
        CHECK(mine.st_ino == theirs.st_ino);
        CHECK(found->number() != one);
        CHECK(found->number() != again);
        CHECK((::fcntl(found->number(), F_GETFD) & FD_CLOEXEC) != 0);
    }
    const int two = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_FALSE(before.only_new_one());  // which of the two?
    ::close(two);
    CHECK(before.only_new_one());
    for (const int each : {one, no_stream, file, again, first[0], first[1]}) ::close(each);
}

TEST_CASE("a broken pipe raises no signal, and one that was pending stays") {
    namespace driver = rowlock::driver;
    std::array<int, 2> ends{-1, -1};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    ::close(ends[0]);
    {
        const driver::no_pipe_signal quiet;
        CHECK(::write(ends[1], "x", 1) == -1);  // SIGPIPE would end this program
    }
    sigset_t pipe, blocked;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    CHECK(sigismember(&blocked, SIGPIPE) == 0);
    // In a program that blocks the signal itself, a pending one stays.
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    {
        const driver::no_pipe_signal quiet;
        CHECK(::write(ends[1], "x", 1) == -1);
    }
    sigset_t raised;
    ::sigpending(&raised);
    CHECK(sigismember(&raised, SIGPIPE) == 1);
    const timespec at_once{0, 0};
    ::sigtimedwait(&pipe, nullptr, &at_once);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
    ::close(ends[1]);
}

// --- connecting ----------------------------------------------------------------------------------

TEST_CASE(
    "a password is also read from MYSQL_PWD and from option files, and the URL's precedes them") {
    if (!available()) return;
    const server_address at = server();
    const auto url = [&](const std::string& password, const std::string& rest = "") {
        return at.scheme + "://" + at.user + password + "@" + at.host + ":" +
               std::to_string(at.port) + "/" + at.database + rest;
    };
    char folder[] = "/tmp/contract_connector_XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const environment home{"HOME", folder};
    CHECK(failure_of([&] { (void)connect(url("")); }).kind == errc::access_denied);
    {
        const environment password{"MYSQL_PWD", at.password};
        CHECK(cell(*connect(url("")), "select 1") == "1");
    }
    const std::string path = std::string{folder} + "/.my.cnf";
    // The URL precedes the other settings of the file.
    std::ofstream{path} << "[client]\npassword=" << at.password
                        << "\nuser=nobody\nhost=nowhere.invalid\nport=1\nsocket=/nowhere\n";
    ::chmod(path.c_str(), 0600);
    CHECK(cell(*connect(url("")), "select 1") == "1");
    CHECK(cell(*connect(url("", "?read-default-file=" + path)), "select 1") == "1");
    CHECK(failure_of([&] { (void)connect(url(":wrong")); }).kind == errc::access_denied);
    std::filesystem::remove_all(folder);
}

TEST_CASE("TLS that is required and not offered is an error") {
    if (!available()) return;
    const auto db = connect();
    // MySQL no longer has this variable, and creates its own certificates.
    const auto told_of = db->query("show global variables like 'have_ssl'", soon());
    const bool offered = told_of.empty() || told_of.text(0, 1) == "YES";
    const auto required = [] { return connect(server().url() + "?ssl-mode=REQUIRED"); };
    if (offered) {
        CHECK_FALSE(cell(*required(), "show session status like 'Ssl_cipher'", 1).empty());
        const failure told =
            failure_of([] { (void)connect(server().url() + "?ssl-ca=/nowhere/ca.pem"); });
        CHECK(told.text.find("TLS") != std::string::npos);
    } else {
        CHECK(failure_of([&] { (void)required(); }).kind == errc::unsupported);
        CHECK(failure_of([] { (void)connect(server().url() + "?ssl-verify=true"); }).kind ==
              errc::database_unreachable);
    }
}

// shows: passwords
TEST_CASE("a password is not sent in clear text to another machine that asks for it") {
    support::scripted_mysql there{
        {support::mysql_greeting("mysql_native_password"),
         support::mysql_packet(2, std::string{"\xfe"} + "mysql_clear_password" + '\0'), ""}};
    const auto url = [&](const std::string& host, const std::string& more = "") {
        return "mysql://app:the%20secret@" + host + ":" + std::to_string(there.port()) + "/shop" +
               more;
    };
    // 127.0.0.2 stands for another machine: only localhost, 127.0.0.1 and ::1 count as local.
    for (const char* how : {"", "?ssl-mode=PREFERRED", "?ssl-mode=DISABLED"}) {
        const auto refused = failure_of([&] { (void)connect(url("127.0.0.2", how)); });
        CHECK(refused.kind == errc::unsupported);
        CHECK(refused.text.find("ssl-mode=VERIFY_IDENTITY") != std::string::npos);
        CHECK(refused.text.find("secret") == std::string::npos);
        CHECK(refused.text.ends_with(" | "));  // no text of the library's
    }
    for (const char* how : {"?ssl-mode=REQUIRED", "?ssl-mode=VERIFY_IDENTITY"}) {
        (void)failure_of([&] { (void)connect(url("127.0.0.2", how)); });
    }
    {
        const environment password{"MYSQL_PWD", "the secret"};
        for (const char* how : {"", "?ssl-mode=DISABLED"}) {
            const std::string whole = url("127.0.0.2", how);
            const std::string bare = "mysql://app" + whole.substr(whole.find('@'));
            CHECK(failure_of([&] { (void)connect(bare); }).kind == errc::unsupported);
        }
    }
    CHECK(there.received().find("the secret") == std::string::npos);
    // Control: to this machine it is sent in clear text.
    (void)failure_of([&] { (void)connect(url("127.0.0.1")); });
    CHECK(there.received().find("the secret") != std::string::npos);
}

TEST_CASE("no server can prompt at the terminal, or get the password as the answer to its prompt") {
    const std::string question{"\x04Password: "};  // the library answers the first prompt itself
    support::scripted_mysql there{
        {support::mysql_greeting("mysql_native_password"),
         support::mysql_packet(2, std::string{"\xfe"} + "dialog" + '\0' + question), ""}};
    const auto url = [&](const std::string& host, const std::string& more) {
        return "mysql://app:the%20secret@" + host + ":" + std::to_string(there.port()) + "/shop" +
               more;
    };
    for (const char* host : {"127.0.0.1", "127.0.0.2", "localhost"}) {
        for (const char* how : {"", "?ssl-mode=PREFERRED", "?ssl-mode=DISABLED"}) {
            CAPTURE(host);
            CAPTURE(how);
            const auto refused = failure_of([&] { (void)connect(url(host, how)); });
            CHECK(refused.kind == errc::unsupported);
        }
    }
    CHECK(there.received().find("the secret") == std::string::npos);
    // Control: an option file may allow it.
    (void)failure_of([&] { (void)connect(url("127.0.0.2", "?read-default-file=/dev/null")); });
    CHECK(there.received().find("the secret") != std::string::npos);
}

TEST_CASE("mariadb:// is another name for mysql://") {
    if (!available()) return;
    server_address at = server();
    at.scheme = "mariadb";
    const auto source = rowlock::mysql::open(at.url());
    CHECK(source.speaks() == rowlock::sql::dialect::mysql);
    CHECK(source.description().starts_with("mariadb://"));
    CHECK(cell(*source.connect(soon()), "select database()") == at.database);
}

// --- processes -----------------------------------------------------------------------------------

TEST_CASE("a forked child can neither use nor harm its parent's connection") {
    if (!available()) return;
    auto db = connect();
    const statement select{"select 1 + $1"};
    (void)db->execute(select, std::vector<value>{1}, soon());
    CHECK(support::exit_of_child([&] {
              int wrong = 1;
              try {
                  (void)db->query("select 1", soon());
              } catch (const rowlock::error& e) {
                  wrong = e.kind() == errc::wrong_process ? 0 : 2;
              }
              db.reset();
              return wrong;
          }) == 0);
    CHECK(db->execute(select, std::vector<value>{2}, soon()).integer(0, 0) == 3);
}

TEST_CASE("a forked child's own connection has its own deadlines") {
    if (!available()) return;
    if (support::threads_of_the_sanitizer > 0) return;  // it does not survive threads in a child
    const auto db = connect();
    CHECK(cell(*db, "select 1") == "1");
    CHECK(support::exit_of_child([&] {
              int wrong = 1;
              try {
                  const auto own = connect();
                  wrong = 3;
                  (void)own->query("select sleep(10)", clock::now() + 100ms);
              } catch (const rowlock::error& e) {
                  wrong = wrong == 3 && e.kind() == errc::outcome_unknown ? 0 : 2;
              }
              return wrong;
          }) == 0);
    CHECK(cell(*db, "select 1") == "1");
}

/// Limits this process to one more thread.
void leave_room_for_one_thread() {
    constexpr std::size_t stack = std::size_t{1} << 30;
    pthread_attr_t large;
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, stack);
    ::pthread_setattr_default_np(&large);
    std::size_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    const auto size = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const rlimit little{size + stack * 3 / 2, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &little);
}

TEST_CASE("where no thread for deadlines can be started connecting fails, and does not hang") {
    if (!available()) return;
    CHECK(support::exit_of_child([] {
              leave_room_for_one_thread();
              int wrong = 1;
              try {
                  (void)connect();
              } catch (const rowlock::error& e) {
                  wrong = e.kind() == errc::out_of_resources ? 0 : 2;
              }
              return wrong;
          }) == 0);
}

TEST_CASE("a null handle is refused") {
    CHECK(failure_of([] { const rowlock::mysql::connection_ref db{nullptr}; }).kind ==
          errc::invalid_options);
}

}  // namespace contract
