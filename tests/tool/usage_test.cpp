// Mistakes of new users: each gives one clear line and the right exit code, and leaves nothing
// half-done.

#include "support/tcp_listener.hpp"
#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

using tool::arguments;
using tool::contents;
using tool::scratch;
using tool::setting;

namespace {

// Characters that change the direction of the text that follows on a terminal.
constexpr const char* reversing = "\xe2\x80\xae";  // NOLINT(misc-misleading-bidirectional)
constexpr const char* isolating = "\xe2\x81\xa6";  // NOLINT(misc-misleading-bidirectional)

bool is_one_line(const std::string& text) {
    return text.starts_with("rowlock: ") && std::ranges::count(text, '\n') == 1 &&
           text.ends_with('\n');
}

void check_refusal(const tool::answer& got, int code, const std::string& said) {
    CAPTURE(got.err);
    CHECK(got.code == code);
    CHECK(is_one_line(got.err));
    CHECK(got.err.find(said) != std::string::npos);
    CHECK(got.out == "");
}

}  // namespace

TEST_CASE("wrong usage is 64 and one clear line") {
    const auto in = tool::sqlite_tables();
    const std::string long_name(300, 'a');
    const struct {
        arguments command;
        const char* said;
    } mistakes[] = {
        {{}, "no command"},
        {{"nosuch"}, "no such command: nosuch"},
        {{"ls", "--bogus"}, "--bogus"},
        {{"run", "a"}, "no command: rowlock run NAME -- COMMAND"},
        {{"run", "a", "--"}, "no command after --"},
        {{"run", "--", "touch", "ran"}, "NAME"},
        {{"run", "", "--", "touch", "ran"}, "a lock name may not be empty"},
        {{"run", long_name, "--", "touch", "ran"}, "255 bytes"},
        {{"run", "\xff\xfe", "--", "touch", "ran"}, "valid UTF-8"},
        {{"run", "a\nb", "--", "touch", "ran"}, "control characters"},
        {{"run", "--ttl", "0", "a", "--", "touch", "ran"}, "--ttl must be more than 0"},
        {{"run", "--ttl", "1ms", "a", "--", "touch", "ran"}, "ttl must be from 100 ms"},
        {{"run", "--ttl", "2y", "a", "--", "touch", "ran"}, "--ttl takes a duration"},
        {{"run", "--ttl", "", "a", "--", "touch", "ran"}, "--ttl takes a duration"},
        {{"run", "--ttl", "1e3", "a", "--", "touch", "ran"}, "--ttl takes a duration"},
        {{"run", "--wait", "-5s", "a", "--", "touch", "ran"}, "--wait may not be negative"},
        {{"run", "--wait=-5s", "a", "--", "touch", "ran"}, "--wait may not be negative"},
        {{"run", "--grace", "6s", "a", "--", "touch", "ran"}, "--grace may be at most"},
        {{"run", "--reclaim", "a", "--", "touch", "ran"}, "--owner"},
        {{"run", "--note", "\xff", "a", "--", "touch", "ran"}, "note must be UTF-8"},
        {{"run", "--busy-exit-code", "256", "a", "--", "touch", "ran"}, "255"},
        {{"acquire", "a"}, "--for"},
        {{"acquire", "--for", "0", "a"}, "--for must be more than 0"},
        {{"acquire", "--for", "1m", "--busy-exit-code", "0", "a"}, "--busy-exit-code"},
        {{"release", "a"}, "GRANT-ID"},
        {{"renew", "--for", "1m", "a"}, "GRANT-ID"},
        {{"renew", "a", "1"}, "--for"},
        {{"renew", "--for", "0", "a", "1"}, "--for"},
        {{"release", "a", "x"}, "GRANT-ID is the second number"},
        {{"show", ""}, "a lock name may not be empty"},
        {{"ls", "--limit", "0"}, "--limit"},
        {{"ls", "\xff"}, "UTF-8"},
        {{"migrate", "--down-to", "0"}, "give --yes"},
        {{"migrate", "--print", "--dialect", "oracle"}, "--dialect takes"},
        {{"migrate", "--read-only"}, "--print-grants"},
        {{"metrics", "--output", ""}, "--output needs the name of a file"},
        {{"reap", "--batch", "0"}, "batch"},
        {{"reap", "--retention", "1s"}, "retention"},
    };
    const scratch folder;
    for (const auto& mistake : mistakes) {
        CAPTURE(mistake.said);
        check_refusal(tool::rowlock(mistake.command, in->in_environment({.folder = folder.path()})),
                      64, mistake.said);
    }
    CHECK(std::filesystem::is_empty(folder.path()));
    CHECK(in->run({"ls", "--all"}).out.starts_with("no locks in "));
}

TEST_CASE(
    "an unknown scheme is refused, and so is a memory database, which no other process could see") {
    const arguments command{"run", "a", "--", "true"};
    const auto with_url = [&](const char* url) {
        return tool::rowlock(command, {.variables = {{"ROWLOCK_URL", url}}});
    };
    check_refusal(with_url("redis://localhost"), 64, "postgresql://");
    check_refusal(with_url("sqlite::memory:"), 64, "memory");
}

TEST_CASE("a wrong password is 77, and no message repeats it") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        auto url = support::url_of(which);
        if (!url) continue;
        const auto colon = url->find(':', url->find("//"));
        url->replace(colon + 1, url->find('@') - colon - 1, "sEcrEt");
        const auto got = tool::rowlock({"run", "--url", *url, "a", "--", "true"});
        check_refusal(got, 77, "denied");
        CHECK(got.err.find("sEcrEt") == std::string::npos);
    }
}

TEST_CASE("a database that is down is 69") {
    const support::closed_port nobody;
    const std::string address = "me:sEcrEt@127.0.0.1:" + std::to_string(nobody.port()) + "/db";
    for (const std::string scheme : {"postgresql://", "mysql://"}) {
        const auto got = tool::rowlock({"run", "a", "--", "true"},
                                       {.variables = {{"ROWLOCK_URL", scheme + address}}});
        check_refusal(got, 69, "check the address");
        CHECK(got.err.find("sEcrEt") == std::string::npos);
    }
}

// shows: passwords
TEST_CASE("no message contains a password, however it is spelled") {
    const support::closed_port nobody;
    const std::string port = std::to_string(nobody.port());
    const std::string at = "@127.0.0.1:" + port + "/db";
    std::vector<std::string> urls{
        "postgresql://me:sEcrEt" + at,
        "postgresql://me:%73EcrEt%21" + at,
        "postgresql://me@127.0.0.1:" + port + "/db?password=sEcrEt&connect_timeout=2",
        "host=127.0.0.1 port=" + port + " user=me password='sEcrEt it\\'s' dbname=db",
        "mysql://me:sEcrEt" + at,
        "mysql://me:%73EcrEt%21" + at,
        "mysql://me@127.0.0.1:" + port + "/db?password=sEcrEt",  // no such parameter
        "postgresql://me:sEcrEt" + at + "?no_such=1",
    };
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        auto url = support::url_of(which);
        if (!url) continue;
        const auto colon = url->find(':', url->find("//"));
        urls.push_back(url->replace(colon + 1, url->find('@') - colon - 1, "sEcrEt"));
    }
    std::deque<tool::process> started;  // most of them wait for the server
    std::vector<std::string> what;
    const auto start = [&](const arguments& command, const std::string& url) {
        started.emplace_back(tool::command_line(command),
                             setting{.variables = {{"ROWLOCK_URL", url}}});
        what.push_back(command.front() + " " + url);
    };
    for (const auto& url : urls) {
        start({"run", "a", "--", "env"}, url);
        start({"doctor", "--json"}, url);
    }
    // Every command on one that is down, and on one that refuses the password.
    for (const arguments& command : {arguments{"ls", "--json"},
                                     {"show", "--json", "a"},
                                     {"acquire", "--for", "1m", "--json", "a"},
                                     {"migrate", "--json"},
                                     {"reap", "--json"},
                                     {"doctor"}}) {
        start(command, urls.front());
        start(command, urls.back());
    }
    for (std::size_t i = 0; i < started.size(); ++i) {
        CAPTURE(what[i]);
        CHECK(started[i].wait() != 0);
        for (const auto& text : {started[i].out(), started[i].err()}) {
            CAPTURE(text);
            CHECK(text.find("EcrEt") == std::string::npos);
        }
    }
}

TEST_CASE("no message contains a password, wherever its URL is given") {
    const std::string url = "postgresql://me:sEcrEt@127.0.0.1/db";
    const std::string words = "host=127.0.0.1 user=me password=sEcrEt";
    for (const arguments& command : {arguments{"--url", url, "ls"},
                                     {"--url=" + url, "ls"},
                                     {url, "ls"},
                                     {"doctor", url},
                                     {"ls", "a", url},
                                     {"doctor", words},
                                     {words},
                                     {"acquire", "--for", url, "a"}}) {
        CAPTURE(command);
        const auto got = tool::rowlock(command);
        CHECK(got.code == 64);
        CHECK(got.err != "");
        CHECK((got.out + got.err).find("EcrEt") == std::string::npos);
    }
}

// shows: passwords
TEST_CASE("the list of processes shows no password, however it is spelled") {
    const support::silent_listener silent;
    const std::string port = std::to_string(silent.port());
    for (const std::string& url :
         {"postgresql://me:sEcrEt@127.0.0.1:" + port + "/db",
          "postgresql://me@127.0.0.1:" + port + "/db?password=sEcrEt",
          "host=127.0.0.1 port=" + port + " user=me password=sEcrEt dbname=db",
          "port=" + port + " user=me password=sEcrEt:x host=127.0.0.1",
          "mysql://me:%73EcrEt@127.0.0.1:" + port + "/db"}) {
        CAPTURE(url);
        for (const bool joined : {false, true}) {
            const arguments command =
                joined ? arguments{"ls", "--url=" + url} : arguments{"ls", "--url", url};
            tool::process waiting{tool::command_line(command)};
            CHECK(tool::eventually([&] {
                const auto line = contents("/proc/" + std::to_string(waiting.id()) + "/cmdline");
                return line.find("ls") != std::string::npos &&
                       line.find("EcrEt") == std::string::npos;
            }));
            waiting.send(SIGKILL);
            waiting.wait();
        }
    }
}

// shows: passwords
TEST_CASE("a child gets no URL, by its environment or its files") {
    const auto in = tool::sqlite_tables();
    const auto got = tool::rowlock(
        {"run", "a", "--", "sh", "-c", "tr '\\0' '\\n' </proc/self/environ; ls -l /proc/self/fd"},
        {.variables = {{"ROWLOCK_URL", in->url()}}});
    CHECK(got.code == 0);
    CHECK(got.out.find("ROWLOCK_TOKEN=") != std::string::npos);
    CHECK(got.out.find("ROWLOCK_URL") == std::string::npos);
    CHECK(got.out.find("locks.db") == std::string::npos);
    CHECK(got.out.find("socket:") == std::string::npos);
}

TEST_CASE("missing tables are 78 with every command, and the error says how to make them") {
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        const bool sqlite = in->url().starts_with("sqlite:");
        const scratch folder;
        for (const arguments& command : {arguments{"run", "a", "--", "touch", "ran"},
                                         {"acquire", "--for", "1m", "a"},
                                         {"release", "a", "1"},
                                         {"renew", "--for", "1m", "a", "1"},
                                         {"ls"},
                                         {"show", "a"},
                                         {"break", "--now", "--yes", "a"},
                                         {"reap"}}) {
            CAPTURE(command.front());
            check_refusal(in->run(command, {.folder = folder.path()}), 78, "rowlock migrate");
        }
        CHECK(std::filesystem::is_empty(folder.path()));
        if (sqlite) CHECK_FALSE(std::filesystem::exists(in->url().substr(7)));
    }
}

TEST_CASE("a read-only SQLite file is 77") {
    const scratch folder;
    const std::string file = folder / "locks.db";
    REQUIRE(tool::rowlock({"migrate", "--url", "sqlite:" + file}).code == 0);
    REQUIRE(chmod(file.c_str(), 0444) == 0);
    check_refusal(tool::rowlock({"run", "--url", "sqlite:" + file, "a", "--", "true"},
                                {.unprivileged = true}),
                  77, "does not accept writes");
}

TEST_CASE("a URL on the command line is wiped from the list of processes") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    tool::process main{tool::command_line({"run", "--url", in->url(), "a", "--", "sh", "-c",
                                           "printf yes >started; exec sleep 1000"}),
                       {.folder = folder.path()}};
    REQUIRE(tool::eventually([&] { return contents(folder / "started") == "yes"; }));
    for (const pid_t each : {main.id(), tool::children_of(main.id()).at(0)}) {
        const auto line = contents("/proc/" + std::to_string(each) + "/cmdline");
        CHECK(line.find("locks.db") == std::string::npos);
        CHECK(line.find("sqlite:*") != std::string::npos);
    }
    main.send(SIGTERM);
    main.wait();
}

TEST_CASE("text from the database cannot control a terminal") {
    const auto in = tool::sqlite_tables();
    const std::string note =
        std::string{"red \x1b[31m \x7f \xc2\x9b "} + reversing + " \\ \xc3\xa9 \t\n";
    REQUIRE(in->run({"acquire", "--for", "1m", "--note", note, "a"}).code == 0);
    for (const arguments& command : {arguments{"ls"}, {"show", "a"}}) {
        const auto got = in->run(command);
        CHECK(got.out.find("red \\x1b[31m \\x7f \\u{9b} \\u{202e} \\\\ \xc3\xa9 \\x09\\x0a") !=
              std::string::npos);
    }
    const auto got = in->run({"ls", "--json"}).out;
    for (const char c : got) CHECK((c == '\n' || (c >= ' ' && c < 0x7f)));
    CHECK(nlohmann::json::parse(got)["locks"][0]["holder"]["note"] == note);
}

// shows: hostile-text
TEST_CASE("a name cannot control a terminal either, in output or in an error") {
    const auto in = tool::sqlite_tables();
    // Changes the direction of the text that follows. Allowed in a name.
    const std::string name = std::string{"a"} + reversing + isolating + " b";
    const auto harmless = [](const tool::answer& got) {
        for (const auto* const text : {&got.out, &got.err}) {
            CAPTURE(*text);
            CHECK(text->find(reversing) == std::string::npos);
            CHECK(text->find(isolating) == std::string::npos);
            CHECK(text->find("\xc2\x9b") == std::string::npos);
            for (const char c : *text) CHECK((c == '\n' || static_cast<unsigned char>(c) >= ' '));
            CHECK(text->find('\x7f') == std::string::npos);
        }
    };
    for (const arguments& command :
         {arguments{"acquire", "--for", "1m", "--note", "\x1b]0;x\x07", name},
          {"acquire", "--for", "1m", "--wait", "1ms", name},
          {"run", "--wait", "1ms", name, "--", "true"},
          {"ls"},
          {"ls", "--json"},
          {"show", name},
          {"show", "--json", name},
          {"release", name, "12"},
          {"renew", "--for", "1m", name, "12"},
          {"policy", "--max-hold", "1m", name},
          {"policy", name},
          {"policy", "--json", name},
          {"show", name},
          {"break", "--now", "--yes", name},
          {"break", "--now", "--yes", name}}) {
        CAPTURE(command.front());
        harmless(in->run(command));
    }
    const std::string steering = std::string{"\x1b[31m\x7f\xc2\x9b\r\n"} + reversing;
    for (const arguments& command : {arguments{"show", steering},
                                     {"run", steering, "--", "true"},
                                     {steering},
                                     {"--" + steering},
                                     {"ls", "--" + steering},
                                     {"release", "a", steering},
                                     {"acquire", "--for", steering, "a"},
                                     {"run", "--wait", steering, "a", "--", "true"},
                                     {"ls", "--url", steering},
                                     {"ls", "--url", "sqlite:/nowhere/" + steering + "/x"},
                                     {"run", "a", "--", "/nowhere/" + steering}}) {
        CAPTURE(command.front());
        const auto got = in->run(command);
        CHECK(got.code != 0);
        harmless(got);
    }
}

TEST_CASE("help teaches: examples, the database, every exit code") {
    const auto got = tool::rowlock({"--help"});
    CHECK(got.code == 0);
    for (const char* word : {"run", "acquire", "renew", "release", "ls", "show", "held", "break",
                             "waits", "policy", "quorum", "reap", "migrate", "doctor", "version",
                             "Examples:", "ROWLOCK_URL_FILE", "--local", "128+n"}) {
        CHECK(got.out.find(word) != std::string::npos);
    }
    const auto run = tool::rowlock({"run", "--help"});
    CHECK(run.code == 0);
    CHECK(run.out.find("rowlock run [OPTIONS] [NAME] -- COMMAND") != std::string::npos);
    CHECK(std::ranges::count(run.out, '\n') < 56);
    CHECK(tool::rowlock({"--version"}).out.starts_with("rowlock "));
}

TEST_CASE("the help of a command says each thing once") {
    for (const char* command : {"run", "acquire", "renew", "release", "ls", "show", "held", "waits",
                                "history", "break", "reap", "migrate", "fence-token", "doctor"}) {
        CAPTURE(std::string{command});
        const auto got = tool::rowlock({command, "--help"});
        const std::string last = "The database, durations, exit codes: rowlock --help\n";
        const auto at = got.out.find(last);
        REQUIRE(at != std::string::npos);
        CHECK(got.out.find(last, at + 1) == std::string::npos);
        CHECK(got.out.find("Locks in the SQL database") == std::string::npos);
    }
}

TEST_CASE("a misspelled command or option is answered with the nearest one") {
    check_refusal(tool::rowlock({"lss"}), 64, "did you mean ls?");
    check_refusal(tool::rowlock({"aquire", "--for", "1m", "a"}), 64, "did you mean acquire?");
    check_refusal(tool::rowlock({"run", "--wiat", "1s", "a", "--", "true"}), 64,
                  "did you mean --wait?");
    check_refusal(tool::rowlock({"ls", "--jsno"}), 64, "did you mean --json?");
    CHECK(tool::rowlock({"redis-server"}).err.find("did you mean") == std::string::npos);
}

TEST_CASE(
    "output that cannot be written is 74, and a lease that could not be printed is released") {
    const auto in = tool::sqlite_tables();
    const setting full{.standard_output = "/dev/full"};
    CHECK(in->run({"ls"}, full).code == 74);
    CHECK(in->run({"acquire", "--for", "1h", "a"}, full).code == 74);
    CHECK(in->run({"acquire", "--wait", "0", "--for", "1h", "a"}).code == 0);
}

TEST_CASE(
    "migrate makes the tables, reports their version, prints them for a DBA, and takes them back") {
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        CHECK(in->run({"migrate"}).out == "applied migration 1\n");
        CHECK(in->run({"migrate"}).out == "nothing to do\n");
        CHECK(in->run({"migrate", "--status"}).code == 0);
        CHECK(in->run({"migrate", "--down-to", "0", "--yes"}).out == "reverted migration 1\n");
        CHECK(in->run({"migrate", "--status"}).code == 1);
        // --down-to does not migrate up.
        CHECK(in->run({"migrate", "--down-to", "2", "--yes"}).code == 64);
        CHECK(in->run({"migrate", "--status"}).code == 1);
    }
    for (const char* dialect : {"postgresql", "mysql", "sqlite"}) {
        const auto script = tool::rowlock({"migrate", "--print", "--dialect", dialect});
        CHECK(script.code == 0);
        CHECK(script.out.find("create table") != std::string::npos);
    }
}

TEST_CASE("the library accepts tables that a DBA made from `migrate --print`") {
    const scratch folder;
    const std::string file = folder / "locks.db";
    const std::string script = tool::rowlock({"migrate", "--print", "--dialect", "sqlite"}).out;
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open(file.c_str(), &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, script.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(db);
    CHECK(tool::rowlock({"migrate", "--status", "--url", "sqlite:" + file}).code == 0);
    CHECK(tool::rowlock({"run", "--url", "sqlite:" + file, "a", "--", "true"}).code == 0);
}

TEST_CASE("reap --every runs rounds until it is asked to stop") {
    const auto in = tool::sqlite_tables();
    tool::process daemon{tool::command_line((*in)({"reap", "--every", "20ms", "--json"})),
                         in->in_environment()};
    CHECK(tool::eventually([&] { return std::ranges::count(daemon.out(), '\n') >= 3; }));
    daemon.send(SIGTERM);
    CHECK(daemon.wait() == 0);
    CHECK(nlohmann::json::accept(daemon.out().substr(0, daemon.out().find('\n'))));
}

TEST_CASE("`fence-token` prints SQL for a user's table that SQLite accepts unchanged") {
    const auto printed =
        tool::rowlock({"fence-token", "my account", "--trigger", "--dialect", "sqlite"});
    REQUIRE(printed.code == 0);
    const scratch place;
    const std::string file = place / "shop.db";
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open(file.c_str(), &db) == SQLITE_OK);
    const auto run = [db](const std::string& sql) {
        return sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
    };
    CHECK(run("create table \"my account\" (id integer primary key)") == SQLITE_OK);
    CHECK(run(printed.out) == SQLITE_OK);
    CHECK(run("insert into \"my account\" (id, fence_token) values (1, 5)") == SQLITE_OK);
    CHECK(run("update \"my account\" set fence_token = 4") == SQLITE_CONSTRAINT);
    CHECK(run("update \"my account\" set fence_token = 6") == SQLITE_OK);
    sqlite3_close(db);

    const auto mysql = tool::rowlock({"fence-token", "a", "--trigger", "--dialect", "mysql"});
    CHECK(mysql.out.starts_with("delimiter //\nalter table `a`"));
    const auto bare =
        tool::rowlock({"fence-token", "a", "--column", "t", "--dialect", "postgresql"});
    CHECK(bare.out == "alter table \"a\" add column \"t\" bigint not null default 0;\n");
    CHECK(tool::rowlock({"fence-token", "a.b.c", "--dialect", "mysql"}).code != 0);
}

TEST_CASE("a name that does not exist is answered with the names near it") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        REQUIRE(in->run({"run", "nightly", "--", "true"}).code == 0);
        REQUIRE(in->run({"acquire", "--for", "1h", "reports/nightly"}).code == 0);
        REQUIRE(in->run({"run", "--limit", "2", "nightlies", "--", "true"}).code == 0);
        REQUIRE(in->run({"run", "--shared", "catalogue", "--", "true"}).code == 0);
        REQUIRE(in->run({"migrate", "--history", "on"}).code == 0);
        for (const arguments& command : {arguments{"break", "--yes", "nightl"},
                                         {"break", "--now", "--yes", "nightl"},
                                         {"break", "--yes", "--token", "7", "nightl"},
                                         {"show", "nightl"},
                                         {"history", "nightl"},
                                         {"renew", "--for", "1m", "nightl", "1"},
                                         {"release", "nightl", "1"}}) {
            CAPTURE(command);
            const auto got = in->run(command);
            check_refusal(got, 1, "no such lock in ");
            CHECK(got.err.find(": nightl; did you mean nightly, nightlies or reports/nightly?\n") !=
                  std::string::npos);
        }
        check_refusal(in->run({"semaphore", "show", "nightlis"}), 1, "did you mean nightlies");
        check_refusal(in->run({"shared", "show", "catalog"}), 1, "did you mean catalogue?");
        check_refusal(in->run({"show", "quite another"}), 1, ": quite another\n");
        // What is only free, or not yet used, exists.
        CHECK(in->run({"break", "--yes", "nightly"}).out.starts_with("nightly was free in "));
        CHECK(in->run({"break", "--yes", "nightlies"}).out.starts_with("nightlies was free in "));
        CHECK(in->run({"show", "catalogue"}).code == 0);
        REQUIRE(in->run({"policy", "new", "--max-hold", "1h"}).code == 0);
        CHECK(in->run({"show", "new"}).out.find("max hold   1h") != std::string::npos);
        // held answers by its exit code alone.
        const auto held = in->run({"held", "nightl"});
        CHECK(held.code == 1);
        CHECK(held.err == "");
    }
}
