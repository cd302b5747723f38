// `rowlock quorum`, and the example of a quorum lock, on three servers.

// shows: promise-20
#include "support/own_server.hpp"
#include "tool/tool.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/quorum.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using nlohmann::json;

/// Three servers, and the file that names them.
class members {
public:
    members() {
        using support::server;
        for (const auto which : {server::postgresql, server::mariadb, server::postgresql}) {
            servers_.push_back(support::own_server::start(which));
            if (!servers_.back()) return;
            urls_.push_back(servers_.back()->url());
        }
        write(urls_);
    }
    [[nodiscard]] bool there() const { return urls_.size() == 3; }
    [[nodiscard]] support::own_server& server(std::size_t i) { return *servers_.at(i); }
    [[nodiscard]] const std::vector<std::string>& urls() const { return urls_; }
    void write(const std::vector<std::string>& urls) const {
        std::ofstream file{path()};
        file << "# the members\n\n";
        for (const auto& each : urls) file << each << "  \n";
        file.close();
        REQUIRE(chmod(path().c_str(), 0600) == 0);
    }
    [[nodiscard]] std::string path() const { return folder_ / "members.txt"; }
    [[nodiscard]] tool::answer run(tool::arguments words) const {
        words.insert(words.begin(), "quorum");
        words.insert(words.end(), {"--members", path()});
        return tool::rowlock(words);
    }

private:
    tool::scratch folder_;
    std::vector<std::unique_ptr<support::own_server>> servers_;
    std::vector<std::string> urls_;
};

bool tells(const tool::answer& answer, const std::string& what) {
    return answer.err.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "rowlock quorum makes databases one quorum, shows who votes, and readmits a restored one") {
    members all;
    if (!all.there()) return;
    // Without tables it says so.
    const auto without = all.run({"init"});
    CHECK(without.code != 0);
    CHECK(tells(without, "migrate"));
    for (const auto& each : all.urls()) rowlock::migrate(rowlock::open(each));
    CHECK(all.run({"status"}).code == 69);
    all.server(0).stop();
    all.server(0).back_up();  // before it was a member
    all.server(0).start_again();

    const auto made = all.run({"init", "--longest-ttl", "1s"});
    CAPTURE(made.err);
    CHECK(made.code == 0);
    CHECK(made.out.find("1  votes") != std::string::npos);
    CHECK(made.out.find("3  votes") != std::string::npos);
    CHECK(all.run({"init"}).code == 0);  // again
    const auto shown = json::parse(all.run({"status", "--json"}).out);
    REQUIRE(shown["members"].size() == 3);
    for (const auto& each : shown["members"]) {
        CHECK(each["votes"] == true);
        CHECK(each["answers"] == true);
        CHECK(each["problem"] == "");
        CHECK(each["server"] != "");
    }

    // The default ttl of a client is longer than this quorum allows.
    rowlock::quorum_client locks{
        {rowlock::open(all.urls()[0]), rowlock::open(all.urls()[1]), rowlock::open(all.urls()[2])},
        {.member = {.ttl = 1s}}};
    std::int64_t last = 0;
    for (int i = 0; i < 3; ++i) last = locks.acquire("job").token().value();

    // The examples of the help.
    std::istringstream help{tool::rowlock({"quorum", "--help"}).out};
    int examples = 0;
    for (std::string line; std::getline(help, line);) {
        if (!line.starts_with("  rowlock quorum ")) continue;
        std::istringstream text{line.substr(0, line.find('#'))};
        tool::arguments command;
        for (std::string word; text >> word;) {
            command.push_back(word == "members.txt" ? all.path() : word);
        }
        command.erase(command.begin());
        CAPTURE(line);
        const bool readmits = line.find("readmit") != std::string::npos;
        if (line.find(" init ") != std::string::npos) {
            command.insert(command.end(), {"--longest-ttl", "1s"});
        }
        const auto got = tool::rowlock(command);
        CAPTURE(got.err);
        if (readmits) {
            CHECK(tells(got, "nothing to readmit"));
        } else {
            CHECK(got.code == 0);
        }
        ++examples;
    }
    CHECK(examples == 4);

    // Another order is another quorum.
    all.write({all.urls()[1], all.urls()[0], all.urls()[2]});
    CHECK(all.run({"init"}).code != 0);
    CHECK(all.run({"status"}).code == 69);
    all.write(all.urls());

    // The first is restored from a backup from before the quorum was made: it knows nothing.
    all.server(0).stop();
    CHECK(all.run({"status"}).code == 1);
    all.server(0).restore();
    all.server(0).start_again();
    const auto restored = all.run({"status"});
    CHECK(restored.code == 1);
    CHECK(restored.out.find("readmit") != std::string::npos);
    CHECK(all.run({"init"}).code != 0);  // not by founding it again
    CHECK(locks.acquire("job").token().value() > last);
    CHECK(all.run({"readmit"}).code == 64);
    CHECK(all.run({"readmit", "--position", "4"}).code == 64);
    const auto again = all.run({"readmit", "--position", "1"});
    CAPTURE(again.err);
    CHECK(again.code == 0);
    CHECK(all.run({"status"}).code == 0);
    // With the readmitted one alone beside another, the token still rises.
    last = locks.acquire("job").token().value();
    all.server(1).stop();
    CHECK(all.run({"status"}).code == 1);
    CHECK(locks.acquire("job").token().value() > last);
    all.server(2).stop();
    CHECK(all.run({"status"}).code == 69);
    const auto alone = all.run({"readmit", "--position", "2"});
    CHECK(alone.code != 0);
    all.server(1).start_again();
    all.server(2).start_again();

    // No majority votes, so none can be readmitted.
    for (const std::size_t i : {0U, 1U}) {
        const auto source = rowlock::open(all.urls()[i]);
        source.connect(std::chrono::steady_clock::now() + 30s)
            ->query("update rowlock_member set ready_for = ''",
                    std::chrono::steady_clock::now() + 30s);
    }
    CHECK(all.run({"status"}).code == 69);
    const auto mute = all.run({"readmit", "--position", "1"});
    CHECK(mute.code != 0);
    CHECK(tells(mute, "of the other members"));
    const auto restarted = all.run({"restart"});
    CAPTURE(restarted.err);
    CHECK(restarted.code == 0);
    last = locks.acquire("job").token().value();
    CHECK(last > (std::int64_t{1} << 32));

    // A longer ttl is for all members, and is not shortened again.
    CHECK(all.run({"init", "--longest-ttl", "30s"}).code == 0);
    CHECK(all.run({"init", "--longest-ttl", "1s"}).code == 0);
    rowlock::quorum_client longer{
        {rowlock::open(all.urls()[0]), rowlock::open(all.urls()[1]), rowlock::open(all.urls()[2])},
        {.member = {.ttl = 30s}}};
    auto held = longer.acquire("job");
    CHECK(held.token().value() > last);
    CHECK(tool::eventually([&] { return held.counted() == 3; }));
    const auto votes = all.run({"readmit", "--position", "1"});
    CHECK(votes.code != 0);
    CHECK(tells(votes, "nothing to readmit"));
}

TEST_CASE("the example of a quorum lock holds it by a majority") {
    members all;
    if (!all.there()) return;
    for (const auto& each : all.urls()) rowlock::migrate(rowlock::open(each));
    tool::arguments words{std::string{ROWLOCK_EXAMPLES} + "/22_quorum"};
    words.insert(words.end(), all.urls().begin(), all.urls().end());
    {
        tool::process before{words};
        CHECK(before.wait() == 1);
        CHECK(before.err().find("rowlock quorum init") != std::string::npos);
    }
    CHECK(all.run({"init"}).code == 0);
    tool::process held{words};
    CHECK(held.wait() == 0);
    CHECK(held.out() == "held by a majority\n");
    all.server(2).stop();
    tool::process without_one{words};
    CHECK(without_one.wait() == 0);
    all.server(1).stop();
    tool::process without_two{words};
    CHECK(without_two.wait() == 1);
    CHECK(without_two.err().find("rowlock:") == std::string::npos);
}

TEST_CASE(
    "rowlock quorum refuses a file that it cannot trust, and databases that cannot be members") {
    const tool::scratch folder;
    const auto path = folder / "members.txt";
    const auto run = [&](const std::string& text, mode_t mode) {
        std::ofstream{path} << text;
        REQUIRE(chmod(path.c_str(), mode) == 0);
        return tool::rowlock({"quorum", "status", "--members", path});
    };
    CHECK(tool::rowlock({"quorum", "status"}).code == 64);
    CHECK(tool::rowlock({"quorum", "break", "--members", path}).code == 64);
    const auto missing = tool::rowlock({"quorum", "status", "--members", folder / "none"});
    CHECK(missing.code == 78);
    CHECK(tells(missing, "--members"));
    const std::string three = "postgresql://a:secret@127.0.0.1:1/a\n";
    const auto open_to_all = run(three + three + three, 0644);
    CHECK(open_to_all.code == 78);
    CHECK(tells(open_to_all, "chmod 600"));
    const auto few = run(three, 0600);
    CHECK(few.code == 64);
    const auto away = run(three + three + three, 0600);
    CHECK(away.code == 69);
    CHECK(away.out.find("secret") == std::string::npos);
    CHECK(away.err.find("secret") == std::string::npos);
    const auto mixed = run(three + "mysql://a:secret@127.0.0.1:1/a\n" + three, 0600);
    CHECK(mixed.code == 69);  // two drivers in one process
    CHECK(mixed.out.find("2  does not vote  mysql://a@127.0.0.1:1/a") != std::string::npos);
    const std::string file = "sqlite:" + (folder / "a.db") + "\n";
    const auto sqlite = run(file + file + file, 0600);
    CHECK(sqlite.code != 0);
    CHECK(tells(sqlite, "rowlock migrate"));
    rowlock::migrate(rowlock::open("sqlite:" + (folder / "a.db")));
    const auto there = run(file + file + file, 0600);
    CHECK(there.code != 0);
    CHECK(tells(there, "SQLite cannot be a member"));
    CHECK(run("what\n", 0600).code == 64);
}
