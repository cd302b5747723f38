// The choice of the database: without one no command runs.

#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using tool::arguments;
using tool::scratch;
using tool::setting;

namespace {

void check_refusal(const tool::answer& got, int code, const std::string& said) {
    CAPTURE(got.err);
    CHECK(got.code == code);
    CHECK(got.err.starts_with("rowlock: "));
    CHECK(std::ranges::count(got.err, '\n') == 1);
    CHECK(got.err.find(said) != std::string::npos);
    CHECK(got.out == "");
}

unsigned mode_of(const std::string& path) {
    struct stat found {};
    REQUIRE(stat(path.c_str(), &found) == 0);
    return found.st_mode & 07777u;
}

const std::vector<arguments>& commands_on_a_database() {
    static const std::vector<arguments> all{{"run", "a", "--", "touch", "ran"},
                                            {"acquire", "--for", "1m", "a"},
                                            {"release", "a", "1"},
                                            {"ls"},
                                            {"show", "a"},
                                            {"held", "a"},
                                            {"break", "--now", "--yes", "a"},
                                            {"history"},
                                            {"reap"},
                                            {"migrate"},
                                            {"doctor"}};
    return all;
}

std::string with(const std::string& url, const std::string& parameter) {
    return url + (url.find('?') == std::string::npos ? "?" : "&") + parameter;
}

std::string written(const scratch& folder, const std::string& text, mode_t mode) {
    std::string path = folder / ("url" + std::to_string(mode));
    std::ofstream{path} << text;
    REQUIRE(chmod(path.c_str(), mode) == 0);
    return path;
}

}  // namespace

TEST_CASE("without a database every command is refused, and no private file is made") {
    for (const arguments& command : commands_on_a_database()) {
        CAPTURE(command.front());
        const scratch home;
        check_refusal(
            tool::rowlock(command, {.variables = {{"HOME", home.path()}}, .folder = home.path()}),
            78, "--local");
        CHECK(std::filesystem::is_empty(home.path()));
    }
}

TEST_CASE("an empty --url, ROWLOCK_URL or ROWLOCK_URL_FILE is wrong usage, and nothing runs") {
    const scratch home;
    const auto at_home = [&](tool::environment variables) {
        variables["HOME"] = home.path();
        return setting{.variables = std::move(variables), .folder = home.path()};
    };
    const arguments run{"run", "a", "--", "touch", "ran"};
    check_refusal(tool::rowlock({"run", "--url", "", "a", "--", "touch", "ran"}, at_home({})), 64,
                  "--url");
    CHECK(tool::rowlock({"run", "--url=", "a", "--", "touch", "ran"}, at_home({})).code == 64);
    check_refusal(tool::rowlock(run, at_home({{"ROWLOCK_URL", ""}})), 64,
                  "ROWLOCK_URL is set and empty");
    check_refusal(tool::rowlock(run, at_home({{"ROWLOCK_URL_FILE", ""}})), 64,
                  "ROWLOCK_URL_FILE is set and empty");
    // The same mistake made by a shell.
    tool::process script{
        {"sh", "-c",
         std::string{ROWLOCK_TOOL_PATH} + " run --url \"$NO_SUCH_VARIABLE\" a -- touch ran"},
        at_home({})};
    CHECK(script.wait() == 64);
    CHECK(std::filesystem::is_empty(home.path()));
}

TEST_CASE("--local and the URL `local` use a private database, which is created on demand") {
    const scratch home;
    const setting at_home{.variables = {{"HOME", home.path()}}};
    CHECK(tool::rowlock({"run", "--local", "a", "--", "sh", "-c", "echo $ROWLOCK_TOKEN"}, at_home)
              .out == "1\n");
    CHECK(mode_of(home / ".local/state/rowlock") == 0700);
    CHECK(mode_of(home / ".local/state/rowlock/rowlock.db") == 0600);
    CHECK(tool::rowlock({"run", "--url", "local", "a", "--", "sh", "-c", "echo $ROWLOCK_TOKEN"},
                        at_home)
              .out == "2\n");
    const setting elsewhere{.variables = {{"HOME", home.path()},
                                          {"XDG_STATE_HOME", home / "x"},
                                          {"ROWLOCK_URL", "local"}}};
    CHECK(tool::rowlock({"ls"}, elsewhere).out ==
          "no lock is held in sqlite:" + (home / "x/rowlock/rowlock.db") + "\n");
    CHECK(mode_of(home / "x/rowlock/rowlock.db") == 0600);
    check_refusal(tool::rowlock({"ls", "--local"}, {.variables = {{"HOME", ""}}}), 78, "--url");
    CHECK(tool::rowlock({"ls", "--local", "--url", "local"}, at_home).code == 64);
}

TEST_CASE("a command under `rowlock run` finds no database, and the error names --pass-url") {
    const auto in = tool::sqlite_tables();
    const scratch home;
    const setting at_home{.variables = {{"HOME", home.path()}}, .folder = home.path()};
    const std::string tool = ROWLOCK_TOOL_PATH;
    const auto nested =
        in->run({"run", "outer", "--", tool, "run", "inner", "--", "touch", "ran"}, at_home);
    CHECK(nested.code == 78);
    CHECK(nested.err.find("--pass-url") != std::string::npos);
    CHECK(std::filesystem::is_empty(home.path()));
    const auto passed = in->run({"run", "--pass-url", "outer", "--", tool, "run", "--prefix",
                                 in->prefix(), "inner", "--", "touch", "ran"},
                                at_home);
    CHECK(passed.code == 0);
    CHECK(std::filesystem::exists(home / "ran"));
}

TEST_CASE("the URL says where the tables are, to every command and to those under `run`") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        const std::string prefix = in->prefix() + "u_";
        const setting by_url{
            .variables = {{"ROWLOCK_URL", with(in->url(), "rowlock_prefix=" + prefix)}},
            .folder = folder.path()};
        REQUIRE(tool::rowlock({"migrate"}, by_url).code == 0);
        REQUIRE(tool::rowlock({"migrate", "--history", "on"}, by_url).code == 0);
        REQUIRE(tool::rowlock({"acquire", "--for", "1h", "a"}, by_url).code == 0);
        CHECK(tool::rowlock({"held", "a"}, by_url).code == 0);
        CHECK(in->run({"held", "a"}).code == 1);
        for (const arguments& command : {arguments{"ls"}, {"show", "a"}, {"history"}}) {
            CAPTURE(command.front());
            const auto got = tool::rowlock(command, by_url);
            CHECK(got.code == 0);
            CHECK(got.out.find(", prefix " + prefix) != std::string::npos);
        }
        for (const arguments& command :
             {arguments{"reap"},
              {"migrate", "--status"},
              {"break", "--now", "--yes", "a"},
              {"run", "--pass-url", "a", "--", ROWLOCK_TOOL_PATH, "run", "b", "--", "touch", "ran"},
              // As an option it goes to the command with the URL, too.
              {"run", "--url", in->url(), "--prefix", prefix, "--pass-url", "a", "--",
               ROWLOCK_TOOL_PATH, "run", "c", "--", "touch", "ran too"}}) {
            CAPTURE(command.front());
            const auto got = tool::rowlock(command, by_url);
            CAPTURE(got.err);
            CHECK(got.code == 0);
        }
        CHECK(std::filesystem::exists(folder / "ran"));
        CHECK(std::filesystem::exists(folder / "ran too"));
        for (const char* name : {"b", "c"}) {
            CHECK(tool::rowlock({"history", name}, by_url).out.find("released") !=
                  std::string::npos);
        }
        const auto checks =
            nlohmann::json::parse(tool::rowlock({"doctor", "--json"}, by_url).out)["checks"];
        CHECK(std::any_of(checks.begin(), checks.end(), [](const auto& each) {
            return each["check"] == "schema" && each["verdict"] == "ok";
        }));
        CHECK(tool::rowlock({"migrate", "--print"}, by_url).out.find(prefix + "lock") !=
              std::string::npos);
        CHECK(tool::rowlock({"migrate", "--down-to", "0", "--yes"}, by_url).code == 0);
        CHECK(in->run({"migrate", "--status"}).code == 0);
    }
}

TEST_CASE("--schema and --prefix may not contradict the URL, and nothing runs then") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    const auto run = [&](const std::string& url, const arguments& options) {
        arguments command{"run", "--url", url};
        command.insert(command.end(), options.begin(), options.end());
        command.insert(command.end(), {"a", "--", "touch", "ran"});
        return tool::rowlock(command, {.folder = folder.path()});
    };
    const std::string named = with(in->url(), "rowlock_prefix=rowlock_");
    check_refusal(run(named, {"--prefix", "shop_"}), 64,
                  "--prefix shop_ contradicts rowlock_prefix in the URL");
    check_refusal(run("postgresql://h/d?rowlock_schema=one", {"--schema", "two"}), 64,
                  "--schema two contradicts rowlock_schema in the URL");
    check_refusal(run("host=h dbname=d rowlock_schema = one", {"--schema", "two"}), 64,
                  "--schema two contradicts rowlock_schema in the URL");
    check_refusal(run(with(in->url(), "rowlock%5Fprefix=one_"), {"--prefix", "two_"}), 64, "twice");
    // An option becomes a part of the URL.
    for (const char* name : {"", "Shop_", "a_&create=true", "a b", "a?b", "a#"}) {
        CAPTURE(name);
        check_refusal(run(in->url(), {"--prefix", name}), 64, "table prefix");
    }
    for (const char* name : {"a&sslmode=disable", "a b", "pg_a", "A"}) {
        CAPTURE(name);
        check_refusal(run("postgresql://h/d", {"--schema", name}), 64, "schema");
    }
    check_refusal(run("postgresql://h/d", {"--schema", ""}), 64, "empty rowlock_schema");
    check_refusal(run(in->url(), {"--schema", "shop"}), 64, "only PostgreSQL has schemas");
    check_refusal(run(with(in->url(), "rowlock_prefix="), {}), 64, "empty rowlock_prefix");
    CHECK(std::filesystem::is_empty(folder.path()));
    CHECK(run(named, {"--prefix", "rowlock_"}).code == 0);
    CHECK(run(named, {}).code == 0);
    CHECK(std::filesystem::exists(folder / "ran"));
}

TEST_CASE("ROWLOCK_SCHEMA and ROWLOCK_PREFIX are refused, since they are not read") {
    const auto in = tool::sqlite_tables();
    for (const std::string name : {"SCHEMA", "PREFIX"}) {
        for (const arguments& command : commands_on_a_database()) {
            CAPTURE(command.front());
            const scratch folder;
            check_refusal(tool::rowlock(command, {.variables = {{"ROWLOCK_URL", in->url()},
                                                                {"ROWLOCK_" + name, "shop"}},
                                                  .folder = folder.path()}),
                          78, "ROWLOCK_" + name + " is not read");
            CHECK(std::filesystem::is_empty(folder.path()));
        }
    }
}

TEST_CASE("SQL that is printed without the URL has the names that the URL says, or none is") {
    const setting named{.variables = {{"ROWLOCK_URL", "postgresql://h/d?rowlock_prefix=shop_"}}};
    for (const arguments& printing : {arguments{"migrate", "--print", "--dialect", "mysql"},
                                      {"migrate", "--print-grants", "app", "--dialect", "mysql"}}) {
        CAPTURE(printing[1]);
        check_refusal(tool::rowlock(printing, named), 64, "--dialect prints without the URL");
        auto complete = printing;
        complete.insert(complete.end(), {"--prefix", "shop_"});
        for (const setting& environment : {named, setting{}}) {
            const auto got = tool::rowlock(complete, environment);
            CHECK(got.code == 0);
            CHECK(got.out.find(" shop_lock") != std::string::npos);
        }
        CHECK(tool::rowlock(printing).out.find(" rowlock_lock") != std::string::npos);
    }
    CHECK(tool::rowlock({"migrate", "--print", "--dialect", "postgresql", "--schema", "locks"})
              .out.find("\"locks\".rowlock_lock") != std::string::npos);
    check_refusal(tool::rowlock({"migrate", "--print", "--dialect", "mysql", "--schema", "locks"}),
                  64, "only PostgreSQL has schemas");
}

TEST_CASE("a command is refused the lock under which it runs, and does not wait for itself") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        const std::string rowlock_again = std::string{ROWLOCK_TOOL_PATH} + " ";
        const std::string prefix = " --prefix " + in->prefix();
        const auto nested = [&](const std::string& inner) {
            return in->run({"run", "--pass-url", "a", "--", "sh", "-c", rowlock_again + inner},
                           {.folder = folder.path()});
        };
        for (const auto& inner :
             {"run" + prefix + " a -- touch ran", "acquire" + prefix + " --for 1m a",
              "run --pass-url" + prefix + " b -- " + rowlock_again + "run" + prefix +
                  " a -- touch ran"}) {
            CAPTURE(inner);
            const auto got = nested(inner);
            CHECK(got.code == 64);
            CHECK(got.out == "");
            CHECK(got.err.find("wait for itself") != std::string::npos);
        }
        // Without a wait the lock is busy, as usual.
        CHECK(nested("run -n" + prefix + " a -- touch ran").code == 75);
        CHECK(std::filesystem::is_empty(folder.path()));
        CHECK(nested("run" + prefix + " b -- touch ran").code == 0);
        CHECK(std::filesystem::exists(folder / "ran"));
    }
}

TEST_CASE("the same name under another holder is waited for, also under `rowlock run`") {
    const auto in = tool::sqlite_tables();
    const auto grant = in->run({"acquire", "--for", "1h", "a"}).out;
    // ROWLOCK_HOLDS of another hold with the same token.
    tool::process waiting{
        tool::command_line((*in)({"run", "a", "--", "true"})),
        in->in_environment({.variables = {{"ROWLOCK_HOLDS", std::to_string(getpid()) + ":1"}}})};
    REQUIRE(in->queue_becomes(1, "a"));
    const auto space = grant.find(' ') + 1;
    CHECK(in->run({"release", "a", grant.substr(space, grant.find('\n') - space)}).code == 0);
    CHECK(waiting.wait() == 0);
}

TEST_CASE("ls, show, break, history and held name their database") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const std::string url = in->url();
        const auto at = url.rfind('@');
        const std::string name = at == std::string::npos ? url : url.substr(at);
        REQUIRE(in->run({"migrate", "--history", "on"}).code == 0);
        REQUIRE(in->run({"run", "a", "--", "true"}).code == 0);
        for (const arguments& command : {arguments{"ls"},
                                         {"ls", "--all"},
                                         {"ls", "--waiting"},
                                         {"show", "a"},
                                         {"break", "--now", "--yes", "a"},
                                         {"history"}}) {
            CAPTURE(command.front());
            const auto text = in->run(command).out;
            CHECK(text.find(name) != std::string::npos);
            auto as_json = command;
            as_json.insert(as_json.begin() + 1, "--json");
            const auto got = nlohmann::json::parse(in->run(as_json).out);
            CHECK(got["database"].get<std::string>().find(name) != std::string::npos);
        }
        CHECK(nlohmann::json::parse(in->run({"held", "--json", "a"}).out)["database"]
                  .get<std::string>()
                  .find(name) != std::string::npos);
    }
}

TEST_CASE("the first line of ROWLOCK_URL_FILE is a URL; ROWLOCK_URL and --url precede it") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    const std::string file = written(folder, in->url() + "  \nmore", 0600);
    const auto status = [](tool::environment variables, const arguments& command) {
        return tool::rowlock(command, {.variables = std::move(variables)}).code;
    };
    const std::string wrong = "redis://x";
    CHECK(status({{"ROWLOCK_URL_FILE", file}}, {"migrate", "--status"}) == 0);
    CHECK(status({{"ROWLOCK_URL_FILE", file}, {"ROWLOCK_URL", wrong}}, {"ls"}) == 64);
    CHECK(status({{"ROWLOCK_URL", wrong}}, {"ls", "--url", in->url()}) == 0);
    check_refusal(tool::rowlock({"ls"}, {.variables = {{"ROWLOCK_URL_FILE", folder / "none"}}}), 78,
                  "ROWLOCK_URL_FILE");
}

TEST_CASE(
    "a URL file that other users may read or write is refused, and the error names the chmod") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    for (const mode_t mode : {0644U, 0640U, 0604U, 0620U, 0602U, 0666U}) {
        CAPTURE(mode);
        const std::string file = written(folder, in->url(), mode);
        check_refusal(tool::rowlock({"ls"}, {.variables = {{"ROWLOCK_URL_FILE", file}}}), 78,
                      "chmod 600 " + file);
    }
    for (const mode_t mode : {0600U, 0400U}) {
        const std::string file = written(folder, in->url(), mode);
        CHECK(tool::rowlock({"ls"}, {.variables = {{"ROWLOCK_URL_FILE", file}}}).code == 0);
    }
    if (geteuid() != 0) return;
    const std::string foreign = written(folder, in->url(), 0600);
    REQUIRE(chown(foreign.c_str(), 65534, 65534) == 0);
    check_refusal(tool::rowlock({"ls"}, {.variables = {{"ROWLOCK_URL_FILE", foreign}}}), 78,
                  "another user");
}

TEST_CASE("`held` answers by its exit code: 0 held, 1 free, others unknown") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        CHECK(in->run({"held", "a"}).code == 1);
        REQUIRE(in->run({"acquire", "--for", "1h", "a"}).code == 0);
        in->let_pass(std::chrono::hours{2});
        CHECK(in->run({"held", "a"}).code == 1);
        const auto grant = in->run({"acquire", "--for", "1h", "a"}).out;
        const auto got = in->run({"held", "a"});
        CHECK(got.code == 0);
        CHECK(got.out == "");
        CHECK(got.err == "");
        const auto told = in->run({"held", "--json", "a"});
        CHECK(told.code == 0);
        CHECK(nlohmann::json::parse(told.out)["held"] == true);
        REQUIRE(in->run({"break", "--now", "--yes", "a"}).code == 0);
        CHECK(in->run({"held", "a"}).code == 1);
    }
    const int unknown =
        tool::rowlock({"held", "--url", "postgresql://me@127.0.0.1:1/db?connect_timeout=1", "a"})
            .code;
    CHECK(unknown == 69);
    CHECK(tool::rowlock({"held", "a"}).code == 78);
}
